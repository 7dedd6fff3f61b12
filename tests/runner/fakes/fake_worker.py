"""A real worker process without torch: its backends are behaviours, its figures made up.

The processes, pipes, time limits and kills around it are those of benchx; only what is measured is
fake, so that a test takes a fraction of a second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.runner.catalog import LEVELS
from benchx.runner.events import Ready
from benchx.runner.kernel_level import KernelLevel
from benchx.runner.session import Channel, Session, now
from benchx.runner.spec import Group, LaunchSpec
from benchx.runner.worker import main

DEVICE = Device(
    vendor="cpu",
    torch_type="cpu",
    name=os.environ.get("FAKE_DEVICE", "fake"),
    index=0,
    count=1,
    arch="none",
    memory_bytes=1,
    l2_bytes=1,
    compute_units=1,
)


def _hang() -> None:
    time.sleep(600)


def _die(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def _garble() -> None:
    os.write(int(sys.argv[1]), b"this is no event\n")
    _hang()


def _start_a_child() -> None:
    child = subprocess.Popen(["sleep", "600"])
    Path(os.environ["CHILD_FILE"]).write_text(str(child.pid))


def _leave_the_pipe_to_a_child() -> None:
    if os.fork() == 0:
        _hang()
    os._exit(3)


def _read_stdin() -> None:
    assert sys.stdin.read() == ""


BEHAVIOURS: dict[str, Callable[[], None]] = {
    "good": lambda: None,
    "slow": lambda: time.sleep(0.15),
    "hang": _hang,
    "segfault": _die(signal.SIGSEGV),
    "killed": _die(signal.SIGKILL),
    "exits": lambda: os._exit(0),
    "garbles": _garble,
    "noisy": lambda: print("\x00garbage" * 100_000, '{"event":"ended","body":{"reason":"x"}}'),
    "last_words": lambda: (print("i can't go on", flush=True), os._exit(3))[0],
    "family": lambda: (_start_a_child(), os._exit(3))[0],
    "holds_pipe": _leave_the_pipe_to_a_child,
    "reads": _read_stdin,
}


class FakeLevel(KernelLevel):
    """Lets each backend behave, then records made-up figures."""

    def measure(self, group: Group, session: Session) -> None:
        limit_s = session.settings(group.part)["setup_time_limit_s"]
        for point in group.points:
            session.phase("timing", (point,), limit_s)
            self._one(point, session)

    def _one(self, point: Point, session: Session) -> None:
        started_at = now()
        BEHAVIOURS[point.backend]()
        session.drift.report(1.5)
        session.record(
            point,
            Outcome.OK,
            started_at=started_at,
            details={
                "values": {"device_time_ms": 1.0},
                "samples": {"device_time_ms": (1.0, 1.0)},
            },
        )


def fake_session(spec: LaunchSpec, channel: Channel) -> Session:
    if "BROKEN_WORKER" in os.environ:
        raise ImportError("no such driver")
    environment = json.loads(os.environ.get("FAKE_ENVIRONMENT", "{}"))
    channel.send(Ready(device=DEVICE.to_json(), environment=environment, ceilings={}))
    session = Session(spec=spec, device=DEVICE, ceilings={}, channel=channel)
    session.drift.look = lambda **_: None  # type: ignore[method-assign]
    return session


if __name__ == "__main__":
    LEVELS._entries["kernel"] = FakeLevel()
    main(fake_session)
