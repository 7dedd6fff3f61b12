"""Connections to one server, opened before they are needed."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass

from benchx.core.errors import UsageError
from benchx.serving.http_capture import Fault
from benchx.serving.http_connection import Connection
from benchx.serving.http_wire import Address
from benchx.serving.request import Endpoint, RequestOutcome, TimeLimits

_AT_ONCE = 128
"""Connections opened at the same time; more would overrun the backlog of small servers."""

_SPARE_FILES = 64


class CantConnect(Exception):
    """No connection could be opened; `fault` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


def tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """The TLS settings of an https endpoint, None for http; raises UsageError for a bad CA file."""
    if not Address.of(endpoint.url).tls:
        return None
    try:
        context = ssl.create_default_context(cafile=endpoint.ca_file)
    except OSError as error:
        raise UsageError(f"can't read certificates from {endpoint.ca_file}: {error}") from error
    if not endpoint.verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def allow_open_files(count: int) -> int:
    """Raise the soft limit of open files towards `count`; returns the sockets that fit.

    Raises nothing: where the limit can't be raised, what fits is returned.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return count if soft == resource.RLIM_INFINITY else min(count, soft - _SPARE_FILES)


@dataclass(frozen=True)
class _Place:
    """A resolved address."""

    family: int
    host: str


class Pool:
    """Idle connections, newest first (the one used last is the least likely to be stale).

    Args:
        address: The server.
        limits: Time limits of connecting and of every exchange.
        tls: From `tls_context`.
    """

    def __init__(self, address: Address, limits: TimeLimits, tls: ssl.SSLContext | None) -> None:
        self._address, self._limits, self._tls = address, limits, tls
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._places: tuple[_Place, ...] | None = None

    async def open(self, count: int) -> None:
        """Have `count` idle connections.

        Raises:
            CantConnect: One could not be opened.
        """
        allow_open_files(count)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one() -> Connection:
            async with gate:
                return await self.connect()

        missing = count - len(self._idle)
        opened = await asyncio.gather(*(one() for _ in range(missing)), return_exceptions=True)
        for result in opened:
            if isinstance(result, Connection):
                self._idle.append(result)
        for result in opened:
            if isinstance(result, BaseException):
                raise result

    def take(self) -> Connection | None:
        """An idle connection that still stands, or None."""
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
            self._all.discard(connection)
        return None

    def give(self, connection: Connection) -> None:
        """Return a connection after an exchange; one that can't be used again is dropped."""
        if connection.reusable:
            self._idle.append(connection)
        else:
            self._all.discard(connection)

    async def connect(self) -> Connection:
        """A new connection, TLS included.

        Raises:
            CantConnect: Refused, unreachable, unresolvable, not trusted, or not in time.
        """
        where = f"{self._address.host}:{self._address.port}"
        limit_s = self._limits.connect_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._connect()
        except TimeoutError as error:
            reason = f"no connection to {where} within {limit_s:g} s"
            raise CantConnect(Fault(RequestOutcome.TIMEOUT, reason)) from error
        except ssl.SSLError as error:
            reason = f"TLS with {where} failed: {error.reason or error}"
            raise CantConnect(Fault(RequestOutcome.DISCONNECTED, reason)) from error
        except OSError as error:
            what = error.strerror or str(error)
            reason = f"can't connect to {where}: {what}"
            raise CantConnect(Fault(RequestOutcome.DISCONNECTED, reason)) from error

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        if self._places is None:
            found = await loop.getaddrinfo(
                self._address.host, self._address.port, type=socket.SOCK_STREAM
            )
            self._places = tuple(_Place(family, str(name[0])) for family, _, _, _, name in found)
        failures: list[OSError] = []
        for place in self._places:
            try:
                _, connection = await loop.create_connection(
                    lambda: Connection(self._limits),
                    place.host,
                    self._address.port,
                    family=place.family,
                    ssl=self._tls,
                    server_hostname=self._address.host if self._tls else None,
                )
            except OSError as error:
                failures.append(error)
                continue
            self._all.add(connection)
            return connection
        raise failures[0]

    def close(self) -> None:
        """Drop every connection, also those in use."""
        for connection in self._all:
            connection.abort()
        self._all.clear()
        self._idle.clear()
