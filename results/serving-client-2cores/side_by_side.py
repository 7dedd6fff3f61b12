"""Several clients on the same servers, in turn: what each costs and how true its figures are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from clients import Client, Load
from truth_server import Told, TruthServer, told_by_server

from benchx.serving.groundtruth.stream import Pace

_LIMIT_S = 300.0


class ClientFailed(RuntimeError):
    """A client ended with an error, or did not do the whole load."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One load by one client.

    Attributes:
        cpu_s, wall_s, largest_process_rss_mb: Of its whole process tree; see `tree_cost.py`.
        told: What it reports itself.
    """

    cpu_s: float
    wall_s: float
    largest_process_rss_mb: float
    told: Told


def drive(client: Client, load: Load, folder: Path) -> Ran:
    """Run one load; raises ClientFailed with the end of what the client printed."""
    cost, log = folder / "cost.json", folder / "output.log"
    script = Path(__file__).with_name("tree_cost.py")
    command = [sys.executable, str(script), str(cost), *client.program]
    with log.open("wb") as out:
        done = subprocess.run(
            [*command, *client.arguments(load, folder)],
            env={**os.environ, **client.env},
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=_LIMIT_S,
            check=False,
        )
    try:
        told = client.read(folder)
    except (OSError, KeyError, ValueError) as error:
        raise _failed(client, log, f"wrote no result that can be read ({error!r})") from error
    if done.returncode != 0 or told.requests != load.requests:
        words = f"code {done.returncode}, {told.requests} of {load.requests} requests"
        raise _failed(client, log, words)
    return Ran(told=told, **json.loads(cost.read_text()))


def _failed(client: Client, log: Path, words: str) -> ClientFailed:
    return ClientFailed(f"{client.name}: {words}\n{log.read_text(errors='replace')[-2000:]}")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What every client does.

    Attributes:
        url: Root of a server that answers at once; None: the bundled one, started for each load.
        tokenizer: See `Load`.
        tokens: Of every answer.
        few, many: Requests of the two sizes of the fixed work, between which the slope is taken.
        streams: Of the fixed work.
        burst_streams, burst_requests: Of the burst.
        pace: Of the server in the burst.
    """

    url: str | None
    tokenizer: str
    tokens: int
    few: int
    many: int
    streams: int
    burst_streams: int
    burst_requests: int
    pace: Pace

    def fixed_work(self, client: Client) -> dict[str, float]:
        """Cost per token as the slope between two sizes; the start-up is what is left."""
        few, many = self._at_once(client, self.few), self._at_once(client, self.many)
        tokens = (self.many - self.few) * self.tokens
        slope_s = (many.cpu_s - few.cpu_s) / tokens
        return {
            "cpu_ms_per_1000_tokens": 1e6 * slope_s,
            "start_up_cpu_s": few.cpu_s - self.few * self.tokens * slope_s,
            "output_tok_s": many.told.output_tok_s,
            "largest_process_rss_mb": many.largest_process_rss_mb,
        }

    def _at_once(self, client: Client, requests: int) -> Ran:
        with TemporaryDirectory() as folder:
            if self.url is not None:
                load = self._load(self.url, requests, self.streams)
                return drive(client, load, Path(folder))
            with TruthServer(Pace(ttft_ms=0.0, token_ms=0.0)) as server:
                load = self._load(server.root_url, requests, self.streams)
                return drive(client, load, Path(folder))

    def _load(self, url: str, requests: int, streams: int) -> Load:
        return Load(
            root_url=url,
            requests=requests,
            streams=streams,
            tokens=self.tokens,
            tokenizer=self.tokenizer,
        )

    def burst(self, client: Client) -> dict[str, Any]:
        """What it reports of a burst, what the server knows of the same requests, the difference.

        Requests that a client does not count (a trial, a warm-up) come first and are left out.
        """
        with TruthServer(self.pace) as server, TemporaryDirectory() as folder:
            load = self._load(server.root_url, self.burst_requests, self.burst_streams)
            ran = drive(client, load, Path(folder))
            truths = server.stop()
        if len(truths) < load.requests:
            raise ClientFailed(f"{client.name}: the server saw only {len(truths)} requests")
        counted = truths[-load.requests :]
        truth = told_by_server(counted)
        return {
            "cpu_s": ran.cpu_s,
            "reported": asdict(ran.told),
            "truth": asdict(truth),
            "server_late_ms_max": max(one.late_ns for one in counted) / 1e6,
            "ttft_error_ms_mean": ran.told.ttft_mean_ms - truth.ttft_mean_ms,
            "ttft_error_ms_p99": _p99(ran.told) - _p99(truth),
            "tpot_error": ran.told.tpot_mean_ms / truth.tpot_mean_ms - 1,
        }


def _p99(told: Told) -> float:
    if told.ttft_p99_ms is None:
        raise ClientFailed("no 99th percentile of the time to first token was reported")
    return told.ttft_p99_ms


def compare(
    clients: Sequence[Client],
    comparison: Comparison,
    *,
    rounds: int,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Every round measures every client once, forwards and backwards in turn; medians at the end.

    A client that fails is reported with the reason and left out of the later rounds.
    """
    found: dict[str, dict[str, Any]] = {
        client.name: {"version": client.version, "rounds": []} for client in clients
    }
    for number, client in _turns(clients, rounds):
        entry = found[client.name]
        if "failed" in entry:
            continue
        began_s = time.monotonic()
        try:
            seen = {"burst": comparison.burst(client), **comparison.fixed_work(client)}
        except (ClientFailed, subprocess.TimeoutExpired) as error:
            entry["failed"] = str(error)
            say(f"{client.name} failed: {error}")
            continue
        entry["rounds"].append(seen)
        words = json.dumps(_flat(seen))
        say(f"round {number} {client.name} ({time.monotonic() - began_s:.0f} s) {words}")
    return {name: entry | _medians(entry["rounds"]) for name, entry in found.items()}


def _turns(clients: Sequence[Client], rounds: int) -> Iterator[tuple[int, Client]]:
    for number in range(rounds):
        for client in clients if number % 2 == 0 else reversed(clients):
            if number < client.rounds:
                yield number, client


def _flat(seen: Mapping[str, Any]) -> dict[str, float]:
    burst = {f"burst_{name}": value for name, value in seen["burst"].items()}
    plain = {**{k: v for k, v in seen.items() if k != "burst"}, **burst}
    return {name: value for name, value in plain.items() if isinstance(value, float)}


def _medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    flat = [_flat(seen) for seen in rounds]
    return {name: median(one[name] for one in flat) for name in (flat[0] if flat else ())}
