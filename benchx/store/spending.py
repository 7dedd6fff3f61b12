"""What a run has been charged: one ledger for all launches, workers and resumed attempts."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from pathlib import Path

from benchx.store.journal import Journal, read_entries

SPENDING_FILE = "spending.jsonl"


class Ledger:
    """Charges by scenario part; written down before the next request is sent.

    Args:
        folder: The run folder, whose earlier charges count; None keeps them in memory.

    Raises:
        StoreError: Earlier charges can't be read.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / SPENDING_FILE
        self._spent_usd: defaultdict[int, float] = defaultdict(float)
        if self._path is not None and self._path.exists():
            for entry in read_entries(self._path).items:
                self._spent_usd[int(entry["part"])] += float(entry["usd"])

    def spent_usd(self, part: int) -> float:
        """All charges of a scenario part until now."""
        return self._spent_usd[part]

    def add(self, part: int, usd: float, what: str) -> None:
        """Write down a charge.

        Args:
            part: Index of the scenario part.
            usd: The charge.
            what: What was charged for, such as the id of a point.

        Raises:
            StoreError: It can't be written.
        """
        if not usd:
            return
        self._spent_usd[part] += usd
        if self._path is None:
            return
        with closing(Journal(self._path)) as journal:
            journal.cut_torn_end()
            journal.append({"part": part, "usd": usd, "what": what})
