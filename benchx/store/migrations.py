"""Forward migrations: what an older benchx wrote, read as if this one had written it.

A change of the stored form raises `core.record.SCHEMA` and adds one function per kind of document
to the table: it takes the document of version n and returns that of version n + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from benchx.core.errors import StoreError
from benchx.core.record import SCHEMA

Document = dict[str, Any]
Kind = Literal["run", "extension", "launch", "record"]
Table = Mapping[tuple[Kind, int], Callable[[Document], Document]]

MIGRATIONS: Table = {}
"""(kind of document, version it has) -> the function that makes it one version newer."""


def migrate(
    document: Document, kind: Kind, *, where: str, table: Table = MIGRATIONS, target: int = SCHEMA
) -> Document:
    """The document in the present form.

    Raises:
        StoreError: When it is newer than this benchx, too old, or bears no version.
    """
    version = document.get("schema")
    if not isinstance(version, int):
        raise StoreError(f"{where}: no schema version; this is not a benchx {kind}")
    if version > target:
        raise StoreError(
            f"{where}: schema {version} is newer than this benchx, which reads {target}",
            hint="upgrade benchx",
        )
    while version < target:
        step = table.get((kind, version))
        if step is None:
            raise StoreError(f"{where}: schema {version} is too old; no migration to {target}")
        version += 1
        document = step(document) | {"schema": version}
    return document
