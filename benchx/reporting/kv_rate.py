"""KV throughput of kernel and model rows, with the interval that follows from their time's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.reporting.chart_latency import Quantity
from benchx.reporting.frame import TIME, TIME_HIGH, TIME_LOW, ok_rows

if TYPE_CHECKING:
    import pandas as pd

NOTE = "KV throughput: bytes of cache and state left behind / device time."
_COLUMN = "kv_throughput_gb_s"
_LEAST_GB_S = 0.1
"""Below it in all rows, MB/s read better, as in the table."""


@dataclass(frozen=True, kw_only=True)
class KvRates:
    """The rows that leave cache behind, and which of their columns are drawn."""

    frame: pd.DataFrame
    what: Quantity


def kv_rates(frame: pd.DataFrame) -> KvRates | None:
    """The rows of backends with a KV throughput; None where no row has one.

    The bytes are counted, only the time is measured: a rate is lowest where the time is longest.
    """
    known = ok_rows(frame)[_COLUMN].dropna()
    if known.empty:
        return None
    unit, factor = ("GB/s", 1.0) if known.max() >= _LEAST_GB_S else ("MB/s", 1e3)
    low, high = f"{_COLUMN}_ci_low", f"{_COLUMN}_ci_high"
    made = frame[_COLUMN] * frame[TIME]
    rows = frame.assign(**{low: made / frame[TIME_HIGH], high: made / frame[TIME_LOW]})
    label = f"KV throughput, {unit}"
    what = Quantity(label=label, value=_COLUMN, low=low, high=high, factor=factor)
    return KvRates(frame=rows, what=what)
