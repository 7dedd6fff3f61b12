"""What holds for every test."""

from __future__ import annotations

import pytest
from hypothesis import settings

from benchx.core.device import Device
from benchx.measure.device import probe_device

# Deadlines would make a busy machine a failure; pytest-timeout still ends what hangs.
settings.register_profile("benchx", deadline=None)
settings.load_profile("benchx")


@pytest.fixture
def gpu() -> Device:
    """The real one, for tests marked `gpu`."""
    device = probe_device()
    if not device.is_gpu:
        pytest.skip("no GPU in this process")
    return device
