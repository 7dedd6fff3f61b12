"""Cost of model points: prefill makes input tokens, decode makes output tokens, on one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchx.core.outcome import Outcome
from benchx.reporting.cost_columns import CostColumns
from benchx.reporting.serving_cost import point_cost
from benchx.reporting.serving_facts import Deployment
from benchx.reporting.table import MODEL
from benchx.store import Run

if TYPE_CHECKING:
    import pandas as pd

TOKENS_PER_SECOND = "token_throughput_tok_s"
_CLASS: Mapping[str, str] = {"prefill": "input", "decode": "output"}
SLICE_COST = "cost of the layers that ran, not of the whole model"
"""Footnote of costs where only some layers ran."""


def priced_models(run: Run) -> dict[str, Deployment]:
    """Point id -> what it ran on, for the model points whose part of the scenario names a price."""
    parts = run.meta.resolved.get("parts") or [run.meta.resolved]
    devices = [launch.device for launch in run.launches]
    kinds = {str(device.get("torch_type")) for device in devices}
    names = dict.fromkeys(str(device.get("name")) for device in devices)
    return {
        entry.point.point_id: Deployment(
            model=entry.point.subject,
            gpus={frozenset({"cuda"}): 1, frozenset({"cpu"}): 0}.get(frozenset(kinds)),
            gpus_source="a point runs on one device",
            gpu_names=tuple(names) if "cuda" in kinds else (),
            pricing=parts[entry.point.part]["cost"],
            slo={},
        )
        for entry in run.meta.plan
        if entry.point.kind == MODEL and parts[entry.point.part].get("cost")
    }


def model_costs(frame: pd.DataFrame, known: Mapping[str, Deployment]) -> CostColumns:
    """Costs of the ok rows of one phase; rows without a price in the scenario are left out."""
    found = {}
    for _, row in frame.iterrows():
        deployment = known.get(str(row["point_id"]))
        if deployment is None or row["outcome"] != Outcome.OK.value:
            continue
        rates = {_CLASS[str(row["phase"])]: TOKENS_PER_SECOND}
        found[str(row["point_id"])] = point_cost(row, deployment, rates)
    return CostColumns(found)
