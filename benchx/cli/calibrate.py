"""`benchx calibrate`: whether this machine's timers and the serving client tell the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from benchx.cli.arguments import AsJson, Overrides
from benchx.cli.terminal import print_json, print_rows, stderr, stdout
from benchx.core.errors import RunFailed, UsageError

if TYPE_CHECKING:
    from benchx.measure.calibrate import TimerCheck, Verdict
    from benchx.serving.calibrate import Calibration, CalibrationLoad


_DEVIATION = (
    "times are medians; deviation = benchx / other - 1, where the timers took turns the median "
    "over the turns"
)


def calibrate(
    scenario: Annotated[
        str | None,
        typer.Argument(
            metavar="SCENARIO",
            help="Serving scenario whose loads are sent to a bundled server.",
        ),
    ] = None,
    *,
    overrides: Overrides = None,
    timer: Annotated[
        bool, typer.Option("--timer", help="Compare the timers with independent ones.")
    ] = False,
    ttft_ms: Annotated[
        float, typer.Option("--ttft-ms", min=0, help="Time to first token of the bundled server.")
    ] = 100.0,
    token_ms: Annotated[
        float, typer.Option("--token-ms", min=0.1, help="Time per token of the bundled server.")
    ] = 20.0,
    as_json: AsJson = False,
) -> None:
    """Check timers and load generator against known references.

    With --timer: the same work is timed by benchx and by independent timers; exit code 4 if for
    some work none of them agrees within 2 %. With SCENARIO: its loads are sent to a bundled server
    that knows what it sent and when; exit code 4 if the client's own error exceeds its limits.
    """
    if scenario is not None and timer:
        raise UsageError(
            "--timer and SCENARIO can't be combined", hint="run them one after the other"
        )
    if scenario is not None:
        _client(_loads(scenario, overrides or (), ttft_ms, token_ms), as_json=as_json)
    elif timer:
        _timer(as_json=as_json)
    else:
        raise UsageError("missing argument: --timer or SCENARIO", hint="benchx calibrate --timer")


def _timer(*, as_json: bool) -> None:
    from benchx.measure.calibrate import TOLERANCE, calibrate_timer, verdicts
    from benchx.measure.device import probe_device

    checks = calibrate_timer(probe_device())
    found = verdicts(checks)
    if as_json:
        print_json([_entry(check, found[check.name]) for check in checks])
    else:
        print_rows(stdout(), [_row(check, found[check.name]) for check in checks])
        stdout().print(_DEVIATION, soft_wrap=True)
    wrong = [name for name, verdict in found.items() if verdict.passed is False]
    if wrong:
        raise RunFailed(
            f"the timer is off by more than {TOLERANCE:.0%} from every other: {', '.join(wrong)}",
            hint="other work on the machine disturbs this; try again on an idle one",
        )


def _entry(check: TimerCheck, verdict: Verdict) -> dict[str, object]:
    of_work = {"work_passed": verdict.passed, "others_apart": verdict.others_apart}
    return asdict(check) | {"passed": check.passed} | of_work


def _row(check: TimerCheck, verdict: Verdict) -> dict[str, str | None]:
    return {
        "work": check.name,
        "benchx ms": f"{check.ours_ms:.4f}",
        "other ms": None if check.theirs_ms is None else f"{check.theirs_ms:.4f}",
        "other clock": check.other,
        "deviation": None if check.deviation is None else f"{check.deviation:+.2%}",
        "check": _told(check, verdict),
    }


def _told(check: TimerCheck, verdict: Verdict) -> str:
    """Of one comparison; `OFF` only where the work as a whole is."""
    if check.passed is None:
        return f"not compared: {check.reason}"
    if check.passed:
        return "ok"
    off = "off" if verdict.passed else "OFF"
    apart = f", but the others differ by {verdict.others_apart:.0%}" if verdict.disputed else ""
    return off + apart


def _loads(
    name: str, overrides: Sequence[str], ttft_ms: float, token_ms: float
) -> tuple[CalibrationLoad, ...]:
    """The loads of a scenario's serving points."""
    from benchx import scenario
    from benchx.cli.words import vocabulary
    from benchx.serving.calibrate import loads_of
    from benchx.serving.groundtruth.stream import Pace

    points = scenario.expand(scenario.load(name, overrides=overrides), vocabulary())
    loads = loads_of(points, Pace(ttft_ms=ttft_ms, token_ms=token_ms))
    if not loads:
        raise UsageError(f"{name} has no serving point with a load")
    return loads


def _client(loads: Sequence[CalibrationLoad], *, as_json: bool) -> None:
    from benchx.serving.calibrate import calibrate_client

    found = []
    for number, load in enumerate(loads, 1):
        stderr().print(f"[{number}/{len(loads)}] {load.label}: {load.requests} requests")
        found.append(calibrate_client(load))
    if as_json:
        print_json(
            [one.to_json() | {"load": ld.label} for ld, one in zip(loads, found, strict=True)]
        )
    else:
        print_rows(stdout(), [_load_row(*pair) for pair in zip(loads, found, strict=True)])
    wrong = [load.label for load, one in zip(loads, found, strict=True) if not one.passed]
    if wrong:
        raise RunFailed(
            f"the client's own error is too large at {', '.join(wrong)}",
            hint="other work on the machine disturbs this; try again on an idle one",
        )


def _load_row(load: CalibrationLoad, found: Calibration) -> dict[str, str | None]:
    tail, unsupported = f"{found.ttft_error_ms_tail:+.2f}", found.ttft_error_ms_p99 is None
    return {
        "load": load.label,
        "TTFT error ms": f"{found.ttft_error_ms_mean:+.2f}",
        "p99": f"{tail} (max)" if unsupported else tail,
        "of it receiving": f"{found.receive_lag_ms_mean:+.2f}",
        "TPOT error": _shown(found.tpot_error, ".3%"),
        "send lag p99 ms": _shown(found.send_lag_ms_p99, ".2f"),
        "CPU ms/1k tok": _shown(found.cpu_ms_per_1000_tokens, ".1f"),
        "lost": str(found.lost),
        "check": "ok" if found.passed else "OFF",
    }


def _shown(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
