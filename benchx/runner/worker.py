"""The worker process: `python -m benchx.runner.worker FD`, spec on stdin, events on FD."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict

from benchx.runner.events import Ended, Phase, Ready, Sources
from benchx.runner.lifeline import (
    limit_memory,
    offer_to_oom_killer,
    post_warden,
    read_line,
    take_stdin,
)
from benchx.runner.session import CEILINGS_LIMIT_S, Channel, PipeChannel, Session
from benchx.runner.spec import LaunchSpec

Opening = Callable[[LaunchSpec, Channel], Session]
"""Finds the device, tells the parent, returns the session."""


def open_session(spec: LaunchSpec, channel: Channel) -> Session:
    """On the first device that this process sees.

    The first worker of a run measures the ceilings again, which may raise them; all launches
    then share them.
    """
    from benchx.measure.ceilings import ceilings
    from benchx.measure.device import probe_device
    from benchx.measure.environment import snapshot
    from benchx.measure.telemetry import card_settings

    device = probe_device()
    if not device.is_gpu:
        limit_memory(device.memory_bytes)
    channel.send(Phase(name="measuring ceilings", points=(), limit_s=CEILINGS_LIMIT_S))
    limits = asdict(ceilings(device, again=spec.worker == 0))
    environment = snapshot() | {"card": card_settings(device)}
    channel.send(Ready(device=device.to_json(), environment=environment, ceilings=limits))
    return Session(spec=spec, device=device, ceilings=limits, channel=channel)


def main(opening: Opening = open_session) -> None:
    """Read the spec, measure every group, say how it ended."""
    gc.disable()  # what is imported stays: looking for garbage in it takes a sixth of the time
    events = int(sys.argv[1])
    os.set_inheritable(events, False)
    lifeline = take_stdin()
    spec = LaunchSpec.from_json(json.loads(read_line(lifeline)))
    post_warden(lifeline, close=events)
    offer_to_oom_killer()
    channel = PipeChannel(events)
    channel.send(Sources.here())
    for plugin in spec.plugins:
        importlib.import_module(plugin)
    channel.send(Ended(work_through(opening(spec, channel))))


def work_through(session: Session) -> str:
    """Measure all groups; returns `complete` or why another worker must go on."""
    from benchx.runner.catalog import LEVELS

    gc.freeze()  # collections before groups then take no time
    gc.enable()
    for group in session.spec.groups:
        LEVELS.get(group.kind).measure(group, session)
        if session.poisoned is not None:
            return f"the device context is unusable: {session.poisoned}"
        for point in group.points:
            assert point.point_id in session.recorded, f"no record of {point.label()}"
    session.channel.send(Phase(name="control kernel", points=(), limit_s=CEILINGS_LIMIT_S))
    session.drift.last_look()
    return "complete"


if __name__ == "__main__":
    main()
