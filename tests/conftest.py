"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# Deadlines would make a busy machine a failure; pytest-timeout still ends what hangs.
settings.register_profile("benchx", deadline=None)
settings.load_profile("benchx")
