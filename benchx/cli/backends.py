"""Which backends work on this machine, found by asking each, without running any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchx.core.axes import AxisSpec, Params, Scalar
from benchx.core.device import Device
from benchx.core.outcome import Outcome

if TYPE_CHECKING:
    from benchx.ops.base import Backend, Operator, Unavailable

_EXAMPLE: Mapping[str, Scalar] = {
    "int": 64,
    "bytes": 4096,
    "float": 1.0,
    "bool": False,
    "lengths": "64",
}
"""Values for axes that a scenario must name."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One backend of one operator on one device.

    Attributes:
        version: `package version` as the backend reports it; None when it is not usable here.
        reason: Why it does not work here; None when it does.
        install: The command that would help, if one would.
    """

    backend: str
    op: str
    version: str | None = None
    reason: str | None = None
    install: str | None = None


def find_backends(device: Device) -> list[Finding]:
    """Ask every registered backend about `device`, operators in order of registration."""
    from benchx.ops.base import OPERATORS, backends_of
    from benchx.ops.vocabulary import kernel_words

    kernel_words()  # registers the built-in operators
    return [
        _finding(operator, backend, device)
        for operator in OPERATORS
        for backend in backends_of(operator.name)
    ]


def _finding(operator: Operator[Any], backend: Backend[Any], device: Device) -> Finding:
    names = {"backend": backend.name, "op": operator.name}
    refusal = refusal_of(operator, backend, device)
    if refusal is not None:
        return Finding(**names, reason=refusal.reason, install=refusal.install)
    known = backend.provenance()
    version = f"{known.get('package')} {known.get('version')}" if known.get("version") else None
    return Finding(**names, version=version)


def refusal_of(
    operator: Operator[Any], backend: Backend[Any], device: Device
) -> Unavailable | None:
    """Why a backend runs no point at all here, or None when it runs some.

    One combination says little of the machine, so others are tried: the defaults, then every
    other choice of one axis at a time. What the machine lacks is reported first, and then what is
    unsupported.
    """
    refusals = []
    for params in _candidates(operator.axes):
        refusal = backend.unavailable(params, device)
        if refusal is None:
            return None
        refusals.append(refusal)
    return min(refusals, key=lambda refusal: refusal.outcome is not Outcome.SKIPPED)


def _candidates(axes: Mapping[str, AxisSpec]) -> Iterator[Params]:
    defaults = {name: _example(spec) for name, spec in axes.items()}
    yield defaults
    for name, spec in axes.items():
        choices = (True, False) if spec.type == "bool" else spec.choices
        yield from (defaults | {name: choice} for choice in choices if choice != defaults[name])


def _example(spec: AxisSpec) -> Scalar:
    if spec.default is not None:
        return spec.default
    return spec.choices[0] if spec.choices else _EXAMPLE[spec.type]
