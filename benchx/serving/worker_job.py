"""Loads spread over processes: what a worker gets, what it says, and the parent's side of it."""

from __future__ import annotations

import os
import pickle
import selectors
import struct
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic_ns
from typing import IO, Any

from benchx.core.errors import RunFailed
from benchx.core.sources import python_command
from benchx.serving.load import Chain, ClientReport, LoadPlan, share_of
from benchx.serving.request import Endpoint, RequestResult, TimeLimits

STREAMS_PER_WORKER = 512
"""At 50 tokens per second and stream this is half of a core's capacity."""

_LENGTH = struct.Struct("<Q")
_HEAD_START_NS = 50_000_000


@dataclass(frozen=True, kw_only=True)
class LoadJob:
    """Everything one process needs; it holds no secret: those are read from the environment."""

    endpoint: Endpoint
    limits: TimeLimits
    plan: LoadPlan
    chains: tuple[Chain, ...]


@dataclass(frozen=True)
class Failure:
    """A worker could not do its job.

    Attributes:
        message: One sentence, for people.
    """

    message: str


def write_frame(stream: IO[bytes], value: object) -> None:
    """One pickled value with its length."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    left = memoryview(_LENGTH.pack(len(data)) + data)
    while left:
        left = left[stream.write(left) :]
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:  # noqa: ANN401 - whatever was written
    """What `write_frame` wrote; raises EOFError at the end.

    Only for pipes between a process and the child that it started itself.
    """
    head = _read(stream, _LENGTH.size)
    return pickle.loads(_read(stream, _LENGTH.unpack(head)[0]))


def _read(stream: IO[bytes], size: int) -> bytes:
    """Exactly so many bytes; raises EOFError when there are fewer."""
    pieces: list[bytes] = []
    while size:
        piece = stream.read(size)
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def worker_count(wanted: int | None, streams: int) -> int:
    """Client processes for so many concurrent streams; None chooses.

    One core is left to the rest of the machine where there is more than one.
    """
    if wanted is not None:
        return wanted
    cores = len(os.sched_getaffinity(0))
    needed = -(-streams // STREAMS_PER_WORKER)
    return max(1, min(needed, cores - 1 or 1))


class _Child:
    """One worker process."""

    def __init__(self, job: LoadJob) -> None:
        command = python_command("benchx.serving.worker")
        # Without a buffer, so that what can be read is what the selector sees.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.report: ClientReport | None = None
        self.tell(job)

    def next(self) -> Any:  # noqa: ANN401 - see read_frame
        """The next message.

        Raises:
            RunFailed: The worker failed or is gone.
        """
        try:
            message = read_frame(self.stdout)
        except EOFError as error:
            code = self.process.wait()
            raise RunFailed(f"a client process ended with code {code}") from error
        if isinstance(message, Failure):
            raise RunFailed(message.message)
        return message

    def tell(self, value: object) -> None:
        """Send it something; one that is gone shows when it is read from."""
        with suppress(BrokenPipeError):
            write_frame(self.stdin, value)

    def kill(self) -> None:
        """End it; harmless when it is gone."""
        self.process.kill()
        self.process.wait()
        self.stdin.close()
        self.stdout.close()


def run_in_workers(
    job: LoadJob, workers: int, on_result: Callable[[RequestResult], str | None]
) -> tuple[ClientReport, ...]:
    """Run a load in several processes that start at the same moment; one report per process.

    Raises:
        RunFailed: A process failed; the others are ended.
    """
    parts = min(workers, job.plan.concurrency or workers, len(job.chains))
    children: list[_Child] = []
    try:
        for part in range(parts):
            mine = LoadJob(
                endpoint=job.endpoint,
                limits=job.limits,
                plan=share_of(job.plan, part, parts),
                chains=job.chains[part::parts],
            )
            children.append(_Child(mine))
        for child in children:
            child.next()  # it is ready
        start_ns = monotonic_ns() + _HEAD_START_NS
        for child in children:
            child.tell(start_ns)
        _collect(children, on_result)
        return tuple(child.report for child in children if child.report is not None)
    finally:
        for child in children:
            child.kill()


def _collect(children: Sequence[_Child], on_result: Callable[[RequestResult], str | None]) -> None:
    """Hand on results until every process has reported."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.stdout, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select():
                _take(key.data, selector, children, on_result)


def _take(
    child: _Child,
    selector: selectors.BaseSelector,
    children: Sequence[_Child],
    on_result: Callable[[RequestResult], str | None],
) -> None:
    message = child.next()
    if isinstance(message, ClientReport):
        child.report = message
        selector.unregister(child.stdout)
        return
    for result in message:
        why = on_result(result)
        if why is not None:
            _stop(children, why)


def _stop(children: Sequence[_Child], why: str) -> None:
    """Have every process that still runs send nothing new."""
    for child in children:
        if child.report is None:
            child.tell(why)
