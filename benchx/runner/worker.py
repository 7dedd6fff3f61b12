"""The worker process: `python -m benchx.runner.worker FD`, spec on stdin, events on FD."""

from __future__ import annotations

import importlib
import json
import os
import sys

from benchx.runner.events import Ended, Phase, Ready
from benchx.runner.lifeline import (
    limit_memory,
    offer_to_oom_killer,
    post_warden,
    read_line,
    take_stdin,
)
from benchx.runner.session import PipeChannel, Session
from benchx.runner.spec import LaunchSpec

CEILINGS_LIMIT_S = 300.0
"""Measuring the ceilings takes seconds, once per machine; a busy GPU takes longer."""


def main() -> None:
    """Read the spec, measure every group, say how it ended."""
    events = int(sys.argv[1])
    os.set_inheritable(events, False)
    lifeline = take_stdin()
    spec = LaunchSpec.from_json(json.loads(read_line(lifeline)))
    post_warden(lifeline, close=events)
    offer_to_oom_killer()
    channel = PipeChannel(events)
    channel.send(Ended(work(spec, channel)))


def work(spec: LaunchSpec, channel: PipeChannel) -> str:
    """Measure; returns `complete` or why another worker must go on."""
    from benchx.runner.catalog import LEVELS

    for plugin in spec.plugins:
        importlib.import_module(plugin)
    session = _prepare(spec, channel)
    for group in spec.groups:
        LEVELS.get(group.kind).measure(group, session)
        missing = [p for p in group.points if p.point_id not in session.recorded]
        if session.poisoned is not None:
            return f"the device context is unusable: {session.poisoned}"
        if missing:
            raise AssertionError(f"level {group.kind} did not record {missing[0].label()}")
    return "complete"


def _prepare(spec: LaunchSpec, channel: PipeChannel) -> Session:
    from dataclasses import asdict

    from benchx.measure.ceilings import ceilings
    from benchx.measure.device import probe_device
    from benchx.measure.environment import snapshot

    device = probe_device()
    if not device.is_gpu:
        limit_memory(device.memory_bytes)
    channel.send(Phase(name="ceilings", points=(), limit_s=CEILINGS_LIMIT_S))
    limits = asdict(ceilings(device))
    channel.send(Ready(device=device.to_json(), environment=snapshot(), ceilings=limits))
    return Session(spec=spec, device=device, ceilings=limits, channel=channel)


if __name__ == "__main__":
    main()
