"""One HTTP exchange, blocking, kept byte for byte with the arrival of every piece.

For what is not load: readiness, `benchx probe`, server metrics. Load goes through the client.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from benchx.serving.http_wire import Address, json_body, with_own_headers
from benchx.serving.request import Endpoint

MAX_BODY_BYTES = 64 * 1024**2
"""A response that goes on beyond this is cut and says so."""

_PIECE_BYTES = 65536


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What a server answered.

    Attributes:
        status: HTTP status; None when no response began.
        headers: Response headers, names in lower case.
        pieces: (seconds after sending, bytes) of every read of the body.
        error: Why the exchange ended early, or None.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[tuple[float, bytes], ...] = ()
    error: str | None = None

    @property
    def body(self) -> bytes:
        """The body, joined."""
        return b"".join(piece for _, piece in self.pieces)

    @property
    def ok(self) -> bool:
        """Whether it is a complete 200."""
        return self.status == 200 and self.error is None

    def json(self) -> Any:  # noqa: ANN401 - whatever the server sent
        """The body as JSON, or None when it is none."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None

    def summary(self) -> str:
        """Status, error and the start of the body in one line, for messages."""
        text = " ".join(self.body[:200].decode(errors="replace").split())
        words = [f"HTTP {self.status}" if self.status else "", self.error or "", text]
        return ", ".join(word for word in words if word) or "no answer"


def get(
    url: str, *, timeout_s: float, endpoint: Endpoint | None = None, most_bytes: int | None = None
) -> Exchange:
    """GET a URL, with the secrets and TLS settings of `endpoint` when given."""
    return _exchange(
        "GET", url, None, timeout_s=timeout_s, endpoint=endpoint, most_bytes=most_bytes
    )


def post(
    url: str, body: Mapping[str, Any], *, timeout_s: float, endpoint: Endpoint | None = None
) -> Exchange:
    """POST a JSON body; the answer may be a stream and is read to its end."""
    return _exchange("POST", url, body, timeout_s=timeout_s, endpoint=endpoint, most_bytes=None)


def _exchange(
    method: str,
    url: str,
    body: Mapping[str, Any] | None,
    *,
    timeout_s: float,
    endpoint: Endpoint | None,
    most_bytes: int | None,
) -> Exchange:
    deadline = time.monotonic() + timeout_s
    address = Address.of(url)
    headers = {"Accept": "*/*", "Connection": "close"}
    data = None if body is None else json_body(body)
    if data is not None:
        headers["Content-Type"] = "application/json"
    if endpoint is not None:
        headers = with_own_headers(headers, endpoint)
    connection = _connection(address, timeout_s, endpoint)
    try:
        sent = time.monotonic()
        connection.request(method, address.path, body=data, headers=headers)
        sock = connection.sock  # the connection lets go of it once the response has begun
        response = connection.getresponse()
        return _read(sock, response, sent, deadline, most_bytes or MAX_BODY_BYTES)
    except (OSError, http.client.HTTPException) as error:
        return Exchange(status=None, error=_words(error))
    finally:
        connection.close()


def _connection(
    address: Address, timeout_s: float, endpoint: Endpoint | None
) -> http.client.HTTPConnection:
    host, port = address.host, address.port
    if not address.tls:
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    context = ssl.create_default_context(cafile=endpoint.ca_file if endpoint else None)
    if endpoint is not None and not endpoint.verify_tls:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)


def _read(
    sock: socket.socket,
    response: http.client.HTTPResponse,
    sent: float,
    deadline: float,
    most_bytes: int,
) -> Exchange:
    """Read the body piece by piece until its end, the deadline or the limit."""
    pieces: list[tuple[float, bytes]] = []
    size, error = 0, None
    # Some versions of Python close the socket with the last byte, others with the read after it.
    while error is None and not response.isclosed():
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            error = "the time limit was reached while the response was read"
            break
        try:
            sock.settimeout(left_s)
            piece = response.read1(_PIECE_BYTES)
        except (OSError, http.client.HTTPException) as caught:
            error = _words(caught)
            break
        if not piece:
            break
        pieces.append((time.monotonic() - sent, piece))
        size += len(piece)
        if size > most_bytes:
            error = f"the body is longer than {most_bytes} bytes"
    if error is None and response.length:
        error = f"the connection was closed {response.length} bytes before the end of the body"
    return Exchange(
        status=response.status,
        headers={name.lower(): value for name, value in response.getheaders()},
        pieces=tuple(pieces),
        error=error,
    )


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer within the time limit"
    return f"{type(error).__name__}: {error}".rstrip(": ")
