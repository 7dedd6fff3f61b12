"""Prometheus text -> samples, by the exposition format 0.0.4: exact names, labels and escapes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_ESCAPED = re.compile(r'\\[\\"n]')


@dataclass(frozen=True)
class Sample:
    """One line.

    Attributes:
        name: Exact name (`_bucket`, `_sum` and `_count` of a histogram are names of their own).
        value: NaN and infinities as they are.
        labels: Label -> value.
    """

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def parse(text: str, names: Collection[str] | None = None) -> Iterator[Sample]:
    """The samples of a page; lines that are none are left out.

    Args:
        text: The page.
        names: Exact names that are wanted; None: all. Others are not taken apart.
    """
    for line in map(str.strip, text.split("\n")):
        found = _NAME.match(line)
        if found is None or (names is not None and found[0] not in names):
            continue
        sample = _sample(found[0], line[found.end() :])
        if sample is not None:
            yield sample


def _sample(name: str, rest: str) -> Sample | None:
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        end = 1
        while found := _LABEL.match(rest, end):
            labels[found[1]] = _ESCAPED.sub(lambda escape: _ESCAPES[escape[0]], found[2])
            end = found.end()
        if not rest.startswith("}", end):
            return None
        rest = rest[end + 1 :]
    words = rest.partition(" # ")[0].split()  # what follows is an exemplar (OpenMetrics)
    if not 1 <= len(words) <= 2:  # a time stamp may follow the value
        return None
    try:
        value = float(words[0])
    except ValueError:
        return None
    return Sample(name, value, labels)


def total(samples: Collection[Sample], how: str) -> float | None:
    """Several series of one name (ranks, engines) as one: `sum`, `max` or `mean`; None for none."""
    values = [sample.value for sample in samples if not math.isnan(sample.value)]
    if not values:
        return None
    return {"sum": sum(values), "max": max(values), "mean": sum(values) / len(values)}[how]
