"""What the notes on a measurement mean, and numbered footnotes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SLOW_SUBMISSION = "slow_submission"
"""The note whose reader needs the time of a single call."""

_MEANINGS: Mapping[str, str] = {
    "host_bound": (
        "the host was late in submitting over a tenth of the calls; "
        "the device time may hold gaps that a busier queue would hide"
    ),
    SLOW_SUBMISSION: (
        "submitting a call takes the host longer than the device needs for it; "
        'called one by one from Python it takes as long as the column "call ms" says'
    ),
    "on_host": (
        "the GPU does none of this work; it was timed by the host clock, and the GPU's "
        "ceilings do not apply"
    ),
    "host_takes_part": (
        "the host copies or computes a part of this work; the time is that of the host's clock, "
        "from an idle device until it is idle again"
    ),
    "no_device_work": (
        "nothing ran on the device between the timer's events, so the device time is no time of "
        "the work; it was done by the host, or in a stream that nothing waits for"
    ),
    "waits_for_device": (
        "submitting waited for the device (the call waits inside, or filled the queue), so the "
        "host time holds what the timer had queued before it"
    ),
    "warm_l2": "the caches could not be displaced before each call; a cold call takes longer",
    "inner_repetitions": "one sample is the mean of several calls, each too short for the clock",
    "near_timer_resolution": "the call is so short that the clock's own step shows",
    "graph_overhead": "the figure may hold over 1 % of the cost of starting the graph",
    "above_roofline": (
        "faster than the ceilings allow for: the data were in a cache, or were mostly read, "
        "which is faster than copying"
    ),
    "above_compute_roofline": (
        "faster than the measured matrix rate allows for: the call did fewer FLOPs than are "
        "counted, or the rate was measured too low; no cache explains it"
    ),
    "probe_dispatched_otherwise": (
        "the short prompt that was checked ran other code than the timed call, which was checked "
        "for shape, dtype and finite values only"
    ),
    "unsteady_warm_up": "the time was still moving when the warm-up ended",
    "sw_power_cap": "the device ran at its power limit, below its highest clock",
    "sw_thermal_slowdown": "the driver lowered the clocks because of heat",
    "throttled": "the device protected itself (heat or power brake) during some samples",
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
        return self.marks([text])

    def marks(self, texts: Iterable[str]) -> str:
        """`[1] [3]`: those of several texts, by number."""
        numbers = [self._numbers.setdefault(text, len(self._numbers) + 1) for text in texts]
        return " ".join(f"[{number}]" for number in sorted(numbers))

    def texts(self) -> tuple[str, ...]:
        """`[n] text` in order."""
        return tuple(f"[{number}] {text}" for text, number in self._numbers.items())
