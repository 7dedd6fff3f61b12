"""Numbers as people write them: `128k`, `0.5s`, `2GiB`, `1%`, read strictly and written back.

The rule for letters: a count of tokens, heads or requests is binary (`k` = 1024, `M` = 1024^2,
`G` = 1024^3), since a 128k context is 131072 tokens and a 1M context 1048576. Sizes in bytes follow
IEC and SI: `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024, `kB`, `MB`, `GB`, `TB` powers of 1000.
Times always carry a unit; `m` and `min` are minutes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

_COUNTS = {"": 1, "k": 1024, "K": 1024, "M": 1024**2, "G": 1024**3}
_SECONDS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
}
_BYTES = {
    "B": 1,
    "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip

COUNT_EXPECTED = "a whole number such as 8192, 128k (= 131072) or 1M"
DURATION_EXPECTED = "a time with its unit, such as 50ms, 0.5s, 15m or 2h"
BYTES_EXPECTED = "a size with its unit, such as 512B, 64KiB, 2GiB or 80GB"
SHARE_EXPECTED = "a share from 0 to 1, such as 0.5% or 0.005"

LARGEST_COUNT = 2**63 - 1
"""What an integer column of a result file holds."""

# Digits are bounded so that no text, however long, costs more than a few microseconds.
_QUANTITY = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?([A-Za-zµ%]{0,3})")


class UnitError(ValueError):
    """A text is not the quantity it should be.

    Args:
        value: What was given.
        expected: What would have been right.
    """

    def __init__(self, value: object, expected: str) -> None:
        self.value, self.expected = value, expected
        super().__init__(f"got {value!r}; expected {expected}")


def parse_count(value: str | int) -> int:
    """A count or length: `8192`, `128k`, `1.5M`, with binary letters (see the module).

    Raises:
        UnitError: When it is negative, not whole, not a number, or above 2^63 - 1.
    """
    if isinstance(value, bool):
        raise UnitError(value, COUNT_EXPECTED)
    whole = isinstance(value, int)
    count = Decimal(value) if whole else _quantity(str(value), _COUNTS, COUNT_EXPECTED)
    if count != count.to_integral_value() or not 0 <= count <= LARGEST_COUNT:
        raise UnitError(value, COUNT_EXPECTED)
    return int(count)


def parse_duration_s(value: str) -> float:
    """A time in seconds: `50ms`, `0.5s`, `15m`, `30min`, `2h`; a bare number is refused.

    Raises:
        UnitError: When it is not such a time.
    """
    return float(_quantity(value, _SECONDS, DURATION_EXPECTED))


def parse_bytes(value: str) -> int:
    """A size in bytes: `512B`, `64KiB`, `2GiB`, `80GB`; a bare number is refused.

    Raises:
        UnitError: When it is not such a size or not a whole number of bytes.
    """
    size = _quantity(value, _BYTES, BYTES_EXPECTED)
    if size != size.to_integral_value():
        raise UnitError(value, BYTES_EXPECTED)
    return int(size)


def parse_share(value: str | float) -> float:
    """A share of one: `0.5%` and `0.005` are the same.

    Raises:
        UnitError: When it is not a number or not within 0 to 1.
    """
    if isinstance(value, bool):
        raise UnitError(value, SHARE_EXPECTED)
    if isinstance(value, str):
        share = float(_quantity(value, {"": Decimal(1), "%": Decimal("0.01")}, SHARE_EXPECTED))
    else:
        share = float(value)
    if not 0 <= share <= 1:
        raise UnitError(value, SHARE_EXPECTED)
    return share


def format_count(count: int) -> str:
    """The shortest exact text of a count: 131072 is `128k`, 1048576 is `1M`, 1000 is `1000`."""
    for letter in ("G", "M", "k"):
        if count and count % _COUNTS[letter] == 0:
            return f"{count // _COUNTS[letter]}{letter}"
    return str(count)


def format_seconds(seconds: float) -> str:
    """A time for people, three digits: `1.42 ms`, `2.5 min`."""
    names = ("h", "min", "s", "ms", "us", "ns")
    return _scaled(seconds, {name: float(_SECONDS[name]) for name in names})


def format_bytes(size: float) -> str:
    """A size for people, three digits, powers of 1024: `2 GiB`."""
    names = ("TiB", "GiB", "MiB", "KiB", "B")
    return _scaled(size, {name: float(_BYTES[name]) for name in names})


def _quantity(value: str, units: Mapping[str, int | Decimal], expected: str) -> Decimal:
    """Number times unit, exact; raises UnitError."""
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2] not in units:
        raise UnitError(value, expected)
    return Decimal(found[1]) * units[found[2]]


def _scaled(value: float, units: Mapping[str, float]) -> str:
    """The value in the largest of the units (given largest first) that leaves it at least 1."""
    smallest = list(units)[-1]
    for name, factor in units.items():
        # Compared after rounding, so that 999.9 us reads `1 ms` and not `1e+03 us`.
        if float(f"{abs(value) / factor:.3g}") >= 1 or name == smallest:
            break
    return f"{_digits(value / factor)} {name}"


def _digits(value: float) -> str:
    """Three significant digits, never in exponent form, whole numbers kept whole."""
    rounded = f"{value:.3g}"
    return f"{float(rounded):.0f}" if "e+" in rounded else f"{Decimal(rounded):f}"
