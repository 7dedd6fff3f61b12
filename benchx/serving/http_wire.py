"""Requests as bytes: everything that can be prepared before the clock starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

import benchx
from benchx.core.errors import UsageError
from benchx.serving.request import Endpoint, Request

_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "authorization"})


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server listens.

    Attributes:
        host: Name or IP address, without brackets; names beyond ASCII as DNS has them (IDNA).
        path: Path and query of the request line.
    """

    host: str
    port: int
    path: str
    tls: bool

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL; raises UsageError for anything but http and https with a host."""
        if "@" in url.partition("://")[2].partition("/")[0]:
            raise UsageError(
                "the URL holds a user name or password, which would be stored with the results",
                hint="put it into an environment variable and name that as api_key_env",
            )
        try:
            parts = urlsplit(url)
            port, host = parts.port, (parts.hostname or "").encode("idna").decode()
        except ValueError as error:  # of which UnicodeError is one
            raise UsageError(f"{url!r} is no URL: {error}") from error
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError(f"got {url!r}; expected an address such as http://127.0.0.1:8000/v1")
        tls = parts.scheme == "https"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not path.isascii() or any(c <= " " for c in path + host):
            raise UsageError(f"{url!r} is no URL: it holds characters that must be escaped")
        return cls(host=host, port=port or (443 if tls else 80), path=path, tls=tls)

    @property
    def host_header(self) -> str:
        """Value of the Host header; the port is left out where it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def request_body(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """The JSON body: endpoint's fields, then the request's own, then `extra` of the request.

    Raises:
        UsageError: Token ids for the chat API, messages for the completions API.
    """
    body: dict[str, Any] = {"model": endpoint.model}
    if endpoint.api == "chat":
        if isinstance(request.prompt, tuple) and request.messages is None:
            raise UsageError("the chat API takes no token ids", hint="use api: completions")
        user = [{"role": "user", "content": request.prompt}]
        body["messages"] = user if request.messages is None else list(request.messages)
    else:
        if request.messages is not None:
            raise UsageError("the completions API takes no messages", hint="use api: chat")
        ids = isinstance(request.prompt, tuple)
        body["prompt"] = list(request.prompt) if ids else request.prompt
    body[endpoint.max_tokens_field] = request.max_tokens
    if endpoint.stream:
        body["stream"] = True
        if endpoint.ask_chunk_usage:
            body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        elif endpoint.ask_usage:
            body["stream_options"] = {"include_usage": True}
    return body | dict(endpoint.extra_body) | dict(request.extra)


class Encoder:
    """Encodes requests to one endpoint.

    Attributes:
        address: Where they go.

    Raises:
        UsageError: The URL, a header or an environment variable can't be used.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.address = Address.of(endpoint.url)
        self._endpoint = endpoint
        secrets = endpoint.secret_headers()
        self._secrets = tuple(value.removeprefix("Bearer ") for value in secrets.values())
        stream = "text/event-stream" if endpoint.stream else "application/json"
        headers = {
            "Host": self.address.host_header,
            "User-Agent": f"benchx/{benchx.__version__}",
            "Accept": stream,
            "Content-Type": "application/json",
        }
        headers = with_own_headers(headers, endpoint)
        lines = [f"POST {self.address.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._head = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")

    def __repr__(self) -> str:
        return f"Encoder({self._endpoint.url})"

    def encode(self, request: Request) -> bytes:
        """Head and body of one request, ready for the socket.

        Raises:
            UsageError: It does not fit the API, or can't be written as JSON.
        """
        body = json_body(request_body(self._endpoint, request))
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)

    def redact(self, text: str) -> str:
        """The text without any secret that a server may have echoed."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def json_body(body: Mapping[str, Any]) -> bytes:
    """A body as JSON; raises UsageError for what JSON can't hold (a number above 64 bits, ...)."""
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise UsageError(f"a request can't be written as JSON: {error}") from error


def with_own_headers(headers: Mapping[str, str], endpoint: Endpoint) -> dict[str, str]:
    """Headers, and in their place those of an endpoint, secret ones included: each name once.

    Never store or print the result.

    Raises:
        UsageError: A name or a value can't be sent, or a variable is not set.
    """
    for name, value in endpoint.headers.items():
        hint = "an API key is named by api_key_env" if name.lower() == "authorization" else None
        _check_name(name, _OURS, hint)
        if not value.isascii() or not value.isprintable():
            raise UsageError(f"the value of header {name!r} is not printable ASCII")
    for name in endpoint.header_env:
        _check_name(name, _OURS - {"authorization"}, None)
    given = (headers, endpoint.headers, endpoint.secret_headers())
    by_name = {name.lower(): (name, value) for part in given for name, value in part.items()}
    return dict(by_name.values())


def _check_name(name: str, refused: Collection[str], hint: str | None) -> None:
    token = name.replace("-", "").replace("_", "")
    if not (token.isascii() and token.isalnum()) or name.lower() in refused:
        raise UsageError(f"the header {name!r} can't be set", hint=hint)
