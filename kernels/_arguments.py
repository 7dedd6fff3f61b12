"""Checks of arguments that are no tensors: a ValueError that names the argument, in nanoseconds."""

from __future__ import annotations

from typing import Any

import torch


def check_kind(name: str, value: object, kind: type) -> None:
    """Raise ValueError unless `value` is a `kind`."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} is {_said(value)}; expected a {kind.__name__}")


def check_flag(name: str, value: object) -> None:
    """Raise ValueError unless `value` is True or False."""
    if value is not True and value is not False:
        raise ValueError(f"{name} is {_said(value)}; expected True or False")


def number(name: str, value: Any) -> float:  # noqa: ANN401 - what it is, is the question
    """`value` as a float; ValueError for anything but an int or a float."""
    if type(value) is float:  # nearly always, and quicker than asking for both
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {_said(value)}; expected a number")
    return float(value)


def check_whole(name: str, value: object) -> None:
    """Raise ValueError unless `value` is an int from 0."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {_said(value)}; expected a whole number from 0")


def check_current(device: torch.device) -> None:
    """Raise ValueError where a launch would go to another GPU than the one that holds the tensors.

    Triton launches on the current device, whose kernels may not read another's memory.
    """
    if device.type != "cuda":
        return
    current = torch.cuda.current_device()
    if device.index != current:
        raise ValueError(
            f"q is on {device}, and the current device is cuda:{current}; "
            f"call it within torch.cuda.device({device.index})"
        )


def check_range(owner: object, low: int, high: int, *names: str) -> None:
    """Raise ValueError unless these fields of `owner` are ints from `low` to `high`."""
    for name in names:
        value = getattr(owner, name)
        if type(value) is not int or not low <= value <= high:
            expected = f"a whole number from {low} to {high}"
            raise ValueError(f"{type(owner).__name__}.{name} is {value!r}; expected {expected}")


def check_power(owner: object, low: int, high: int, *names: str) -> None:
    """Raise ValueError unless these fields of `owner` are powers of two from `low` to `high`."""
    for name in names:
        value = getattr(owner, name)
        if type(value) is not int or not low <= value <= high or value & (value - 1):
            expected = f"a power of two from {low} to {high}"
            raise ValueError(f"{type(owner).__name__}.{name} is {value!r}; expected {expected}")


def check_word(owner: object, name: str, words: tuple[str, ...]) -> None:
    """Raise ValueError unless this field of `owner` is one of `words`."""
    value = getattr(owner, name)
    if value not in words:
        expected = f"one of {', '.join(words)}"
        raise ValueError(f"{type(owner).__name__}.{name} is {value!r}; expected {expected}")


def _said(value: object) -> str:
    return repr(value) if value is None or isinstance(value, int | float) else f"{value!r:.40}"
