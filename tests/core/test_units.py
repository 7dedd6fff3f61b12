"""Units: what people write is read strictly, and what is written for people reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.units import (
    LARGEST_COUNT,
    UnitError,
    format_bytes,
    format_count,
    format_seconds,
    parse_bytes,
    parse_count,
    parse_duration_s,
    parse_share,
)

PARSERS = (parse_count, parse_duration_s, parse_bytes, parse_share)


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("8192", 8192), ("128k", 131072), ("1M", 1048576), ("1.5k", 1536), (7, 7)],
)
def test_letters_of_counts_are_binary(text: str | int, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("value", ["0.3k", "-1", "1e3", "1_000", "0x10", "8 kk", "", "k", -1, True])
def test_what_is_no_whole_count_is_refused(value: str | int) -> None:
    with pytest.raises(UnitError, match="expected a whole number"):
        parse_count(value)


def test_a_count_that_no_column_holds_is_refused() -> None:
    assert parse_count(LARGEST_COUNT) == LARGEST_COUNT
    with pytest.raises(UnitError):
        parse_count(LARGEST_COUNT + 1)
    with pytest.raises(UnitError):
        parse_count("99999999999G")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50ms", 0.05),
        ("0.5s", 0.5),
        ("15m", 900.0),
        ("30min", 1800.0),
        ("2h", 7200.0),
        ("3 us", 3e-06),
        ("3µs", 3e-06),
        ("7ns", 7e-09),
    ],
)
def test_times_carry_units_and_m_is_minutes(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("value", ["15", "1M", "15 parsecs", "-1s", "1m30s", "s", "", "1e3s"])
def test_a_time_without_its_unit_is_refused(value: str) -> None:
    with pytest.raises(UnitError, match="expected a time with its unit"):
        parse_duration_s(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512B", 512), ("64KiB", 65536), ("2GiB", 2 * 2**30), ("80GB", 80 * 10**9), ("1.5kB", 1500)],
)
def test_byte_prefixes_with_i_are_binary_and_others_decimal(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("value", ["64", "1.5B", "1K", "2gib", "1KB"])
def test_a_size_without_a_clear_unit_is_refused(value: str) -> None:
    with pytest.raises(UnitError, match="expected a size with its unit"):
        parse_bytes(value)


@pytest.mark.parametrize(
    ("value", "share"), [("1%", 0.01), ("0.5%", 0.005), (0.005, 0.005), ("0.2", 0.2), (1, 1.0)]
)
def test_a_share_is_a_percentage_or_a_number_up_to_one(value: str | float, share: float) -> None:
    assert parse_share(value) == share


@pytest.mark.parametrize("value", ["101%", 1.5, -0.1, float("nan"), float("inf"), True, "half"])
def test_what_is_no_share_is_refused(value: str | float) -> None:
    with pytest.raises(UnitError, match="expected a share from 0 to 1"):
        parse_share(value)


def test_an_error_says_the_value_and_the_expectation() -> None:
    with pytest.raises(UnitError) as caught:
        parse_duration_s("15")
    assert caught.value.value == "15"
    assert str(caught.value).startswith("got '15'; expected a time with its unit, such as 50ms")


@given(st.text(max_size=200))
def test_no_text_makes_a_parser_fail_otherwise(text: str) -> None:
    for parse in PARSERS:
        try:
            value = parse(text)
        except UnitError:
            continue
        assert value >= 0


@pytest.mark.parametrize("parse", PARSERS)
def test_long_texts_are_refused_at_once(parse: object) -> None:
    with pytest.raises(UnitError):
        parse("9" * 1_000_000)  # type: ignore[operator]


@given(st.integers(0, LARGEST_COUNT))
def test_a_formatted_count_reads_back_exactly(count: int) -> None:
    assert parse_count(format_count(count)) == count


@given(st.floats(1e-9, 1e6))
def test_a_formatted_time_reads_back_to_three_digits(seconds: float) -> None:
    assert parse_duration_s(format_seconds(seconds)) == pytest.approx(seconds, rel=6e-3)


@given(st.integers(1, 2**50))
def test_a_formatted_size_is_within_three_digits(size: int) -> None:
    number, unit = format_bytes(size).split()
    assert float(number) * parse_bytes(f"1{unit}") == pytest.approx(size, rel=6e-3)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ns"),
        (0.00142, "1.42 ms"),
        (0.0009999, "1 ms"),
        (150, "2.5 min"),
        (59.99, "1 min"),
        (36000000, "10000 h"),
        (-0.002, "-2 ms"),
    ],
)
def test_times_for_people_have_three_digits_and_no_exponent(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_other_quantities_for_people() -> None:
    assert [format_count(n) for n in (0, 1000, 1024, 131072, 1048576)] == [
        "0", "1000", "1k", "128k", "1M",
    ]  # fmt: skip
    assert [format_bytes(n) for n in (0, 512, 1536, 2**31)] == ["0 B", "512 B", "1.5 KiB", "2 GiB"]
