"""What the serving client costs and how far off it is; see README.md beside this file.

Every part prints as it goes and ends up in the JSON file that is named on the command line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import clients
from replay import replay
from side_by_side import Comparison, compare

from benchx.serving.calibrate import CalibrationLoad, calibrate_client
from benchx.serving.groundtruth.process import GroundTruth
from benchx.serving.groundtruth.stream import Pace
from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_session import LoadOutcome, run_load
from benchx.serving.request import Endpoint, Request, TimeLimits
from benchx.serving.worker_job import LoadJob

TOKENS, STREAMS, FEW, MANY = 128, 64, 200, 1600
PACED = Pace(ttft_ms=100.0, token_ms=20.0)
COST_RUNS = 5
AT_ONCE = Pace(ttft_ms=0.0, token_ms=0.0)


def load(url: str, requests: int, concurrency: int, tokens: int = TOKENS) -> LoadOutcome:
    """A closed loop of chat requests of about 100 prompt tokens, in a client process."""
    sent = [Request(index=i, prompt="word " * 100, max_tokens=tokens) for i in range(requests)]
    job = LoadJob(
        endpoint=Endpoint(base_url=url, api="chat", model="truth"),
        limits=TimeLimits(),
        plan=LoadPlan(concurrency=concurrency),
        chains=chains_of(sent),
    )
    return run_load(job, workers=1, isolated=True)


def cost(root: str | None) -> dict[str, Any]:
    """Fixed work without pauses: 64 streams of 128 tokens; the median of some slopes."""
    with ExitStack() as stack:
        if root is None:
            root = stack.enter_context(GroundTruth(AT_ONCE)).base_url.removesuffix("/v1")
        runs = [slope(f"{root}/v1") for _ in range(COST_RUNS)]
    middle = sorted(runs, key=lambda run: run["cpu_ms_per_1000_tokens"])[COST_RUNS // 2]
    return middle | {"runs_cpu_ms": sorted(run["cpu_ms_per_1000_tokens"] for run in runs)}


def slope(url: str) -> dict[str, Any]:
    """What 1400 more requests cost."""
    few, many = load(url, FEW, STREAMS), load(url, MANY, STREAMS)
    tokens = [sum(r.client_tokens for r in outcome.results) for outcome in (few, many)]
    cpu_s = [outcome.reports[0].cpu_s for outcome in (few, many)]
    slope_s = (cpu_s[1] - cpu_s[0]) / (tokens[1] - tokens[0])
    return {
        "cpu_ms_per_1000_tokens": 1e6 * slope_s,
        "tokens_per_cpu_second": 1 / slope_s,
        "tokens_per_second": tokens[1] / many.reports[0].wall_s,
        "peak_rss_mb": many.reports[0].peak_rss_bytes / 1e6,
        "not_ok": sum(result.outcome != "ok" for result in many.results),
    }


def open_streams(count: int) -> dict[str, Any]:
    """So many streams at once, each of three tokens in a second."""
    with GroundTruth(Pace(ttft_ms=500.0, token_ms=250.0)) as server:
        outcome = load(server.base_url, count, count, tokens=3)
    return {
        "streams": count,
        "not_ok": sum(result.outcome != "ok" for result in outcome.results),
        "peak_rss_mb": outcome.reports[0].peak_rss_bytes / 1e6,
    }


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy that was at the start."""
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def beside_others(given: argparse.Namespace) -> dict[str, Any]:
    """The clients that were named, and both forms of our own, in turn."""
    makers = {"vllm": clients.vllm, "sglang": clients.sglang, "aiperf": clients.aiperf}
    named = {name: getattr(given, name) for name in makers}
    others = [makers[name](program) for name, program in named.items() if program]
    comparison = Comparison(
        url=root_url(given.url),
        tokenizer=given.tokenizer or "",
        tokens=TOKENS,
        few=FEW,
        many=MANY,
        streams=STREAMS,
        burst_streams=256,
        burst_requests=512,
        pace=PACED,
    )
    return compare([*clients.own(), *others], comparison, rounds=given.rounds)


def root_url(url: str | None) -> str | None:
    """Without the `/v1` that base URLs of this API end with."""
    return None if url is None else url.rstrip("/").removesuffix("/v1")


def arguments() -> argparse.Namespace:
    """The command line; see README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="JSON file to write")
    parser.add_argument("--url", help="a server that answers at once, for the fixed work")
    parser.add_argument("--streams", type=int, default=10_000, help="of the part open_streams")
    parser.add_argument("--only", action="append", help="a part; may be given several times")
    parser.add_argument("--rounds", type=int, default=3, help="most, of side_by_side")
    parser.add_argument("--tokenizer", help="folder with a tokenizer.json, for other clients")
    for name in ("vllm", "sglang", "aiperf"):
        parser.add_argument(f"--{name}", metavar="PROGRAM", help="words that start this client")
    given = parser.parse_args()
    if (given.vllm or given.sglang or given.aiperf) and not given.tokenizer:
        parser.error("other clients make their prompts with a tokenizer: --tokenizer DIR")
    return given


def main() -> None:
    """Measure what is asked for."""
    given = arguments()
    burst = CalibrationLoad(concurrency=256, requests=512, output_tokens=TOKENS, pace=PACED)
    steady = CalibrationLoad(rate_req_s=40.0, requests=500, output_tokens=TOKENS, pace=PACED)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "replay": lambda: replay(TOKENS),
        "fixed_work": lambda: cost(root_url(given.url)),
        "burst_256": lambda: calibrate_client(burst).to_json(),
        "open_40": lambda: calibrate_client(steady).to_json(),
        "open_streams": lambda: open_streams(given.streams),
        "side_by_side": lambda: beside_others(given),
    }
    found: dict[str, Any] = {"machine": machine()}
    for name, part in parts.items():
        if given.only and name not in given.only:
            continue
        found[name] = part()
        if name != "side_by_side":
            print(name, json.dumps(found[name]), flush=True)
        given.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
