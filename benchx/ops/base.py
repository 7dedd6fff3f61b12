"""The two seams of a kernel benchmark: Operator (what is computed) and Backend (who computes it).

Adding an operator takes one file here, one kernel file in `kernels/` and one scenario; adding a
backend takes one object: `benchx/README.md` has an example of thirty lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar, runtime_checkable

from benchx.core.axes import AxisSpec, Params
from benchx.core.call import OutputSpec, PreparedCall, Reference
from benchx.core.columns import axis_problem
from benchx.core.device import Device
from benchx.core.errors import BenchxError
from benchx.core.outcome import Unavailable
from benchx.core.record import Work
from benchx.core.registry import Registry, load_plugins

__all__ = [
    "OPERATORS",
    "Backend",
    "HostShare",
    "Inputs",
    "JudgedTwice",
    "Operator",
    "SharesWithHost",
    "Unavailable",
    "backends_of",
    "register",
    "register_backend",
]

if TYPE_CHECKING:
    import torch


class Inputs(Protocol):
    """One seeded set of inputs: a frozen dataclass of tensors and numbers."""

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""

    def clone(self) -> Self:
        """A copy whose tensors share no memory with this one (for rotation and cold caches)."""

    def nbytes(self) -> int:
        """Bytes of all tensors."""


I_ = TypeVar("I_", bound=Inputs)
I_contra = TypeVar("I_contra", bound=Inputs, contravariant=True)


class Operator(Protocol[I_]):
    """A computation with a definition: axes, inputs, truth and costs.

    Every method takes `params` with all axes present and already checked against `axes`.
    """

    @property
    def name(self) -> str:
        """Word in scenarios and records."""

    @property
    def title(self) -> str:
        """Heading for people."""

    @property
    def axes(self) -> Mapping[str, AxisSpec]:
        """Every axis a point has."""

    @property
    def max_rms_ratio(self) -> float:
        """Bound on rms(error) / rms(reference) where a scenario names none."""

    def problem(self, params: Params) -> str | None:
        """Why this combination of values makes no sense (a scenario error), or None."""

    def make_inputs(self, params: Params, *, seed: int, device: torch.device) -> I_:
        """Seeded, realistic inputs: equal seeds give equal values."""

    def output_specs(self, inputs: I_) -> Mapping[str, OutputSpec]:
        """Shapes and dtypes of the outputs."""

    def reference(self, inputs: I_) -> Reference:
        """The fp64 reference; must leave `inputs` untouched."""

    def work(self, params: Params) -> Work:
        """FLOPs, minimum bytes, tokens and KV bytes of one call."""


HostShare = Literal["none", "part", "all"]


@runtime_checkable
class SharesWithHost(Protocol):
    """What an operator adds if on a GPU machine some of its work is done by the host.

    Without it all work of an operator counts as the device's, which events on the device time.
    """

    def host_share(self, params: Params) -> HostShare:
        """What the host does of a call, whichever backend makes it.

        "none": it submits. "part": it copies or computes too (packing, staging). "all": the
        device has no part in it; inputs are then made on the CPU.
        """


@runtime_checkable
class JudgedTwice(Protocol):
    """What an operator adds if realistic inputs hide a kind of mistake: other inputs, that show it.

    They are judged once in a run, as the ones that are timed are in every launch.
    """

    def second_inputs(self, inputs: Any) -> Inputs | None:  # noqa: ANN401 - its own kind
        """Of the same shapes and dtypes, so that nothing is compiled again; None: not needed.

        They may share tensors with `inputs`.
        """


@runtime_checkable
class JudgedInTurns(Protocol):
    """What an operator adds if the truth of its large points covers some of their heads."""

    def reference_in_turn(self, inputs: Any, turn: int) -> Reference:  # noqa: ANN401 - its own kind
        """`Operator.reference`, of other heads in each turn; turn 0 is `reference` itself."""


class Backend(Protocol[I_contra]):
    """Somebody's implementation of one operator."""

    @property
    def name(self) -> str:
        """Word in scenarios and records."""

    @property
    def operator(self) -> str:
        """Name of the operator it computes."""

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Why it will not run this point on this device, or None; imports nothing missing."""

    def prepare(self, inputs: I_contra) -> PreparedCall:
        """Bind to inputs; conversions and workspaces happen here. May raise: `crashed`."""

    def provenance(self) -> Mapping[str, Any]:
        """Package, version, file hash, and what really dispatched (call after a first `run`)."""


OPERATORS: Registry[Operator[Any]] = Registry("operator", group="benchx.operators")
_BACKENDS: dict[str, Registry[Backend[Any]]] = {}


def register(operator: Operator[Any], *backends: Backend[Any]) -> None:
    """Register an operator and the backends that live in its file.

    Raises:
        BenchxError: The name is taken, or an axis has the name of a column of every row.
    """
    for axis in operator.axes:
        problem = axis_problem(axis)
        if problem is not None:
            raise BenchxError(f"operator {operator.name!r}: {problem}", hint="rename the axis")
    OPERATORS.add(operator.name, operator)
    for backend in backends:
        register_backend(backend)


def register_backend(backend: Backend[Any]) -> None:
    """Register one more backend of an operator; a second of the same name is refused."""
    noun = f"{backend.operator} backend"
    _BACKENDS.setdefault(backend.operator, Registry(noun)).add(backend.name, backend)


def backends_of(operator: str) -> Registry[Backend[Any]]:
    """The backends of one operator, in order of registration, third parties' last."""
    _load_plugins()
    if operator not in _BACKENDS:
        raise BenchxError(f"operator {operator!r} has no backend")
    return _BACKENDS[operator]


@cache
def _load_plugins() -> None:
    """Operators first: importing their modules may register backends as well."""
    OPERATORS.names()
    load_plugins("benchx.backends", lambda _, backend: register_backend(backend))
