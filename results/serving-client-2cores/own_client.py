"""The client of benchx alone, as a program: `own_client.py URL REQUESTS STREAMS TOKENS OUT.json`.

It sends the load from one process, works out all figures of it and writes some of them, which is
what other clients do by default; `benchx run` also keeps every arrival and watches the machine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchx.serving.load import LoadPlan, chains_of
from benchx.serving.load_session import run_load
from benchx.serving.metrics import load_figures
from benchx.serving.request import Endpoint, Request, TimeLimits
from benchx.serving.worker_job import LoadJob


def main() -> None:
    """Send, reduce, write."""
    url, out = sys.argv[1], Path(sys.argv[5])
    requests, streams, tokens = map(int, sys.argv[2:5])
    sent = [Request(index=i, prompt="word " * 100, max_tokens=tokens) for i in range(requests)]
    job = LoadJob(
        endpoint=Endpoint(base_url=url, api="chat", model="truth"),
        limits=TimeLimits(),
        plan=LoadPlan(concurrency=streams),
        chains=chains_of(sent),
    )
    outcome = run_load(job, workers=1)
    figures = load_figures(outcome.results)
    out.write_text(json.dumps({**figures.values, "completed": figures.outcomes.get("ok", 0)}))


if __name__ == "__main__":
    main()
