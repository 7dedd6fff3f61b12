"""Descriptors by name, from a YAML file, or from a Hugging Face `config.json`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from benchx.architectures.descriptor import Architecture
from benchx.core.errors import BenchxError, Location, unknown_word

MAX_BYTES = 4 * 2**20
"""A config is a few kilobytes; more is some other file."""


def shipped_architectures() -> tuple[str, ...]:
    """Names of the descriptors that come with benchx, sorted."""
    return tuple(sorted(_shipped()))


def load_architecture(name_or_path: str) -> Architecture:
    """A shipped descriptor by its name, or one read from a `.yaml` or `.json` file.

    A `.json` file is a Hugging Face `config.json`; a folder stands for the one in it.

    Raises:
        UsageError: An unknown name, with the nearest known one.
        BenchxError: A file that can't be read, or does not describe a model that is understood.
    """
    shipped = _shipped()
    if name_or_path in shipped:
        return _from_yaml(shipped[name_or_path])
    path = Path(name_or_path)
    path = path / "config.json" if path.is_dir() else path
    if path.suffix in (".yaml", ".yml"):
        return _from_yaml(path)
    if path.suffix == ".json":
        from benchx.architectures.huggingface import from_config

        return from_config(_text(path), path)
    hint = "a .yaml descriptor or a Hugging Face config.json works as well"
    raise unknown_word("architecture", name_or_path, sorted(shipped), hint=hint)


def _shipped() -> dict[str, Path]:
    folder = Path(str(files("benchx.architectures")))
    return {path.stem: path for path in folder.glob("*.yaml")}


def _from_yaml(path: Path) -> Architecture:
    from benchx.scenario.reader import read_yaml
    from benchx.scenario.validation import validated

    return validated(Architecture, read_yaml(_text(path), Location(path)))


def _text(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise BenchxError(f"{path}: {size} bytes; a description of a model has a few thousand")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchxError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BenchxError(f"{path}: not UTF-8 text") from error
