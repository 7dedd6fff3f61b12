"""Flash Linear Attention (`fla-core`): its own Triton kernels, never what it may dispatch to.

Beside other packages FLA hands `chunk_kda` to FlashKDA, and further calls to TileLang, Gluon or
FlashQLA. All of that is switched off before its first import, since a row called `fla` must time
FLA; where FLA was imported earlier with dispatch on, `prepare` refuses.

FLA builds the table of chunks of a ragged batch once per `cu_seqlens` object, waiting for the
device, and remembers the last four. The layers of a model share one such object, and so do the
copies of the inputs that a measurement rotates through.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.errors import RunFailed
from benchx.ops.base import Unavailable, register_backend
from benchx.ops.linear_inputs import DecodeInputs, LinearInputs
from benchx.ops.packages import Package, unsupported

if TYPE_CHECKING:
    import torch

    from benchx.core.call import Tensors

PACKAGE = Package(
    module="fla",
    distribution="fla-core",
    tested="0.6.0",
    minimum="0.6.0",
    hashed_files="fla/ops/*/*.py",
)
SWITCHES = {"FLA_DISABLE_BACKEND_DISPATCH": "1", "FLA_FLASH_KDA": "0"}
"""Read by FLA when it is imported: the first bypasses every dispatch, the second names FlashKDA."""

_SAFE_LOWER_BOUND = -5.0  # chunk_kda refuses safe_gate below: a 16-token block must fit fp32


def load_function(module: str, name: str) -> Callable[..., Any]:
    """A function of FLA, with every dispatch to other packages off.

    Raises:
        RunFailed: When FLA was imported before with dispatch on; it reads the switch only then.
    """
    if "fla.backends" not in sys.modules:
        os.environ.update(SWITCHES)
    if not getattr(import_module("fla.backends"), "_DISPATCH_DISABLED", False):
        raise RunFailed(
            "fla was imported with dispatch to other packages on, so its rows could time those",
            hint="set FLA_DISABLE_BACKEND_DISPATCH=1 before the process starts",
        )
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


@lru_cache(maxsize=16)
def shared_cu_seqlens(lengths: tuple[int, ...], device: str) -> torch.Tensor:
    """One int64 [N + 1] object per batch shape and device, so that FLA's table of chunks is kept.

    Its key is the identity of the tensor; a clone per rotated copy of the inputs would evict the
    table and add a wait for the device to every call.
    """
    import torch

    ends = torch.tensor((0, *lengths)).cumsum(0)
    return ends.to(device)


class _Fla:
    """What the adapters of all of FLA's functions share."""

    name = "fla"
    operator: str
    module: str
    function: str

    def __init__(self) -> None:
        self._dispatched: str | None = None

    def provenance(self) -> Mapping[str, Any]:
        """Package, the function prepared last, and FLA's settings in the environment."""
        settings = {key: os.environ[key] for key in sorted(os.environ) if key[:4] == "FLA_"}
        return PACKAGE.provenance() | {"dispatched": self._dispatched, "settings": settings}

    def _load(self, module: str, function: str) -> Callable[..., Any]:
        loaded = load_function(module, function)
        self._dispatched = f"{loaded.__module__}.{loaded.__qualname__}, Triton"
        return loaded


