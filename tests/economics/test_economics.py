"""Prices and costs: what is unknown gives no number, and each number names its source."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.errors import BenchxError, ScenarioError, UsageError
from benchx.economics.catalogue import (
    Price,
    Prices,
    hardware_named,
    hardware_of_device,
    hardware_table,
)
from benchx.economics.formulas import FORMULAS, costs, gpu_hour

PRICE = Price(
    hardware="h200",
    tier="rental",
    per_gpu_hour=3.6,
    currency="USD",
    date="2026-07",
    source="a test",
)
positive = st.floats(min_value=1e-3, max_value=1e9)


def test_a_million_tokens_cost_the_hour_over_the_tokens_of_an_hour() -> None:
    assert gpu_hour(PRICE, 1000.0) == pytest.approx(1.0)
    # A published point: DeepSeek V4 on GB200, 32.8 tok/s per GPU, printed as 18.72 USD (2.21/h).
    owned = PRICE.model_copy(update={"per_gpu_hour": 2.21})
    assert gpu_hour(owned, 32.8) == pytest.approx(18.72, abs=0.01)


@given(tok_s=positive, factor=st.floats(1.1, 100))
def test_twice_the_throughput_is_half_the_cost(tok_s: float, factor: float) -> None:
    one, other = gpu_hour(PRICE, tok_s), gpu_hour(PRICE, tok_s * factor)
    assert one is not None
    assert other is not None
    assert one / other == pytest.approx(factor)


@given(tok_s=positive, gpus=st.integers(1, 512))
def test_all_gpus_of_the_deployment_are_charged(tok_s: float, gpus: int) -> None:
    whole = costs(PRICE, {"output": tok_s}, gpus=gpus)["output"].per_million
    alone = costs(PRICE, {"output": tok_s}, gpus=1)["output"].per_million
    assert whole == pytest.approx(alone * gpus)


@pytest.mark.parametrize("tok_s", [0.0, -1.0, math.nan, math.inf, None])
def test_without_tokens_there_is_no_cost(tok_s: float | None) -> None:
    assert costs(PRICE, {"output": tok_s}, gpus=8) == {}


def test_an_unknown_price_or_gpu_count_gives_no_number() -> None:
    assert costs(None, {"output": 100.0}, gpus=8) == {}
    assert costs(PRICE, {"output": 100.0}, gpus=None) == {}
    assert costs(PRICE, {"output": 100.0}, gpus=0) == {}


def test_a_cost_names_its_formula_price_and_class() -> None:
    cost = costs(PRICE, {"uncached_input": 100.0}, gpus=8)["uncached_input"]
    assert cost.label == "USD/M uncached input tokens (gpu_hour, rental 2026-07)"
    assert cost.price.source == "a test"


def test_an_unknown_formula_or_class_is_an_error() -> None:
    with pytest.raises(UsageError, match="did you mean 'gpu_hour'"):
        costs(PRICE, {}, gpus=1, formula="gpu_hours")
    with pytest.raises(ValueError, match="thoughts"):
        costs(PRICE, {"thoughts": 1.0}, gpus=1)
    assert "gpu_hour" in FORMULAS


def test_every_shipped_price_is_of_known_hardware_with_date_and_source() -> None:
    names = {entry.name for entry in hardware_table()}
    prices = Prices()
    for name in names:
        for tier in prices.tiers():
            price = prices.price(hardware_named(name), tier)
            assert price is None or (price.date and price.source and price.hardware == name)
    assert prices._entries
    assert {entry.hardware for entry in prices._entries} <= names


def test_no_price_is_listed_twice() -> None:
    keys = [(one.hardware, one.tier, one.date) for one in Prices()._entries]
    assert len(keys) == len(set(keys))


def test_the_newest_price_holds() -> None:
    price = Prices().price(hardware_named("h200"), "rental")
    assert price is not None
    assert (price.per_gpu_hour, price.date) == (2.90, "2026-07")


def test_hardware_without_a_price_has_none() -> None:
    assert Prices().price(hardware_named("tpu-v7"), "rental") is None
    assert Prices().price(None, "rental") is None


def test_an_unknown_tier_or_hardware_is_an_error_with_the_nearest_word() -> None:
    with pytest.raises(UsageError, match="did you mean 'rental'"):
        Prices().price(hardware_named("h200"), "rentel")
    with pytest.raises(UsageError, match="did you mean 'h200'"):
        hardware_named("h20")


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GB300", "gb300"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI355X", "mi355x"),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("Intel(R) Xeon(R) CPU", None),
    ],
)
def test_a_device_is_found_by_the_name_of_its_driver(device: str, name: str | None) -> None:
    found = hardware_of_device(device)
    assert (found.name if found else None) == name


def test_a_users_own_prices_replace_the_shipped_ones(tmp_path: Path) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text(
        "schema: 1\nprices:\n"
        "- {hardware: h200, tier: ours, per_gpu_hour: 0.5, currency: EUR, date: '2026',"
        " source: us}\n"
    )
    prices = Prices(own)
    assert prices.tiers() == ("ours",)
    price = prices.price(hardware_named("h200"), "ours")
    assert price is not None
    assert price.currency == "EUR"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("per_gpu_hour", "0"),
        ("currency", "dollars"),
        ("date", "last year"),
        ("date", "'2026-13'"),
        ("date", "'2026-02-30'"),
        ("source", "''"),
        ("hardware", "h2000"),
    ],
)
def test_a_price_without_value_currency_date_or_source_is_refused_with_its_line(
    tmp_path: Path, field: str, value: str
) -> None:
    entry = {
        "hardware": "h200", "tier": "ours", "per_gpu_hour": "0.5", "currency": "EUR",
        "date": "'2026'", "source": "us",
    } | {field: value}  # fmt: skip
    lines = "".join(f"    {key}: {text}\n" for key, text in entry.items())
    own = tmp_path / "prices.yaml"
    own.write_text(f"schema: 1\nprices:\n  -\n{lines}")
    with pytest.raises(ScenarioError) as caught:
        Prices(own)
    assert f"prices.0.{field}" in str(caught.value)
    assert f"prices.yaml:{4 + list(entry).index(field)}" in str(caught.value)


OWN = "{hardware: h200, tier: ours, per_gpu_hour: %s, currency: EUR, date: '2026', source: us}"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"schema: 1\nprices: []\n", "prices"),
        (f"schema: 1\nprices: [{OWN % 1}, {OWN % 2}]\n".encode(), "two prices of h200 ours 2026"),
    ],
)
def test_a_file_of_prices_that_can_not_be_is_refused(
    tmp_path: Path, content: bytes, words: str
) -> None:
    own = tmp_path / "prices.yaml"
    own.write_bytes(content)
    with pytest.raises(BenchxError, match=words):
        Prices(own)


def test_a_price_of_hardware_with_a_typo_names_the_nearest(tmp_path: Path) -> None:
    own = tmp_path / "prices.yaml"
    own.write_text("schema: 1\nprices:\n- " + OWN.replace("h200", "h2000") % 1)
    with pytest.raises(BenchxError, match="got 'h2000'; expected 'h200'"):
        Prices(own)
