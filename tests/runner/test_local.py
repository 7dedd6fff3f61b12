"""The parent's end of a worker's pipe: lines as they were sent, however they arrive."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from benchx.runner.events import Control, Ended, Event, encode
from benchx.runner.local import LocalWorker


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[tuple[LocalWorker, int]]:
    """A worker that does nothing, and the writing end of its pipe."""
    read_end, write_end = os.pipe()
    process = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE, start_new_session=True)
    worker = LocalWorker(process, read_end, tmp_path / "log", log_start=0)
    yield worker, write_end
    worker.kill()
    with suppress(OSError):
        os.close(write_end)


def next_event(worker: LocalWorker) -> Event:
    event = worker.next(60)
    assert isinstance(event, Control | Ended)
    return event


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_events_cut_into_pieces_of_any_size_arrive_whole_and_in_order(
    piped: tuple[LocalWorker, int], size: int
) -> None:
    worker, pipe = piped
    events = [Control(1.5), Ended("complete"), Control(2.5)]
    sent = b"".join(map(encode, events))
    got = []
    for start in range(0, len(sent), size):
        os.write(pipe, sent[start : start + size])
        worker._receive(0.0)
    for _ in events:
        got.append(next_event(worker))
    assert got == events


def test_a_record_of_a_million_samples_is_read_in_the_time_that_its_bytes_take(
    piped: tuple[LocalWorker, int],
) -> None:
    """Joining the pieces anew with each of them takes minutes, in which the worker waits."""
    worker, pipe = piped
    reason = "x" * (24 << 20)
    line = memoryview(encode(Ended(reason)))

    def send() -> None:
        rest = line
        while rest:
            rest = rest[os.write(pipe, rest) :]

    sender = threading.Thread(target=send, daemon=True)
    began_s = time.process_time()
    sender.start()
    assert next_event(worker) == Ended(reason)
    sender.join()
    assert time.process_time() - began_s < 2.5