class FlaPrefill(_Fla, ABC):
    """One of FLA's chunked forward functions, without gradients.

    Attributes:
        max_key_width: Largest K that its kernels take, or None.
        sixteen_bit_only: Whether it refuses fp32 inputs.
        state_v_first: Whether it can keep states [N, H, V, K]. Where it can't, `prepare`
            transposes the initial state and the final one is a transposed view: who uses the
            function keeps its states [N, H, K, V] and pays for neither.
        ragged_waits: Whether every call with a ragged batch waits for the device, which a CUDA
            graph can't hold.
    """

    max_key_width: int | None = 256
    sixteen_bit_only = False
    state_v_first = True
    ragged_waits = False

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Final states are fp32 whatever the initial state is; the key width is limited."""
        name, widest = self.function, self.max_key_width
        fits = widest is None or int(params["head_dim"]) <= widest
        sixteen_bit = params["dtype"] != "float32"
        return unsupported(
            (params["state_dtype"] == "float32", f"{name} takes and returns fp32 states only"),
            (fits, f"{name} takes keys of up to {widest} channels"),
            (sixteen_bit or not self.sixteen_bit_only, f"{name} refuses fp32 inputs"),
        ) or PACKAGE.absent(device)

    def prepare(self, inputs: LinearInputs) -> PreparedCall:
        """Adds the batch dimension of 1; a single sequence goes without `cu_seqlens`, as usual.

        Graphs: the first call compiles, autotunes and fills the table of chunks, later ones only
        launch kernels (`ragged_waits` names the exception).
        """
        import torch

        function = self._load(*self._target(inputs))
        arguments, fresh = self._layout(inputs) | self._options(inputs), self._fresh(inputs)
        ragged = len(inputs.lengths) > 1
        if ragged:
            arguments["cu_seqlens"] = shared_cu_seqlens(inputs.lengths, str(inputs.device))

        def run() -> Tensors:
            with torch.no_grad():
                o, state = function(**(arguments | fresh()))
            return {"o": o[0], "final_state": state if self.state_v_first else state.mT}

        return PreparedCall(run=run, graph_safe=not (ragged and self.ragged_waits))

    def provenance(self) -> Mapping[str, Any]:
        """Also says that the copies of a ragged batch share one `cu_seqlens`."""
        return {**super().provenance(), "cu_seqlens": "reused"}

    def _target(self, inputs: LinearInputs) -> tuple[str, str]:
        """Module and name of the function that computes `inputs`."""
        return self.module, self.function

    def _layout(self, inputs: LinearInputs) -> dict[str, Any]:
        state = inputs.initial_state
        if state is not None and not self.state_v_first:
            state = state.mT.contiguous()  # [N, H, K, V]
        layout = {
            "q": inputs.q.unsqueeze(0),
            "k": inputs.k.unsqueeze(0),
            "v": inputs.v.unsqueeze(0),
            "scale": inputs.scale,
            "initial_state": state,
            "output_final_state": True,
        }
        return layout | ({"state_v_first": True} if self.state_v_first else {})

    @abstractmethod
    def _options(self, inputs: LinearInputs) -> dict[str, Any]:
        """Arguments of this function alone, made once."""

    def _fresh(self, inputs: LinearInputs) -> Callable[[], dict[str, Any]]:
        """Computes, in every call, the arguments that the function's users compute for it."""
        return dict


class FlaKda(FlaPrefill):
    """`chunk_kda` with gate, sigmoid of beta and L2 norm inside.

    `safe_gate`, the path through tensor cores, is on where the gate is bounded by -5 or more;
    without that promise FLA computes diagonal blocks token by token.
    """

    operator, module, function = "kda_prefill", "fla.ops.kda", "chunk_kda"

    def _options(self, inputs: LinearInputs) -> dict[str, Any]:
        assert inputs.g is not None
        assert inputs.beta_logits is not None
        bounded = inputs.gate == "bounded"
        return _kda_options(inputs) | {
            "g": inputs.g.unsqueeze(0),
            "beta": inputs.beta_logits.unsqueeze(0),
            "safe_gate": bounded and inputs.lower_bound >= _SAFE_LOWER_BOUND,
        }


class FlaKdaDecode(_Fla):
    """`fused_recurrent_kda_fwd` on a dense batch of states, written in place.

    This is the form that serving engines call; the public `fused_recurrent_kda` allocates a new
    state and a zeroed output in every call. One Triton kernel, so safe in a graph.
    """

    operator, module = "kda_decode", "fla.ops.kda.fused_recurrent"
    function = "fused_recurrent_kda_fwd"

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Any width, state dtype, gate and number of tokens; needs a GPU."""
        return PACKAGE.absent(device)

    def prepare(self, inputs: DecodeInputs) -> PreparedCall:
        """Keeps a copy of the state for `reset` and allocates the output once."""
        import torch

        function, before = self._load(self.module, self.function), inputs.state.clone()
        arguments = _kda_options(inputs) | {
            "q": inputs.q,
            "k": inputs.k,
            "v": inputs.v,
            "g": inputs.g,
            "beta": inputs.beta_logits,
            "scale": inputs.scale,
            "initial_state": inputs.state,
            "inplace_final_state": True,
            "state_v_first": True,
            "out": torch.empty_like(inputs.v),
        }

        def run() -> Tensors:
            with torch.no_grad():
                o, state = function(**arguments)
            return {"o": o, "state": state}

        return PreparedCall(run=run, reset=lambda: _restore(inputs.state, before))


def _kda_options(inputs: LinearInputs | DecodeInputs) -> dict[str, Any]:
    """What KDA's gate, beta and norm need, the same for prefill and decode."""
    bias = inputs.dt_bias
    return {
        "A_log": inputs.a_log,
        "dt_bias": None if bias is None else bias.view(-1),
        "lower_bound": inputs.lower_bound if inputs.gate == "bounded" else None,
        "use_gate_in_kernel": inputs.gate != "log",
        "use_beta_sigmoid_in_kernel": True,
        "use_qk_l2norm_in_kernel": inputs.qk_l2norm,
    }


def _restore(state: torch.Tensor, before: torch.Tensor) -> None:
    state.copy_(before)


register_backend(FlaKda())
register_backend(FlaKdaDecode())
