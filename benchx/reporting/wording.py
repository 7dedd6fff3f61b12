"""Operators and axes in words: titles, axis labels, short forms of long values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchx.core.axes import parse_lengths
from benchx.core.units import format_bytes, format_count, parse_bytes
from benchx.reporting.numbers import ABSENT

_ACRONYMS = {"kda": "KDA", "mla": "MLA", "kv": "KV"}

_AXIS_LABELS: Mapping[str, str] = {
    "seqlens": "sequence length, tokens",
    "context": "context (cached tokens per sequence)",
    "batch": "batch, sequences",
    "tokens": "query tokens per sequence",
    "prefix": "prefix (cached tokens before each sequence)",
}

_SHORT_NAMES: Mapping[str, str] = {"heads": "H", "batch": "B"}

_LENGTHS = frozenset(
    ("seqlens", "context", "prefix", "tokens", "chunk", "input_len", "output_len", "max_model_len")
)
"""Axes that count tokens of a sequence; kernel, model and serving levels share the names."""

_LONGEST_PLAIN = 14


def title_of(op: str) -> str:
    """`kda_prefill` -> `KDA prefill`."""
    words = [_ACRONYMS.get(word, word) for word in op.split("_")]
    text = " ".join(words)
    return text[:1].upper() + text[1:]


def axis_label(axis: str) -> str:
    """What a chart's axis says, unit included where the axis has one."""
    return _AXIS_LABELS.get(axis, axis.replace("_", " "))


def value_text(value: object) -> str:
    """An axis value as printed; long lists of lengths are shortened, see `short_lengths`."""
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return short_lengths(value) if isinstance(value, str) else str(value)


def axis_text(axis: str, value: object) -> str:
    """A value of an axis as tables print it: sizes as `16 KiB`, lengths as `128k` or `8x1k`.

    Long lists of lengths are shortened, see `short_lengths`.
    """
    full, short = plain_text(value), value_text(value)
    return _with_letters(axis, value) if short == full else short


def _with_letters(axis: str, value: object) -> str:
    """Every part of the value, with letters where the axis has a unit."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value == int(value):
        if axis.endswith("_bytes"):
            return _size_text(int(value))
        return format_count(int(value)) if axis in _LENGTHS else value_text(value)
    text = plain_text(value) or ABSENT
    if axis in _LENGTHS and isinstance(value, str):
        return re.sub(r"\d+(?!x|\d)", lambda found: format_count(int(found[0])), text)
    return text


def _size_text(size: int) -> str:
    """`16 KiB`; in full where three digits are not exact, so that two sizes stay apart."""
    text = format_bytes(size)
    return text if parse_bytes(text) == size else f"{size} B"


def axis_texts(axis: str, values: Sequence[Any]) -> dict[str, str]:
    """Value (as `plain_text`) -> what a table prints for it; different values stay apart."""
    texts = distinct_texts(values)
    plain = {plain_text(value): value for value in values}
    return texts | {
        full: _with_letters(axis, plain[full]) for full, short in texts.items() if short == full
    }


def fixed_texts(axes: Mapping[str, Any]) -> list[str]:
    """`heads 96` for each axis of one value, for captions; empty values are left out."""
    printed = {axis: axis_text(axis, value) for axis, value in axes.items()}
    return [f"{axis} {text}" for axis, text in printed.items() if text != ABSENT]


def short_lengths(text: str) -> str:
    """`1300+547+…` -> `6 mixed (8k)`: how many, and their sum; other texts stay as they are."""
    if len(text) <= _LONGEST_PLAIN or "+" not in text:
        return text
    try:
        lengths = parse_lengths(text)
    except ValueError:
        return text
    return f"{len(lengths)} mixed ({format_count(sum(lengths))})"


def shortened(values: Sequence[Any]) -> dict[str, str]:
    """Short form -> full text, for the values that `value_text` shortens.

    Two lists that would share a short form are both left out of it: see `distinct_texts`.
    """
    texts = distinct_texts(values)
    return {short: full for full, short in texts.items() if short != full}


def distinct_texts(values: Sequence[Any]) -> dict[str, str]:
    """Value (as text) -> printed text; a short form that is not unique is replaced by the full."""
    full = list(dict.fromkeys(plain_text(value) for value in values))
    short = [short_lengths(text) for text in full]
    return {
        text: brief if short.count(brief) == 1 else text
        for text, brief in zip(full, short, strict=True)
    }


def plain_text(value: object) -> str:
    """An axis value in full."""
    return value if isinstance(value, str) else value_text(value)


def category_text(values: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """One line for a combination of axis values: `H96  8192`, `B128  ctx 8192`.

    Args:
        values: Axis -> value, in the order to print.
        texts: Full text -> printed text of long values (from `distinct_texts`).
    """
    words = []
    for axis, value in values.items():
        text = texts.get(plain_text(value), plain_text(value))
        if axis in _SHORT_NAMES:
            words.append(f"{_SHORT_NAMES[axis]}{text}")
        elif axis == "seqlens":
            words.append(f"{text} tokens" if len(values) == 1 else text)
        else:
            words.append(f"{axis} {text}")
    return "  ".join(words)


def tokens_text(count: float) -> str:
    """A token count on a chart's axis: `8192` -> `8k` (k = 1024), others in full."""
    whole = int(count)
    if whole >= 1024**2 and whole % 1024**2 == 0:
        return f"{whole // 1024**2}M"
    if whole >= 1024 and whole % 1024 == 0:
        return f"{whole // 1024}k"
    return str(whole)
