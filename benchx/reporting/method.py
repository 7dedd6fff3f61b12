"""How a run was measured, in sentences, from its scenario and its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchx.core.outcome import Outcome
from benchx.store import Run

_TIMERS: Mapping[str, str] = {
    "events": "device events around each call",
    "events_spin": "device events around each call, the device kept busy until it starts",
    "graph": "calls unrolled in one CUDA graph, device events around it",
    "cpu": "the monotonic clock around each call",
}
_CACHES: Mapping[str, str] = {
    "cold": "caches are displaced before each call",
    "warm": "caches stay as the call before left them",
}
_STOPS: Mapping[str, str] = {
    "target_error": "the interval of the median reached its target",
    "max_time": "the time limit",
    "max_samples": "the largest number of samples",
}


def method_lines(run: Run) -> tuple[str, ...]:
    """One sentence per fact; facts that the run does not record are left out."""
    ok = [row for row in run.rows if row.get("outcome") == Outcome.OK.value]
    lines = [
        _counted("Timer", ok, "timer", _TIMERS),
        _counted("Cache", ok, "cache", _CACHES),
        _counted("Sampling ended by", ok, "stop", _STOPS),
        _counted("Reference for correctness", ok, "check_method", {}),
        *_settings(run.meta.resolved),
    ]
    return tuple(line for line in lines if line)


def _counted(
    subject: str, rows: Iterable[Mapping[str, Any]], column: str, words: Mapping[str, str]
) -> str:
    counts = Counter(str(row[column]) for row in rows if row.get(column) is not None)
    if not counts:
        return ""
    total = sum(counts.values())
    texts = []
    for value, count in counts.most_common():
        share = "" if count == total else f" ({count} of {total} points)"
        texts.append(f"{_explained(value, words)}{share}")
    return f"{subject}: {'; '.join(texts)}."


def _explained(value: str, words: Mapping[str, str]) -> str:
    """`events: device events …`; values that differed between launches are joined by `+`."""
    kinds = value.split("+") if words else [value]
    return " and ".join(f"{kind}: {words[kind]}" if kind in words else kind for kind in kinds)


def _settings(resolved: Mapping[str, Any]) -> list[str]:
    parts = resolved.get("parts") or [resolved]
    found = []
    for part in parts:
        measure = part.get("measure") if isinstance(part, Mapping) else None
        if isinstance(measure, Mapping):
            values = (f"{key} {value}" for key, value in measure.items() if value is not None)
            found.append(f"Settings: {', '.join(values)}.")
    return list(dict.fromkeys(found))
