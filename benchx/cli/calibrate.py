"""`benchx calibrate`: whether this machine's timers tell the truth."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from benchx.cli.arguments import AsJson
from benchx.cli.terminal import print_json, print_rows, stdout
from benchx.core.errors import RunFailed, UsageError

if TYPE_CHECKING:
    from benchx.measure.calibrate import TimerCheck


def calibrate(
    *,
    timer: Annotated[
        bool, typer.Option("--timer", help="Compare the timers with independent ones.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the timers with independent ones.

    Work of known duration, timed by benchx and by somebody else; exit code 4 beyond 2 %.
    """
    if not timer:
        raise UsageError("nothing to calibrate was named", hint="benchx calibrate --timer")
    from benchx.measure.calibrate import TOLERANCE, calibrate_timer
    from benchx.measure.device import probe_device

    checks = calibrate_timer(probe_device())
    if as_json:
        print_json([asdict(check) | {"passed": check.passed} for check in checks])
    else:
        print_rows(stdout(), [_row(check) for check in checks])
    wrong = [check.name for check in checks if check.passed is False]
    if wrong:
        raise RunFailed(
            f"the timer is off by more than {TOLERANCE:.0%}: {', '.join(wrong)}",
            hint="other work on the machine disturbs this; try again on an idle one",
        )


def _row(check: TimerCheck) -> dict[str, str | None]:
    verdict = {True: "ok", False: "OFF", None: f"not compared: {check.reason}"}[check.passed]
    return {
        "work": check.name,
        "benchx ms": f"{check.ours_ms:.4f}",
        "other ms": None if check.theirs_ms is None else f"{check.theirs_ms:.4f}",
        "other clock": check.other,
        "deviation": None if check.deviation is None else f"{check.deviation:+.2%}",
        "verdict": verdict,
    }
