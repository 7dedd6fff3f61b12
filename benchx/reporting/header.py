"""What a report says of a run before any figure: device, versions, status, ceilings, warnings."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchx.core.outcome import Outcome
from benchx.reporting.numbers import digits, flop_rate
from benchx.store import LaunchInfo, Run
from benchx.store.launches import conditions_of

_NOT_RECORDED = "not recorded"
_DRIFT_WORTH_SAYING = 0.02
# On an H200, 26 launches of unchanged kernels above 0.1 ms differed by a CV of 0.3 % at most; a
# control kernel that moved by 2 % is well outside that.

_MAIN_VERSIONS = ("benchx", "torch", "triton", "cuda", "hip", "driver")


@dataclass(frozen=True, kw_only=True)
class CeilingRates:
    """Ceilings measured on the run's own device: bytes copied (read + write), matrix rate."""

    copy_gb_s: float
    matmul_tflop_s: float
    matmul_dtype: str

    def text(self) -> str:
        """`copy 4270 GB/s, bfloat16 matrix product 796 TFLOP/s`."""
        rate = flop_rate(self.matmul_tflop_s)
        return f"copy {digits(self.copy_gb_s, 3)} GB/s, {self.matmul_dtype} matrix product {rate}"


@dataclass(frozen=True, kw_only=True)
class Header:
    """A run in a few lines.

    Attributes:
        device: Name, count and architecture as observed.
        versions: Package, driver or engine -> version, the ones that matter for speed first;
            several, with commas, where launches differ.
        date: Day the run started (UTC).
        status: `complete`, `partial` or `failed`, with what is missing.
        ceilings: None when none was measured.
        warnings: Drift, interrupted launches, launches that differ in what must be equal.
        environment: Everything recorded of the launches' environment, as text.
    """

    run_id: str
    scenario: str
    title: str
    command: str
    device: str
    versions: Mapping[str, str]
    date: str
    status: str
    ceilings: CeilingRates | None
    warnings: tuple[str, ...]
    environment: Mapping[str, str]

    def versions_text(self) -> str:
        """`torch 2.13.0, triton 3.6.0, …`."""
        return ", ".join(f"{name} {value}" for name, value in self.versions.items())

    def source_line(self) -> str:
        """The footer of a figure."""
        parts = (self.run_id, self.device, self.versions_text(), self.date)
        return " · ".join(part for part in parts if part)


def header_of(run: Run) -> Header:
    """Everything a report says above the tables of one run."""
    first = run.launches[0] if run.launches else None
    environment = _environment(run.launches)
    versions = _versions(environment, run)
    return Header(
        run_id=run.meta.run_id,
        scenario=run.meta.scenario,
        title=str(run.meta.resolved.get("title") or run.meta.scenario),
        command=shlex.join(run.meta.command),
        device=_device_text(first.device) if first else _NOT_RECORDED,
        versions={name: _listed(texts) for name, texts in versions.items()},
        date=run.meta.started_at[:10],
        status=_status_text(run),
        ceilings=_ceilings(run.launches),
        warnings=(
            *run.notes,
            *_warnings(run.launches),
            *_differences(run.launches),
            *_mixed_conditions(run),
            *_stale(run),
        ),
        environment={name: _listed(texts) for name, texts in environment.items()},
    )


def _texts(data: Mapping[str, Any]) -> dict[str, str]:
    """Nested data as `outer inner` -> text; absent values are left out."""
    found: dict[str, str] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found |= {f"{name} {inner}": text for inner, text in _texts(value).items()}
        elif value is not None and value != "":
            found[str(name)] = str(value)
    return found


def _device_text(device: Mapping[str, Any]) -> str:
    count = device.get("count")
    name = device.get("name") or _NOT_RECORDED
    many = f"{count} x " if isinstance(count, int) and count > 1 else ""
    arch = f" ({device['arch']})" if device.get("arch") else ""
    return f"{many}{name}{arch}"


def _environment(launches: Iterable[LaunchInfo]) -> dict[str, tuple[str, ...]]:
    """Every fact of the launches' environment: name -> its texts, more than one if they differ."""
    found: dict[str, list[str]] = {}
    for launch in launches:
        for name, text in _texts(launch.environment).items():
            found.setdefault(name, []).append(text)
    return {name: tuple(dict.fromkeys(texts)) for name, texts in found.items()}


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(texts)


