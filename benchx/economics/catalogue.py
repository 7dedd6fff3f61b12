"""`hardware.yaml`, and `prices.yaml` or a user's own, checked as strictly as a scenario."""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from benchx.core.errors import BenchxError, Location, nearest_word, unknown_word
from benchx.core.units import UnitError
from benchx.scenario.reader import read_yaml
from benchx.scenario.schema import Settings, Slug, Word
from benchx.scenario.validation import validated

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise UnitError(text, f"a regular expression ({error})") from error
    return text


def _date(text: str) -> str:
    try:
        if not re.fullmatch(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?", text):
            raise ValueError
        date.fromisoformat(text + "-01" * (2 - text.count("-")))
    except ValueError:
        raise UnitError(text, "a year, month or day: 2026, 2026-07 or 2026-07-18") from None
    return text


def _known_hardware(name: str) -> str:
    """A price of what the hardware table lacks would never be found."""
    known = [entry.name for entry in hardware_table()]
    if name not in known:
        near = nearest_word(name, known)
        raise UnitError(name, f"{near!r}?" if near else f"one of {', '.join(known)}")
    return name


def _currency(text: str) -> str:
    if not re.fullmatch("[A-Z]{3}", text):
        raise UnitError(text, "three capital letters, such as USD")
    return text


class Hardware(Settings):
    """One kind of accelerator. None: not published, or not found.

    Attributes:
        name: As in scenarios.
        title: As in reports.
        vendor: Who makes it.
        match: Regular expression on the name that the driver reports.
        bf16_tflop_s, fp8_tflop_s, fp4_tflop_s: Dense peaks at boost clock.
        memory_gb: Memory, 1e9 bytes.
        bandwidth_tb_s: Of the memory.
        tdp_w: Largest board power.
        power_kw: What a data centre provisions per accelerator, all in.
        source: Where the figures are from.
        note: What a reader must know of them.
    """

    name: Slug
    title: Word
    vendor: Word
    match: Annotated[Word, AfterValidator(_pattern)]
    bf16_tflop_s: Positive | None = None
    fp8_tflop_s: Positive | None = None
    fp4_tflop_s: Positive | None = None
    memory_gb: Positive
    bandwidth_tb_s: Positive
    tdp_w: Positive | None = None
    power_kw: Positive | None = None
    source: Word
    note: Word | None = None


class Price(Settings):
    """What one accelerator costs for one hour.

    Attributes:
        hardware: Name in the hardware table.
        tier: Kind of price (`rental`, `on_demand`, ...).
        per_gpu_hour: The price; zero is no price.
        currency: ISO 4217.
        date: Year, month or day that it held.
        source: Who says so.
        note: What a reader must know of it.
    """

    hardware: Annotated[Slug, AfterValidator(_known_hardware)]
    tier: Word
    per_gpu_hour: Positive
    currency: Annotated[str, AfterValidator(_currency)]
    date: Annotated[str, AfterValidator(_date)]
    source: Word
    note: Word | None = None


class HardwareFile(Settings):
    """`hardware.yaml`."""

    schema_version: Literal[1] = Field(alias="schema")
    hardware: tuple[Hardware, ...]


class PriceFile(Settings):
    """`prices.yaml`."""

    schema_version: Literal[1] = Field(alias="schema")
    prices: tuple[Price, ...]

    @model_validator(mode="after")
    def _one_at_a_time(self) -> Self:
        if not self.prices:
            raise UnitError("no prices", "at least one")
        seen: set[tuple[str, str, str]] = set()
        for price in self.prices:
            key = (price.hardware, price.tier, price.date)
            if key in seen:
                raise UnitError(f"two prices of {' '.join(key)}", "one for a tier and date")
            seen.add(key)
        return self


@cache
def hardware_table() -> tuple[Hardware, ...]:
    """All accelerators that benchx knows, in the order of the file."""
    return validated(HardwareFile, read_yaml(*_shipped("hardware.yaml"))).hardware


def hardware_named(name: str) -> Hardware:
    """The entry of that name; raises UsageError with the nearest one."""
    known = {entry.name: entry for entry in hardware_table()}
    if name not in known:
        raise unknown_word("hardware", name, known)
    return known[name]


def hardware_of_device(device_name: str) -> Hardware | None:
    """The entry that matches a driver's name for a device; None when none does, or several do."""
    found = [entry for entry in hardware_table() if re.search(entry.match, device_name)]
    return found[0] if len(found) == 1 else None


class Prices:
    """A price table.

    Args:
        path: A user's own file; None: the one that ships with benchx.

    Raises:
        ScenarioError: The file is wrong, with its line.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._entries = _own(path) if path else _shipped_prices()

    def tiers(self) -> tuple[str, ...]:
        """All kinds of price in the table."""
        return tuple(dict.fromkeys(entry.tier for entry in self._entries))

    def price(self, hardware: Hardware | None, tier: str) -> Price | None:
        """The newest price, or None: no number is made up for what is not in the table.

        Raises:
            UsageError: No price of that tier is known for any hardware.
        """
        if tier not in self.tiers():
            raise unknown_word("price tier", tier, self.tiers())
        if hardware is None:
            return None
        fitting = [
            one for one in self._entries if (one.hardware, one.tier) == (hardware.name, tier)
        ]
        return max(fitting, key=lambda one: one.date, default=None)


def _shipped_prices() -> tuple[Price, ...]:
    return validated(PriceFile, read_yaml(*_shipped("prices.yaml"))).prices


def _own(path: Path) -> tuple[Price, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchxError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BenchxError(f"{path}: not UTF-8 text") from error
    return validated(PriceFile, read_yaml(text, Location(path))).prices


def _shipped(name: str) -> tuple[str, Location]:
    path = Path(str(files("benchx.economics"))) / name
    return path.read_text(encoding="utf-8"), Location(path)
