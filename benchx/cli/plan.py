"""`benchx plan`: every point of a scenario, what will not run and why, and how long it may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchx.cli.arguments import AsJson, Overrides, ScenarioName
from benchx.cli.labels import Labels, counted, yaml_word
from benchx.cli.terminal import print_json, print_rows, stdout
from benchx.cli.words import vocabulary
from benchx.core.axes import Scalar
from benchx.core.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from benchx.core.device import Device
    from benchx.runner.plan import PlannedPoint
    from benchx.scenario import Scenario


def plan(scenario: ScenarioName, *, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Print what a run would do.

    Every point of SCENARIO, what will be skipped and why, and how long the rest may take.
    """
    show(scenario, overrides or (), as_json=as_json)


def show(name: str, overrides: Sequence[str], *, as_json: bool) -> None:
    """Load, plan and print; shared with `benchx run --dry-run`."""
    from benchx import scenario
    from benchx.measure.device import probe_device
    from benchx.runner.plan import describe

    loaded = scenario.load(name, overrides=overrides)
    device = probe_device()
    planned = describe(loaded, vocabulary(), device)
    if as_json:
        print_json(_as_json(loaded, device, planned))
    else:
        _print(stdout(), loaded, device, planned)


def _as_json(scenario: Scenario, device: Device, planned: Sequence[PlannedPoint]) -> dict[str, Any]:
    cost = _cost(scenario, device, planned)
    return {
        "scenario": scenario.name,
        "device": device.to_json(),
        "most_minutes": _minutes(planned),
        "most_cost": asdict(cost) if isinstance(cost, _Cost) else None,
        "cost_unknown": None if isinstance(cost, _Cost) else cost,
        "points": [
            entry.point.to_json()
            | {
                "point_id": entry.point.point_id,
                "outcome": entry.unavailable and entry.unavailable.outcome.value,
                "reason": entry.unavailable and entry.unavailable.reason,
                "install": entry.unavailable and entry.unavailable.install,
                "most_seconds": entry.est_seconds,
            }
            for entry in planned
        ],
    }


def _minutes(planned: Sequence[PlannedPoint]) -> float:
    return sum(entry.est_seconds for entry in planned) / 60


def _print(
    console: Console, scenario: Scenario, device: Device, planned: Sequence[PlannedPoint]
) -> None:
    has_title = scenario.title != scenario.name
    console.print(f"{scenario.name}: {scenario.title}" if has_title else scenario.name)
    reasons: dict[str, int] = {}
    for part, entries in _by_part(planned).items():
        _print_part(console, scenario.parts[part].name, entries, reasons)
    for text, number in reasons.items():
        console.print(f"[{number}] {text}")
    runs = sum(entry.unavailable is None for entry in planned)
    told = f"{counted(len(planned), 'point')}, {runs} to run on {device.name}"
    if runs:
        cost = _cost(scenario, device, planned)
        told += (
            f", at most {format_seconds(60 * _minutes(planned))} of timing, set-up not counted; "
            f"{cost if isinstance(cost, _Cost) else f'cost unknown: {cost}'}"
        )
    console.print(told)


@dataclass(frozen=True, kw_only=True)
class _Cost:
    """The most that the timing costs for each GPU in use, and the price that this rests on."""

    per_gpu: float
    currency: str
    price_per_gpu_hour: float
    tier: str
    date: str
    source: str

    def __str__(self) -> str:
        most = "less than 0.01" if self.per_gpu < 0.01 else f"at most {self.per_gpu:.2f}"
        return (
            f"{most} {self.currency} per GPU in use "
            f"({self.price_per_gpu_hour:g} {self.currency} an hour, {self.tier} {self.date}, "
            f"{self.source})"
        )


def _cost(scenario: Scenario, device: Device, planned: Sequence[PlannedPoint]) -> _Cost | str:
    """What the timing may cost, or why that is unknown."""
    from benchx.economics.catalogue import Prices, hardware_named, hardware_of_device
    from benchx.scenario.schema import AUTO

    costs = [part.cost for part in scenario.parts]
    first = costs[0]
    if first is None or any(cost != first for cost in costs):
        return "the scenario names no price that holds for all of it (`cost`)"
    is_auto = first.hardware == AUTO
    hardware = hardware_of_device(device.name) if is_auto else hardware_named(first.hardware)
    price = Prices().price(hardware, first.prices)
    if price is None:
        name = device.name if hardware is None else hardware.title
        return f"no {first.prices} price of {name} is known"
    return _Cost(
        per_gpu=_minutes(planned) / 60 * price.per_gpu_hour,
        currency=price.currency,
        price_per_gpu_hour=price.per_gpu_hour,
        tier=price.tier,
        date=str(price.date),
        source=price.source,
    )


def _by_part(planned: Sequence[PlannedPoint]) -> dict[int, list[PlannedPoint]]:
    parts: dict[int, list[PlannedPoint]] = {}
    for entry in planned:
        parts.setdefault(entry.point.part, []).append(entry)
    return parts


def _print_part(
    console: Console, name: str, entries: Sequence[PlannedPoint], reasons: dict[str, int]
) -> None:
    first = entries[0].point
    varying = Labels(entry.point for entry in entries).varying(first)
    fixed = " ".join(
        f"{axis}={yaml_word(value)}" for axis, value in first.params.items() if axis not in varying
    )
    console.print(f"\n{name}: {first.subject} with {fixed}")
    print_rows(console, [_row(entry, varying, reasons) for entry in entries])


def _row(entry: PlannedPoint, varying: Sequence[str], reasons: dict[str, int]) -> dict[str, Any]:
    row: dict[str, Any] = {axis: _shown(entry.point.params[axis]) for axis in varying}
    seconds = None if entry.unavailable else float(f"{entry.est_seconds:.3g}")
    who = "engine" if entry.point.kind == "serving" else "backend"
    row |= {who: entry.point.backend, "plan": "run", "timing s": seconds}
    if entry.unavailable is not None:
        number = reasons.setdefault(str(entry.unavailable), len(reasons) + 1)
        row["plan"] = f"{entry.unavailable.outcome.value} [{number}]"
    return row


def _shown(value: Scalar) -> Scalar:
    """Numbers stay numbers, which are aligned; the rest is as in a scenario."""
    return value if type(value) in (int, float) else yaml_word(value)
