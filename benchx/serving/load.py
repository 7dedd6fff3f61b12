"""The load: a closed loop at a concurrency, or an open loop that never waits for the server.

Requests of one session form a chain: each is sent when the answer before it is complete, plus its
own delay. Everything else is independent.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic_ns

from benchx.core.errors import RunFailed
from benchx.serving.client import Client
from benchx.serving.request import Request, RequestResult

Chain = tuple[Request, ...]
"""Requests that follow one another; one for a request that belongs to no session."""

_PREPARED_BYTES = 256 * 2**20
_PROBE_S = 0.005
_LOOK_S = 1.0
"""Who sleeps looks up this often, and finds that the load was stopped."""

DECODE_LIMIT_S = 60.0
"""No answer takes so long to be taken apart."""

_NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class LoadPlan:
    """How to send.

    Attributes:
        concurrency: Most chains under way. In a closed loop also the number that is kept under
            way; in an open loop None means no limit, and waiting for a slot counts as latency
            from the intended start.
        starts_s: Start of each chain, in seconds, in order; None is a closed loop.
        ramp_s: Closed loop: seconds over which the first requests of the lanes are spread.
        duration_s: Seconds after which nothing new is sent; None sends everything.
        budget_usd: Charges (`usage.cost`) after which nothing new is sent; what is under way then
            comes on top.
    """

    concurrency: int | None = None
    starts_s: tuple[float, ...] | None = None
    ramp_s: float = 0.0
    duration_s: float | None = None
    budget_usd: float | None = None

    def __post_init__(self) -> None:
        if self.starts_s is None and not self.concurrency:
            raise ValueError("a closed loop needs a concurrency")


@dataclass(frozen=True, kw_only=True)
class ClientReport:
    """What the client says of itself.

    Attributes:
        cpu_s: Processor time of this process while the load ran.
        wall_s: Seconds from start to last result.
        loop_lag_ms: Lateness of a 5 ms timer, every time that it fired.
        peak_rss_bytes: Most memory that the process held.
        not_sent: Requests that were left out because the load was stopped.
        overdue: Those of them whose time in an open loop had come.
        due: Chains whose time in an open loop had come, sent or not; 0 in a closed loop.
        stopped: Why it was stopped; None when it ran to its end.
    """

    cpu_s: float
    wall_s: float
    loop_lag_ms: tuple[float, ...]
    peak_rss_bytes: int
    not_sent: int = 0
    overdue: int = 0
    due: int = 0
    stopped: str | None = None

    @property
    def cpu_share(self) -> float:
        """Processor time / wall time."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else 0.0


def chains_of(requests: Iterable[Request]) -> tuple[Chain, ...]:
    """Requests grouped by session, in the order in which each chain first appears."""
    chains: dict[object, list[Request]] = {}
    for request in requests:
        key: object = ("single", request.index) if request.session is None else request.session
        chains.setdefault(key, []).append(request)
    return tuple(tuple(chain) for chain in chains.values())


