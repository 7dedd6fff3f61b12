"""The ledger of a run: what was charged counts for whoever goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchx.core.errors import StoreError
from benchx.store.spending import SPENDING_FILE, Ledger


def test_charges_count_by_part(tmp_path: Path) -> None:
    for folder in (tmp_path, None):
        ledger = Ledger(folder)
        ledger.add(0, 0.5, "load of p")
        ledger.add(1, 2.0, "load of q")
        ledger.add(0, 0.25, "warm-up of p")
        assert ledger.spent_usd(0) == 0.75
        assert ledger.spent_usd(1) == 2.0
        assert ledger.spent_usd(2) == 0.0


def test_what_an_earlier_process_was_charged_counts_and_a_torn_line_does_not(
    tmp_path: Path,
) -> None:
    line = '{"part":0,"usd":1.5,"what":"load of p"}\n'
    (tmp_path / SPENDING_FILE).write_text(line + '{"part":0,"us')
    ledger = Ledger(tmp_path)
    assert ledger.spent_usd(0) == 1.5
    ledger.add(0, 1.0, "load of p")
    assert (tmp_path / SPENDING_FILE).read_text().count("\n") == 2


def test_a_run_that_costs_nothing_has_no_ledger_file(tmp_path: Path) -> None:
    Ledger(tmp_path).add(0, 0.0, "load of p")
    assert not list(tmp_path.iterdir())


def test_a_ledger_that_can_not_be_read_is_an_error_and_not_a_new_allowance(tmp_path: Path) -> None:
    (tmp_path / SPENDING_FILE).write_text("nonsense\n")
    with pytest.raises(StoreError, match="not a JSON object"):
        Ledger(tmp_path)
