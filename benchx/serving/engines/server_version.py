"""The version of a server, by its own word: where its package can't be asked."""

from __future__ import annotations

from collections.abc import Sequence

from benchx.serving.engines.readiness import root_url
from benchx.serving.exchange import get
from benchx.serving.request import Endpoint

_LIMIT_S = 5.0
_MOST_BYTES = 2**20
_MOST_LETTERS = 60


def told_version(
    endpoint: Endpoint, paths: Sequence[str], distributions: Sequence[str]
) -> str | None:
    """`vllm 0.26.0`, or `server 0.26.0` of one that is of no known package; None if none is told.

    Args:
        endpoint: Of the server, which is ready.
        paths: Where to ask, from its root; each answers with a JSON object that holds `version`.
        distributions: Packages of which the server is one.
    """
    for path in paths:
        answer = get(
            root_url(endpoint.base_url, path),
            timeout_s=_LIMIT_S,
            endpoint=endpoint,
            most_bytes=_MOST_BYTES,
        )
        told = answer.json() if answer.ok else None
        version = told.get("version") if isinstance(told, dict) else None
        if isinstance(version, str) and version.isprintable() and 0 < len(version) <= _MOST_LETTERS:
            return f"{distributions[0] if distributions else 'server'} {version}"
    return None
