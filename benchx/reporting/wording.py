"""Operators and axes in words: titles, axis labels, short forms of long values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchx.core.axes import parse_lengths
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


def short_lengths(text: str) -> str:
    """`1300+547+…` -> `6 mixed (8192)`: how many, and their sum; other texts stay as they are."""
    if len(text) <= _LONGEST_PLAIN or "+" not in text:
        return text
    try:
        lengths = parse_lengths(text)
    except ValueError:
        return text
    return f"{len(lengths)} mixed ({sum(lengths)})"


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
