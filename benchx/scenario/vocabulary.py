"""What the loader must know of operators, passed in as plain values so that it imports none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchx.core.axes import AxisSpec, Params


@dataclass(frozen=True)
class OpWords:
    """What a scenario may say about one operator.

    Attributes:
        axes: Axis name -> type, default and limits.
        backends: Every registered backend, in the order that `backends: all` uses.
        problem: Why a combination of values makes no sense, or None.
    """

    axes: Mapping[str, AxisSpec]
    backends: tuple[str, ...]
    problem: Callable[[Params], str | None]


@dataclass(frozen=True)
class ModelWords:
    """What a scenario may say about models.

    Attributes:
        architectures: Those that ship with benchx; a path of a description works too.
        words: (architecture, phase) -> axes, backends and impossible combinations. Raises
            BenchxError for an architecture that can't be found or read.
    """

    architectures: tuple[str, ...]
    words: Callable[[str, str], OpWords]


@dataclass(frozen=True)
class ServingWords:
    """What a scenario may say about serving.

    Attributes:
        engines: Names of engines.
        datasets: Data set -> settings of `workload` that it can't do without.
        turn_needs: The same, when a session has more than one turn.
        chained: Data sets whose requests follow one another in sessions.
    """

    engines: tuple[str, ...]
    datasets: Mapping[str, tuple[str, ...]]
    turn_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    chained: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Vocabulary:
    """The words of a scenario that depend on what is registered.

    Attributes:
        ops: Operator name -> its words.
        models: Those of model scenarios; None where models are unknown.
        serving: Those of serving scenarios; None leaves names to the run.
        hardware: What `cost.hardware` may name besides `auto`; empty leaves it to the report.
    """

    ops: Mapping[str, OpWords]
    models: ModelWords | None = None
    serving: ServingWords | None = None
    hardware: tuple[str, ...] = ()
