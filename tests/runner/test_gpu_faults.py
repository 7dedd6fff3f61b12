"""What a GPU adds to the ways of failing: contexts that stay broken, memory that runs out."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchx.core.outcome import Outcome
from benchx.runner import run
from benchx.scenario import Vocabulary, load
from benchx.store import read_run

pytestmark = pytest.mark.gpu

TEXT = """\
schema: 1
name: doubling
title: Who can double?
kind: kernel
op: doubling
backends: [good, {backend}, other]
measure: {{launches: 1, timer: {timer}, min_samples: 6, max_samples: 20, max_time: 0.2s}}
"""


@pytest.mark.parametrize("timer", ["events", "graph"])
@pytest.mark.parametrize(
    ("backend", "outcome", "reason"),
    [
        ("out_of_bounds", Outcome.CRASHED, "device-side assert"),
        ("allocates", Outcome.OOM, "asked for "),
        ("wrong", Outcome.WRONG, "rms ratio"),
    ],
)
def test_a_bad_gpu_call_costs_only_its_own_point(
    tmp_path: Path, backend: str, outcome: Outcome, reason: str, timer: str
) -> None:
    import bad_backends  # noqa: F401 - registers, for the words of the scenario

    from benchx.ops.vocabulary import kernel_words

    (tmp_path / "s.yaml").write_text(TEXT.format(backend=backend, timer=timer))
    summary = run(
        load(tmp_path / "s.yaml"),
        Vocabulary(ops=kernel_words()),
        out_dir=tmp_path / "out",
        plugins=["bad_backends"],
    )
    rows = {row["backend"]: row for row in read_run(summary.path).rows}
    assert rows[backend]["outcome"] == outcome.value
    assert reason in rows[backend]["reason"]
    assert rows["good"]["outcome"] == rows["other"]["outcome"] == "ok"
    assert rows["good"]["timer"] == [timer]
    assert rows["good"]["peak_memory_bytes"] is not None