def _versions(environment: Mapping[str, tuple[str, ...]], run: Run) -> dict[str, tuple[str, ...]]:
    """The versions that decide speed, those of engines and third-party backends last."""
    known = {"benchx": (run.meta.benchx_version,)} | dict(environment)
    main = {name: known[name] for name in _MAIN_VERSIONS if name in known}
    measured = _measured_versions(run)
    return main | {name: texts for name, texts in measured.items() if name not in main}


def _measured_versions(run: Run) -> dict[str, tuple[str, ...]]:
    """Package or engine -> versions, of those that gave a figure."""
    found: dict[str, list[str]] = {}
    for record in run.records:
        facts = record.provenance
        name, version = facts.get("package") or facts.get("engine"), facts.get("version")
        if record.outcome is Outcome.OK and name and version:
            # Engines say `vllm 0.26.0`.
            found.setdefault(str(name), []).append(str(version).removeprefix(f"{name} "))
    return {name: tuple(dict.fromkeys(texts)) for name, texts in found.items()}


def _status_text(run: Run) -> str:
    wanted, have = run.meta.pairs(), len(run.records)
    missing = f" ({have} of {wanted} measurements are there)" if have < wanted else ""
    return f"{run.status.value}{missing}"


def _ceilings(launches: Sequence[LaunchInfo]) -> CeilingRates | None:
    """Those of the last worker: in the course of a run on one device they only rise."""
    measured = _all_ceilings(launches)
    return measured[-1] if measured else None


def _all_ceilings(launches: Iterable[LaunchInfo]) -> list[CeilingRates]:
    return [
        CeilingRates(
            copy_gb_s=float(launch.ceilings["copy_gb_s"]),
            matmul_tflop_s=float(launch.ceilings["matmul_tflop_s"]),
            matmul_dtype=str(launch.ceilings.get("matmul_dtype") or ""),
        )
        for launch in launches
        if launch.ceilings.get("copy_gb_s") and launch.ceilings.get("matmul_tflop_s")
    ]


def _warnings(launches: Sequence[LaunchInfo]) -> list[str]:
    drifts = [(launch.launch, _largest_drift(launch)) for launch in launches]
    texts = [
        f"launch {number}: the control kernel's time changed by up to {100 * drift:+.1f} %"
        for number, drift in drifts
        if abs(drift) > _DRIFT_WORTH_SAYING
    ]
    texts += [
        f"launch {launch.launch}, worker {launch.worker} ended early: {launch.ended}"
        for launch in launches
        if launch.ended not in (None, "complete")
    ]
    return texts


def _largest_drift(launch: LaunchInfo) -> float:
    """The largest of the worker's drifts, each a control time over the first, minus 1.

    `control_drift` of a row is one of these, the last before its point was recorded.
    """
    first, *later = launch.control_ms or (1.0,)
    return max((time_ms / first - 1 for time_ms in later), key=abs, default=0.0)


def _differences(launches: Sequence[LaunchInfo]) -> list[str]:
    """What should be equal in all launches and is not."""
    devices = list(dict.fromkeys(_device_text(launch.device) for launch in launches))
    texts = [f"the launches ran on different devices: {_listed(devices)}"] if devices[1:] else []
    ceilings = dict.fromkeys(rates.text() for rates in _all_ceilings(launches))
    if len(ceilings) > 1:
        texts.append(f"the ceilings were measured anew: {'; '.join(ceilings)}")
    return texts


def _mixed_conditions(run: Run) -> list[str]:
    """What is not the same in all launches: workers' software and cards, versions of backends."""
    found: dict[str, dict[str, list[int]]] = {}
    for info in run.launches:
        for name, value in conditions_of(info.environment).items():
            found.setdefault(name, {}).setdefault(value, []).append(info.launch)
    for record in run.records:
        package, version = (record.provenance.get(key) for key in ("package", "version"))
        if package and version:
            values = found.setdefault(str(package), {})
            values.setdefault(str(version), []).append(record.launch)
    texts = (
        f"the launches differ in {name}: "
        + ", ".join(f"{value} in {_launches_text(which)}" for value, which in values.items())
        for name, values in found.items()
        if len(values) > 1
    )
    return list(dict.fromkeys(texts))


def _launches_text(launches: Sequence[int]) -> str:
    """`launch 0`, or `launches 1, 2`."""
    numbers = sorted(set(launches))
    return f"launch{'es' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _stale(run: Run) -> list[str]:
    return [] if run.rows_current else ["the last measurements are not yet in these tables"]
