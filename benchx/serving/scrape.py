"""Server metrics as time series: polled beside the load, kept as they were read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchx.serving.exchange import get
from benchx.serving.prometheus import Sample, parse, total
from benchx.serving.request import Endpoint
from benchx.serving.server_metrics import Source, SourceMap, sources_of, wanted_names

MAX_PAGE_BYTES = 16 * 2**20
_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One poll.

    Attributes:
        at_ns: When the answer was complete, `time.monotonic_ns`.
        values: Our name -> value; a histogram gives `NAME_sum` and `NAME_count`, a counter by label
            `NAME{value}`. What the page does not have is absent.
    """

    at_ns: int
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Series:
    """All polls of a stretch of time.

    Attributes:
        readings: In order of time.
        problem: Why the last poll failed, or why there is none; None when all went well.
    """

    readings: tuple[Reading, ...] = ()
    problem: str | None = None

    def columns(self, origin_ns: int = 0) -> dict[str, list[Any]]:
        """`at_ns` (after `origin_ns`) and one column per name; None where a reading lacks it."""
        names = dict.fromkeys(name for reading in self.readings for name in reading.values)
        table: dict[str, list[Any]] = {
            "at_ns": [reading.at_ns - origin_ns for reading in self.readings]
        }
        for name in names:
            table[name] = [reading.values.get(name) for reading in self.readings]
        return table

    def increase(self, name: str) -> float | None:
        """How much a counter grew; a fall is a restart and counts from zero. None if unknown.

        A counter with labels appears with its first event: until then it was zero.
        """
        values = self._known(name)
        if values and name not in self.readings[0].values:
            values = [0.0, *values]
        if len(values) < 2:
            return None
        return sum(
            after - before if after >= before else after for before, after in pairwise(values)
        )

    def mean(self, name: str, where: Callable[[Reading], bool] = lambda _: True) -> float | None:
        """Mean of a gauge over the readings (they are evenly spaced) that have it.

        Args:
            name: Of the gauge.
            where: Which of these readings count.
        """
        values = [r.values[name] for r in self.readings if name in r.values and where(r)]
        return sum(values) / len(values) if values else None

    def highest(self, name: str) -> float | None:
        """Largest reading of a gauge."""
        return max(self._known(name), default=None)

    def mean_of_histogram(self, name: str) -> float | None:
        """Mean of what a histogram observed within the stretch; None when it observed nothing."""
        grown, count = self.increase(f"{name}_sum"), self.increase(f"{name}_count")
        return None if grown is None or not count else grown / count

    def _known(self, name: str) -> list[float]:
        return [one.values[name] for one in self.readings if name in one.values]


@dataclass
class Scraper:
    """Polls one server from a thread of its own, before, during and after a load.

    Attributes:
        url: Of the page.
        sources: What to read; None: found out from the first page.
        interval_s: Time between polls.
        endpoint: Whose key and TLS settings to use; None: none.
    """

    url: str
    sources: SourceMap | None = None
    interval_s: float = 1.0
    endpoint: Endpoint | None = None
    _readings: list[Reading] = field(default_factory=list, init=False)
    _problem: str | None = field(default=None, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    @property
    def problem(self) -> str | None:
        """Why the last poll gave nothing, or None."""
        return self._problem

    def start(self) -> None:
        """Read once at once, then in the background."""
        self.poll()
        self._thread = threading.Thread(target=self._work, name="benchx-scrape", daemon=True)
        self._thread.start()

    def stop(self) -> Series:
        """Read once more and return everything; a server that never told gives no reading."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=_TIMEOUT_S + self.interval_s)
        self.poll()
        return Series(readings=tuple(self._readings), problem=self._problem)

    def poll(self) -> Reading | None:
        """Read the page now; None when that failed (the reason is kept)."""
        answer = get(
            self.url, timeout_s=_TIMEOUT_S, endpoint=self.endpoint, most_bytes=MAX_PAGE_BYTES
        )
        if not answer.ok:
            self._problem = f"{self.url}: {answer.summary()}"
            return None
        text = answer.body.decode(errors="replace")
        if not self.sources:
            self.sources = sources_of({sample.name for sample in parse(text)})
        reading = Reading(at_ns=time.monotonic_ns(), values=read_page(text, self.sources))
        self._problem = None if reading.values else f"{self.url}: no metric that benchx knows"
        if reading.values:
            self._readings.append(reading)
        return reading

    def _work(self) -> None:
        due = time.monotonic() + self.interval_s
        while not self._stop.wait(max(due - time.monotonic(), 0.0)):
            self.poll()
            due = max(due + self.interval_s, time.monotonic())


def read_page(text: str, sources: SourceMap) -> dict[str, float]:
    """Our names and their values on one page."""
    by_name: dict[str, list[Sample]] = {}
    for sample in parse(text, wanted_names(sources)):
        by_name.setdefault(sample.name, []).append(sample)
    values: dict[str, float] = {}
    for name, source in sources.items():
        values |= _values(name, source, by_name)
    return values


def _values(name: str, source: Source, by_name: Mapping[str, Sequence[Sample]]) -> dict[str, float]:
    if source.kind == "histogram":
        parts = {f"{name}_{part}": (f"_{part}", source) for part in ("sum", "count")}
        found = {ours: _first(by_name, one, ending) for ours, (ending, one) in parts.items()}
    elif source.kind == "by_label":
        series = _series(by_name, source, "")
        found = {
            f"{name}{{{value}}}": total(
                [one for one in series if one.labels.get(source.label) == value], source.how
            )
            for value in sorted({one.labels.get(source.label, "") for one in series})
        }
    else:
        found = {name: _first(by_name, source, "")}
    return {ours: value for ours, value in found.items() if value is not None}


def _first(by_name: Mapping[str, Sequence[Sample]], source: Source, ending: str) -> float | None:
    return total(_series(by_name, source, ending), source.how)


def _series(by_name: Mapping[str, Sequence[Sample]], source: Source, ending: str) -> list[Sample]:
    """Series of the first name that the page has, with the labels that are asked for."""
    present = next((f"{one}{ending}" for one in source.names if f"{one}{ending}" in by_name), "")
    wanted = source.where.items()
    return [one for one in by_name.get(present, ()) if wanted <= one.labels.items()]