@dataclass
class LoadRun:
    """One load on one client, in one process.

    Args:
        client: Connected; `prepare` opens what the load needs.
        plan: How to send.
        chains: What to send, in order.
        on_result: Called with every result as soon as it is decoded; returns why the load should
            stop, or None.
    """

    client: Client
    plan: LoadPlan
    chains: Sequence[Chain]
    on_result: Callable[[RequestResult], str | None]
    _payloads: dict[int, bytes] = field(default_factory=dict)
    _pending: set[asyncio.Future[RequestResult]] = field(default_factory=set)
    _sent: int = 0
    _overdue: int = 0
    _due: int = 0
    _spent_usd: float = 0.0
    _stopped: str | None = None
    _broken: BaseException | None = None
    _start_ns: int = 0
    _lag_ms: list[float] = field(default_factory=list)

    async def prepare(self) -> None:
        """Encode what fits into memory and open the connections; the clock does not run yet.

        Raises:
            CantConnect: A connection can't be opened.
            UsageError: A request does not fit the API.
        """
        size = 0
        for request in (request for chain in self.chains for request in chain):
            payload = self._payloads[request.index] = self.client.encode(request)
            size += len(payload)
            if size > _PREPARED_BYTES:
                break
        await self.client.open(self._connections())
        gc.collect()
        gc.freeze()  # a full collection in the middle would stop the client for milliseconds

    def _connections(self) -> int:
        """Connections to open beforehand: an open loop without limit opens more when it must."""
        if self.plan.concurrency:
            return min(self.plan.concurrency, len(self.chains))
        starts = self.plan.starts_s or ()
        first = sum(start_s <= starts[0] + 1.0 for start_s in starts)
        return min(len(self.chains), max(2 * first, 16))

    def stop(self, why: str) -> None:
        """Send nothing new; what is under way ends by itself."""
        self._stopped = self._stopped or why

    async def run(self, start_ns: int) -> ClientReport:
        """Send everything, wait for every answer.

        Args:
            start_ns: When the load begins (`time.monotonic_ns`).
        """
        self._start_ns = start_ns
        await self._until(start_ns)
        cpu_s, began_ns = time.process_time(), monotonic_ns()
        probe = asyncio.create_task(self._probe())
        try:
            await (self._open_loop() if self.plan.starts_s is not None else self._closed_loop())
            await self._decoded()
        finally:
            probe.cancel()
            gc.unfreeze()
        return ClientReport(
            cpu_s=time.process_time() - cpu_s,
            wall_s=(monotonic_ns() - began_ns) / _NS,
            loop_lag_ms=tuple(self._lag_ms),
            peak_rss_bytes=peak_rss_bytes(),
            not_sent=sum(map(len, self.chains)) - self._sent,
            overdue=self._overdue,
            due=self._due,
            stopped=self._stopped,
        )

    async def _decoded(self) -> None:
        """Wait for the answers that are still taken apart.

        Raises:
            RunFailed: None was for a while: better an error than a load that never ends. Or one
                could not be decoded, which is a fault of benchx and never of the server.
        """
        while left := len(self._pending):
            # For all at once: to be woken for each of n answers would cost n * n callbacks.
            await asyncio.wait(self._pending, timeout=DECODE_LIMIT_S)
            if len(self._pending) == left:
                raise RunFailed(f"the client stopped decoding; {left} answers are lost")
        if self._broken is not None:
            what = f"{type(self._broken).__name__}: {self._broken}"
            raise RunFailed(f"benchx could not decode an answer: {what}") from self._broken

    async def _closed_loop(self) -> None:
        """Lanes that take one chain after the other."""
        assert self.plan.concurrency is not None
        lanes = min(self.plan.concurrency, len(self.chains))
        waiting = iter(self.chains)
        await asyncio.gather(*(self._lane(waiting, lane / lanes) for lane in range(lanes)))

    async def _lane(self, waiting: Iterator[Chain], place: float) -> None:
        await self._until(self._start_ns + int(place * self.plan.ramp_s * _NS))
        for chain in waiting:
            if self._is_over():
                break
            await self._chain(chain, monotonic_ns())

    async def _open_loop(self) -> None:
        """Every chain at its time; one that is late is sent at once and is not forgotten."""
        assert self.plan.starts_s is not None
        limit = self.plan.concurrency
        gate = asyncio.Semaphore(limit) if limit else None
        tasks: set[asyncio.Task[None]] = set()
        for chain, start_s in zip(self.chains, self.plan.starts_s, strict=True):
            due_ns = self._start_ns + int(start_s * _NS)
            await self._until(due_ns)
            if self._is_over():
                self._leave_rest()
                break
            self._due += 1
            task = asyncio.create_task(self._gated(chain, due_ns, gate))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    def _leave_rest(self) -> None:
        """Count the chains that a stopped load leaves out although their time had come."""
        assert self.plan.starts_s is not None
        passed_s = (monotonic_ns() - self._start_ns) / _NS
        passed_s = min(passed_s, self.plan.duration_s or passed_s)
        late = sum(start_s <= passed_s for start_s in self.plan.starts_s[self._due :])
        self._due += late
        self._overdue += late

    async def _gated(self, chain: Chain, due_ns: int, gate: asyncio.Semaphore | None) -> None:
        if gate is None:
            await self._chain(chain, due_ns)
            return
        async with gate:
            if self._is_over():
                self._overdue += 1
            else:
                await self._chain(chain, due_ns)

    async def _chain(self, chain: Chain, intended_ns: int) -> None:
        for place, request in enumerate(chain):
            if place and request.delay_s:
                await self._until(monotonic_ns() + int(request.delay_s * _NS))
            if place:
                if self._is_over():
                    return
                intended_ns = monotonic_ns()
            payload = self._payloads.pop(request.index, None) or self.client.encode(request)
            if self.plan.starts_s is None and not place:
                intended_ns = monotonic_ns()  # encoding is the client's own business
            self._sent += 1
            capture = await self.client.fetch(payload)
            future = self.client.decode(request, capture, intended_ns)
            self._pending.add(future)
            future.add_done_callback(self._keep)

    def _keep(self, future: asyncio.Future[RequestResult]) -> None:
        self._pending.discard(future)
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._broken = self._broken or error
            self.stop("an answer could not be decoded")
            return
        result = future.result()
        if result.usage is not None and result.usage.cost is not None:
            self._spent_usd += result.usage.cost
        if self.plan.budget_usd is not None and self._spent_usd >= self.plan.budget_usd:
            self.stop(f"the spending limit is reached ({self._spent_usd:.2f} USD)")
        why = self.on_result(result)
        if why is not None:
            self.stop(why)

    def _is_over(self) -> bool:
        limit_s = self.plan.duration_s
        if limit_s is not None and monotonic_ns() - self._start_ns > limit_s * _NS:
            self.stop(f"the time of {limit_s:g} s is over")
        return self._stopped is not None

    async def _until(self, due_ns: int) -> None:
        """Sleep until a time, or until it is seen that the load is over."""
        while (left_ns := due_ns - monotonic_ns()) > 0 and not self._is_over():
            await asyncio.sleep(min(left_ns / _NS, _LOOK_S))

    async def _probe(self) -> None:
        """How late the loop is: what arrives while it is busy is stamped so much too late."""
        while True:
            due_ns = monotonic_ns() + int(_PROBE_S * _NS)
            await asyncio.sleep(_PROBE_S)
            self._lag_ms.append(max(monotonic_ns() - due_ns, 0) / 1e6)


def peak_rss_bytes() -> int:
    """Most memory that this process held.

    `ru_maxrss` of a process that was forked from a large one is that of the large one, so the
    kernel's own mark comes first where there is one.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def share_of(plan: LoadPlan, part: int, parts: int) -> LoadPlan:
    """The plan of one of several processes that share a load: every `parts`-th chain is its own."""
    concurrency = plan.concurrency
    if concurrency:
        concurrency = concurrency // parts + (part < concurrency % parts)
    starts = None if plan.starts_s is None else plan.starts_s[part::parts]
    budget = None if plan.budget_usd is None else plan.budget_usd / parts
    return replace(plan, concurrency=concurrency, starts_s=starts, budget_usd=budget)
