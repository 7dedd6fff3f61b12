"""What is registered, as the scenario loader needs it; importing this imports no torch."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchx.scenario import Vocabulary


@cache
def vocabulary() -> Vocabulary:
    """The words of all registered operators, third parties' included, and of models."""
    from benchx.economics.catalogue import hardware_table
    from benchx.ops.model_vocabulary import model_words
    from benchx.ops.vocabulary import kernel_words
    from benchx.scenario import ServingWords, Vocabulary
    from benchx.serving.engines.catalog import ENGINES
    from benchx.serving.workloads import build  # noqa: F401 - registers the data sets
    from benchx.serving.workloads.base import DATASETS

    datasets = {name: DATASETS.get(name).needs for name in DATASETS.names()}
    serving = ServingWords(
        engines=ENGINES.names(),
        datasets=datasets,
        turn_needs={name: DATASETS.get(name).turn_needs for name in DATASETS.names()},
        chained=frozenset(name for name in DATASETS.names() if DATASETS.get(name).chained),
    )
    hardware = tuple(entry.name for entry in hardware_table())
    return Vocabulary(ops=kernel_words(), models=model_words(), serving=serving, hardware=hardware)
