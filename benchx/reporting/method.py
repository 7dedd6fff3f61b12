"""How a run was measured, in sentences, from its scenario and its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from benchx.core.outcome import Outcome
from benchx.reporting.serving_facts import SERVING
from benchx.store import Run

_TIMERS: Mapping[str, str] = {
    "events": "device events around each call",
    "events_spin": "device events around each call, the device kept busy until it starts",
    "graph": "calls unrolled in one CUDA graph, device events around it",
    "cpu": "the monotonic clock around each call (beside a GPU: idle before and after)",
    "client": "the load generator's monotonic clock at the socket",
}
_CACHES: Mapping[str, str] = {
    "cold": "caches are displaced before each call",
    "warm": "caches stay as the call before left them",
}
_PREFIX_CACHES: Mapping[str, str] = {
    "cold": "almost no prompt token came from it",
    "warm": "most prompt tokens came from it",
    "mixed": "some prompt tokens came from it",
    "unknown": "the server does not tell",
}
_STOPS: Mapping[str, str] = {
    "target_error": "the interval of the median reached its target",
    "max_time": "the time limit",
    "max_samples": "the largest number of samples",
    "complete": "the last request",
}
_OPEN_LOOP = ("arrival", "burstiness", "ramp_from")
"""Of `load`, without effect in a closed loop; points of an open one bear them as axes."""

_KERNEL_RULES = (
    "Time is the device time of one call; a point's figure is the median over its launches.",
    "Only outputs within the bound of the fp64 reference have a figure; "
    '"error" is the largest rms ratio over the outputs.',
    "Share of roofline: the larger of FLOPs / matrix rate and minimum bytes / copy bandwidth, "
    "over the device time.",
    "Speed-up compares a backend with the first of the scenario that is ok anywhere (or the one "
    "named by --baseline), on equal inputs where both are ok. Its geometric mean runs over the "
    "inputs that all backends asked for there finished.",
)
_SERVING_RULES = (
    "Serving: times start when the bytes of a request are handed to the socket; a token counts "
    "when its bytes arrive. Failed requests have no part in latencies and throughputs.",
    "Serving: a percentile is given where enough requests support it; a point's figure is the "
    "median over its launches.",
)


def method_lines(run: Run) -> tuple[str, ...]:
    """One sentence per fact; facts that the run does not record are left out."""
    ok = [row for row in run.rows if row.get("outcome") == Outcome.OK.value]
    served_rows = [row for row in run.rows if row.get("kind") == SERVING]
    served = [row for row in ok if row.get("kind") == SERVING]
    kernels = [row for row in ok if row.get("kind") != SERVING]
    lines = [
        _counted("Timer", ok, "timer", _TIMERS),
        _counted("Cache", kernels, "cache", _CACHES),
        _counted("Prefix cache of the server", served, "cache", _PREFIX_CACHES),
        _counted("Sampling ended by", ok, "stop", _STOPS),
        _counted("Reference for correctness", ok, "check_method", {}),
        *_settings(run.meta.resolved),
        *(_KERNEL_RULES if len(served_rows) < len(run.rows) or not run.rows else ()),
        *(_SERVING_RULES if served_rows else ()),
    ]
    return tuple(line for line in lines if line)


def _counted(
    subject: str, rows: Iterable[Mapping[str, Any]], column: str, words: Mapping[str, str]
) -> str:
    counts = Counter(tuple(row[column]) for row in rows if row.get(column))
    if not counts:
        return ""
    total = sum(counts.values())
    texts = []
    for value, count in counts.most_common():
        share = "" if count == total else f" ({count} of {total} points)"
        texts.append(f"{_explained(value, words)}{share}")
    return f"{subject}: {'; '.join(texts)}."


def _explained(kinds: Iterable[str], words: Mapping[str, str]) -> str:
    """`events: device events …`; several kinds where launches differed."""
    return " and ".join(f"{kind}: {words[kind]}" if kind in words else kind for kind in kinds)


def _settings(resolved: Mapping[str, Any]) -> list[str]:
    parts = resolved.get("parts") or [resolved]
    found = []
    for part in parts:
        if isinstance(part, Mapping):
            found += _serving_settings(part) if part.get("kind") == SERVING else _measure(part)
    return list(dict.fromkeys(found))


def _measure(part: Mapping[str, Any]) -> list[str]:
    measure = part.get("measure")
    return [f"Settings: {_listed(measure)}."] if isinstance(measure, Mapping) else []


def _serving_settings(part: Mapping[str, Any]) -> list[str]:
    """Workload and load; of `measure` only what holds at this level."""
    measure = part.get("measure") or {}
    used = {key: measure[key] for key in ("launches", "seed") if key in measure}
    load = {key: value for key, value in (part.get("load") or {}).items() if key not in _OPEN_LOOP}
    sections = (("Workload", part.get("workload")), ("Load", {**load, **used}))
    return [f"{name}: {_listed(values)}." for name, values in sections if values]


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)
