"""`benchx list`: the names that a scenario may use, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from benchx.cli.arguments import AsJson
from benchx.cli.labels import yaml_word
from benchx.cli.terminal import print_json, print_rows, stdout
from benchx.core.axes import Scalar


class Kind(StrEnum):
    """What can be listed."""

    SCENARIOS = "scenarios"
    OPS = "ops"
    BACKENDS = "backends"
    ENGINES = "engines"
    METRICS = "metrics"
    HARDWARE = "hardware"
    ARCHITECTURES = "architectures"


Entries = list[dict[str, Any]]
"""Plain data, one mapping per entry; what `--json` prints."""


def list_(
    kind: Annotated[Kind, typer.Argument(metavar="WHAT", help="What to list.")],
    *,
    as_json: AsJson = False,
) -> None:
    """List scenarios, operators, backends, engines, metrics and more.

    These are the names that a scenario or `benchx kv` may use.
    """
    entries = ENTRIES[kind]()
    if as_json:
        print_json(entries)
    else:
        print_rows(stdout(), _rows(kind, entries))


def _rows(kind: Kind, entries: Entries) -> Entries:
    """What the table shows of the entries; axes and prices take a row each."""
    shown = {
        Kind.OPS: _op_rows,
        Kind.ENGINES: _engine_rows,
        Kind.METRICS: _metric_rows,
        Kind.HARDWARE: _hardware_rows,
    }
    return shown[kind](entries) if kind in shown else entries


def _engine_rows(entries: Entries) -> Entries:
    return [entry | {"here": "yes" if entry["here"] else "no"} for entry in entries]


def _metric_rows(entries: Entries) -> Entries:
    """Without the lists that a formula says as well."""
    left_out = ("derived_from", "primary_at")
    return [{key: entry[key] for key in entry if key not in left_out} for entry in entries]


def _hardware_rows(entries: Entries) -> Entries:
    rows = []
    for entry in entries:
        facts = {
            "hardware": entry["hardware"],
            "title": entry["title"],
            "BF16 TFLOP/s": entry["bf16_tflop_s"],
            "memory GB": entry["memory_gb"],
            "TB/s": entry["bandwidth_tb_s"],
        }
        blank = dict.fromkeys(facts)
        prices = [
            {
                "tier": price["tier"],
                "price of one": f"{price['per_gpu_hour']:g} {price['currency']}/h",
                "dated": price["date"],
            }
            for price in entry["prices"]
        ]
        unknown = {"tier": "none known", "price of one": None, "dated": None}
        rows += [
            (blank if number else facts) | price for number, price in enumerate(prices or [unknown])
        ]
    return rows


def _op_rows(entries: Entries) -> Entries:
    return [
        {
            "op": op["name"] if number == 0 else "",
            "axis": axis["name"],
            "type": axis["type"],
            "default": _default(axis["default"]),
            "meaning": axis["meaning"] + _limits(axis),
        }
        for op in entries
        for number, axis in enumerate(op["axes"])
    ]


def _default(value: Scalar | None) -> str:
    return "(required)" if value is None else yaml_word(value)


def _limits(axis: Mapping[str, Any]) -> str:
    choices = axis["choices"]
    return f" ({', '.join(map(str, choices))})" if choices else ""


def _scenarios() -> Entries:
    from benchx import scenario

    return [_scenario(name) for name in scenario.shipped()]


def _scenario(name: str) -> dict[str, Any]:
    from benchx import scenario
    from benchx.cli.words import vocabulary

    loaded = scenario.load(name)
    points = scenario.expand(loaded, vocabulary())
    return {
        "scenario": name,
        "level": sorted({part.kind for part in loaded.parts}),
        "points": len(points),
        "question": loaded.title,
    }


def _ops() -> Entries:
    from benchx.ops.base import OPERATORS
    from benchx.ops.vocabulary import kernel_words

    words = kernel_words()
    return [
        {
            "name": op.name,
            "title": op.title,
            "backends": list(words[op.name].backends),
            "axes": [
                {
                    "name": name,
                    "type": spec.type,
                    "default": spec.default,
                    "choices": list(spec.choices),
                    "minimum": spec.minimum,
                    "meaning": spec.doc,
                }
                for name, spec in op.axes.items()
            ],
        }
        for op in OPERATORS
    ]


def _backends() -> Entries:
    from benchx.ops.vocabulary import kernel_words

    operators: dict[str, list[str]] = {}
    for op, words in kernel_words().items():
        for backend in words.backends:
            operators.setdefault(backend, []).append(op)
    return [{"backend": name, "ops": ops} for name, ops in operators.items()]


def _metrics() -> Entries:
    from benchx.core.metric import METRICS

    return [
        {
            "metric": metric.id,
            "unit": metric.unit,
            "better": metric.direction.value,
            "role": metric.role.value,
            "derived_from": list(metric.derived_from),
            "primary_at": list(metric.primary_at),
            "levels": list(metric.levels),
            "formula": metric.formula,
        }
        for metric in METRICS
    ]


def _engines() -> Entries:
    from benchx.serving.engines.base import EngineSettings
    from benchx.serving.engines.catalog import ENGINES

    found = []
    for engine in ENGINES:
        missing = engine.missing(EngineSettings(name=engine.name, model="tiny"))
        found.append(
            {
                "engine": engine.name,
                "title": engine.title,
                "here": missing is None,
                "install": missing.install if missing else None,
            }
        )
    return found


def _architectures() -> Entries:
    from benchx.architectures import load_architecture, shipped_architectures
    from benchx.architectures.cache import (
        CacheFormat,
        cache_bytes_per_token,
        state_bytes_per_sequence,
    )
    from benchx.architectures.parameters import parameters

    found = []
    for name in shipped_architectures():
        arch, form = load_architecture(name), CacheFormat()
        counted = parameters(arch)
        found.append(
            {
                "architecture": name,
                "layers": [f"{arch.kinds.count(k)} {k}" for k in dict.fromkeys(arch.kinds)],
                "total_parameters": counted.total,
                "active_parameters": counted.active,
                "cache_bytes_per_token": cache_bytes_per_token(arch, form),
                "state_bytes": state_bytes_per_sequence(arch, form),
                "max_context": arch.max_context,
                "unconfirmed": list(arch.unconfirmed),
            }
        )
    return found


def _hardware() -> Entries:
    from benchx.economics.catalogue import Prices, hardware_table

    prices = Prices()
    return [
        {
            "hardware": entry.name,
            "title": entry.title,
            "bf16_tflop_s": entry.bf16_tflop_s,
            "memory_gb": entry.memory_gb,
            "bandwidth_tb_s": entry.bandwidth_tb_s,
            "prices": [
                {
                    "tier": tier,
                    "per_gpu_hour": price.per_gpu_hour,
                    "currency": price.currency,
                    "date": str(price.date),
                }
                for tier in prices.tiers()
                if (price := prices.price(entry, tier))
            ],
        }
        for entry in hardware_table()
    ]


ENTRIES: Mapping[Kind, Callable[[], Entries]] = {
    Kind.SCENARIOS: _scenarios,
    Kind.OPS: _ops,
    Kind.BACKENDS: _backends,
    Kind.ENGINES: _engines,
    Kind.METRICS: _metrics,
    Kind.HARDWARE: _hardware,
    Kind.ARCHITECTURES: _architectures,
}
