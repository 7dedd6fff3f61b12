"""What holds for every test."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

from benchx.core.device import Device
from benchx.measure.device import probe_device

# Deadlines would make a busy machine a failure; pytest-timeout still ends what hangs.
settings.register_profile("benchx", deadline=None)
settings.load_profile("benchx")

# A shell that starts pytest in the background has it ignore Ctrl-C, and so would its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PATIENCE_S = 900
"""What ends a hang of a slow test; it takes minutes where other work has the cores too."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A longer limit for slow tests that name none."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PATIENCE_S))


@pytest.fixture
def gpu() -> Device:
    """The real one, for tests marked `gpu`.

    Chosen on a machine without one they say so; `.ci/gpu` refuses to run them there.
    """
    device = probe_device()
    if not device.is_gpu:
        pytest.skip("no GPU in this process")
    return device
