"""A client process: `python -m benchx.serving.worker`, a job on stdin, results on stdout."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import IO

from benchx.core.errors import BenchxError
from benchx.serving.client import Client, new_event_loop
from benchx.serving.http_pool import CantConnect
from benchx.serving.load import ClientReport, LoadRun
from benchx.serving.request import RequestResult
from benchx.serving.worker_job import Failure, LoadJob, read_frame, write_frame

_BATCH_S = 0.25


class _Outbox:
    """Sends results in batches, so that the parent is not woken for each of them."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._results: list[RequestResult] = []

    def add(self, result: RequestResult) -> None:
        """Keep a result for the next batch."""
        self._results.append(result)

    async def send_until(self, over: asyncio.Event) -> None:
        """Send four times a second, and the rest at the end."""
        while not over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), _BATCH_S)
            await self._send()
        await self._send()  # what came while the last batch was being written

    async def _send(self) -> None:
        # Swapped here and not in the thread, where a result could be added in between.
        results, self._results = self._results, []
        if results:
            await asyncio.to_thread(write_frame, self._stream, results)


async def work(job: LoadJob, source: IO[bytes], sink: IO[bytes]) -> ClientReport:
    """Prepare, say so, wait for the start, run."""
    outbox = _Outbox(sink)
    async with Client(job.endpoint, job.limits) as client:
        run = LoadRun(client, job.plan, job.chains, outbox.add)
        await run.prepare()
        write_frame(sink, "ready")
        start_ns = int(await asyncio.to_thread(read_frame, source))
        loop = asyncio.get_running_loop()
        threading.Thread(target=_listen, args=(source, loop, run), daemon=True).start()
        over = asyncio.Event()
        sender = asyncio.create_task(outbox.send_until(over))
        report = await run.run(start_ns)
        over.set()
        await sender
    return report


def _listen(source: IO[bytes], loop: asyncio.AbstractEventLoop, run: LoadRun) -> None:
    """Stop the load when the parent says so; end at once when the parent is gone."""
    while True:
        try:
            why = read_frame(source)
        except EOFError:
            os._exit(1)
        loop.call_soon_threadsafe(run.stop, str(why))


def main() -> None:
    """Do the job; what goes wrong is told to the parent in one sentence."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this one
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing but frames may reach the parent
    job = read_frame(source)
    message: ClientReport | Failure
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            message = runner.run(work(job, source, sink))
    except (BenchxError, CantConnect) as error:
        message = Failure(str(error))
    write_frame(sink, message)
    sink.close()
    os._exit(0)  # a thread is still waiting for the parent


if __name__ == "__main__":
    main()
