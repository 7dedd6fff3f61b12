"""A Hugging Face `config.json` as look-ups that name file, key and value where they refuse."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchx.core.errors import BenchxError


class ConfigError(BenchxError):
    """A config.json that does not describe a model that is understood.

    Args:
        path: The file.
        problem: Key, what was got, what was expected.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(
            f"{path}: {problem}",
            hint="complete the file, or write a descriptor (see the shipped architectures)",
        )


@dataclass(frozen=True)
class Config:
    """The language model's part of a config, with look-ups that name what is missing.

    Attributes:
        data: Keys of this part.
        path: The file.
        whole: Keys of the whole file, some of which speak for all its parts.
        prefix: Where this part is in it: `text_config.`.
    """

    data: Mapping[str, Any]
    path: Path
    whole: Mapping[str, Any]
    prefix: str = ""

    def size(self, *names: str) -> int:
        """A whole number of at least 0 under one of several names; required."""
        value = self.optional_size(*names)
        if value is None:
            also = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            raise self.wrong(f"{self.prefix}{names[0]}{also} is missing; expected a whole number")
        return value

    def optional_size(self, *names: str) -> int | None:
        """The same, None where none of the names is there; names that differ are refused."""
        found = {name: self.data[name] for name in names if self.data.get(name) is not None}
        for name, value in found.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise self.wrong(f"{self.prefix}{name} is {value!r}; expected a whole number")
        if len(set(found.values())) > 1:
            told = " and ".join(f"{self.prefix}{name} {value}" for name, value in found.items())
            raise self.wrong(f"{told} contradict each other")
        return next(iter(found.values()), None)

    def flag(self, name: str) -> bool:
        """True or false, of this part or else of the whole file; absent is false."""
        value = self.shared(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.wrong(f"{self.prefix}{name} is {value!r}; expected true or false")
        return value

    def number(self, name: str, absent: float) -> float:
        """A number above 0."""
        value = self.data.get(name)
        if value is None:
            return absent
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise self.wrong(f"{self.prefix}{name} is {value!r}; expected a number above 0")
        return float(value)

    def negative(self, name: str) -> float | None:
        """A finite number below 0; None where it is absent."""
        value = self.data.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and -math.inf < value < 0):
            raise self.wrong(f"{self.prefix}{name} is {value!r}; expected a number below 0")
        return None if value is None else float(value)

    def shared(self, name: str) -> object:
        """A value that may stand here or at the top of the file; None where it is in neither."""
        value = self.data.get(name)
        return self.whole.get(name) if value is None else value

    def word(self, choices: Sequence[str], absent: str, *names: str) -> str:
        """One of `choices` under one of several names."""
        for name in names:
            value = self.data.get(name)
            if value is not None and value not in choices:
                known = " or ".join(choices)
                raise self.wrong(f"{self.prefix}{name} is {value!r}; expected {known}")
            if value is not None:
                return str(value)
        return absent

    def layers(self, name: str) -> tuple[int, ...]:
        """A list of layer numbers; required."""
        value = self.data.get(name)
        if not isinstance(value, Sequence) or not all(type(item) is int for item in value):
            raise self.wrong(f"{self.prefix}{name} is {value!r}; expected a list of layer numbers")
        return tuple(value)

    def words(self, name: str, known: Sequence[str]) -> tuple[str, ...]:
        """One of the known words for each layer; required."""
        value, layers = self.data.get(name), self.size("num_hidden_layers")
        listed = value if isinstance(value, list) else []
        if len(listed) != layers or not all(word in known for word in listed):
            raise self.wrong(
                f"{self.prefix}{name} is {value!r}; expected {layers} of {', '.join(known)}"
            )
        return tuple(listed)

    def part(self, name: str) -> Config:
        """A nested mapping; required."""
        value = self.data.get(name)
        if not isinstance(value, Mapping):
            found = "missing" if value is None else repr(value)
            raise self.wrong(f"{self.prefix}{name} is {found}; expected a mapping")
        return Config(value, self.path, self.whole, f"{self.prefix}{name}.")

    def wrong(self, problem: str) -> ConfigError:
        """The error to raise."""
        return ConfigError(self.path, problem)


def language_model(text: str, path: Path) -> Config:
    """The part of a config.json that describes its language model: `text_config`, or all of it.

    Raises:
        ConfigError: Not JSON, or no mapping.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(path, f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(path, f"a {type(data).__name__}; expected a mapping")
    config = Config(data, path, data)
    return config if data.get("text_config") is None else config.part("text_config")
