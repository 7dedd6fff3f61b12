"""Into how many segments K2 cuts sequences, against what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchx.core.axes import parse_lengths
from benchx_kernels import _configs
from benchx_kernels._configs import best_segments, predicted_us

SWEEP = Path(__file__).parents[2] / "results/h200-kernel-sweeps/kda-prefill-5.json"


@pytest.mark.parametrize("heads", [1, 12, 32, 96])
@pytest.mark.parametrize("steps", [1, 16, 128, 4096])
def test_segments_are_predicted_to_be_no_slower_than_none(steps: int, heads: int) -> None:
    cut = (steps, 128.0 * heads, 132, 64)
    best = best_segments(*cut)
    assert predicted_us(best, *cut) <= predicted_us(1, *cut)
    assert best == 1 or steps // best >= 8


def test_the_last_wave_costs_less_where_no_two_programs_share_a_processor() -> None:
    alone, shared, full = (predicted_us(1, 100, 64.0 * n, 10, 64) for n in (30, 31, 40))
    assert alone < shared == full


def measured() -> dict[str, dict[int, float]]:
    """Measured milliseconds of K2, by sequences and heads, then segments."""
    found: dict[str, dict[int, float]] = {}
    for row, variants in json.loads(SWEEP.read_text()).items():
        parts = variants["K2 1v64s3 prefix 16,4,3"]
        found[row] = {int(n): times[-1] for n, times in parts.items()}
    return found


@pytest.mark.parametrize(("row", "times"), measured().items(), ids=measured())
def test_the_chosen_segments_are_within_5_percent_of_the_best_measured(
    row: str, times: dict[int, float]
) -> None:
    seqlens, heads = row.split(" H")
    lengths = parse_lengths(seqlens)
    columns = int(heads) * 128 * sum(lengths) / max(lengths)
    chosen = best_segments(-(-max(lengths) // 32), columns, 132, 64)
    assert times[chosen] <= 1.05 * min(times.values())


@pytest.mark.parametrize(("width", "cut"), [(128, True), (256, False)])
def test_heads_too_wide_for_the_prefix_are_not_cut(
    monkeypatch: pytest.MonkeyPatch, width: int, cut: bool
) -> None:
    monkeypatch.setattr(_configs, "processors", lambda device: 132)
    long = 1 << 16
    config = _configs.prefill_config(torch.device("cpu"), 1, long, long, width, width)
    assert bool(config.segment_chunks) == cut
