"""What the notes on a measurement mean, and numbered footnotes."""

from __future__ import annotations

from collections.abc import Mapping

_MEANINGS: Mapping[str, str] = {
    "host_bound": (
        "the host took longer to submit the call than the device to run it; "
        "the device time may contain gaps that a busier queue would hide"
    ),
    "throttled": "the device slowed itself down (heat or power brake) during some samples",
    "sw_power_cap": "the device ran at its power limit, below its highest clock",
    "hw_slowdown": "the device reported a hardware slowdown (heat or power brake)",
    "sw_thermal_slowdown": "the driver lowered the clocks because of heat",
    "hw_thermal_slowdown": "the device halved its clocks because of heat",
    "hw_power_brake": "the device was told from outside to draw less power",
    "control_drift": "the control kernel changed its time between start and end of the launch",
}


def note_text(note: str) -> str:
    """`host_bound: the host took …`; a note without a known meaning is printed as it is."""
    word, _, _ = note.partition(":")
    meaning = _MEANINGS.get(word.strip())
    return f"{note.replace('_', ' ')}: {meaning}" if meaning else note.replace("_", " ")


class Footnotes:
    """Numbers texts in order of first use; equal texts share a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, text: str) -> str:
        """`[n]` for this text."""
        return f"[{self._numbers.setdefault(text, len(self._numbers) + 1)}]"

    def texts(self) -> tuple[str, ...]:
        """`[n] text` in order."""
        return tuple(f"[{number}] {text}" for text, number in self._numbers.items())
