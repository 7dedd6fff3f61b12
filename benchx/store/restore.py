"""Documents of a run folder -> values, or one sentence that names the file and the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import JSONDecodeError
from typing import Any, TypeVar

from benchx.core.errors import StoreError
from benchx.store.migrations import Kind, migrate

CHANGED = "the file was changed by something else; restore it, or start a new run"
"""What to do about a file that benchx can't have written so."""


ValueT = TypeVar("ValueT")


def read_document(
    document: object, kind: Kind, build: Callable[[Mapping[str, Any]], ValueT], *, where: str
) -> ValueT:
    """The value that a document holds, in the present form.

    Args:
        document: What JSON gave.
        kind: What it is called in messages.
        build: Makes it; a ValueError says what is wrong with the data.
        where: The file, with its line if it has several documents.

    Raises:
        StoreError: When it is newer than this benchx, or not what the dataclass says.
    """
    try:
        if not isinstance(document, dict):
            raise ValueError(f"it holds {_shown(document)} in the place of a mapping")
        return build(migrate(document, kind, where=where))
    except ValueError as error:
        raise StoreError(f"{where}: not a {kind}: {told(error)}", hint=CHANGED) from error


def told(error: Exception) -> str:
    """What is wrong with a document, without Python's words for it."""
    if isinstance(error, JSONDecodeError):
        place = f"line {error.lineno}, column {error.colno}"
        return f"not JSON at {place}: {error.msg}" if error.doc.strip() else "it is empty"
    if isinstance(error, UnicodeDecodeError | RecursionError):
        return "it is not text" if isinstance(error, UnicodeError) else "it nests too deep"
    if isinstance(error, ValueError):
        return str(error)
    return "a field is missing, or holds a value of another kind than it should"


def _shown(document: object) -> str:
    if isinstance(document, list):
        return "a list"
    return "null" if document is None else f"{document!r:.40}"
