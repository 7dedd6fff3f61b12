"""The bundled ground-truth server for clients that give their requests no name.

`benchx.serving.groundtruth.process` tells requests apart by a field that only benchx sends; other
clients are compared by the distribution over all their requests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

import numpy as np

from benchx.serving.groundtruth.stream import Pace, Truth

_END_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a client reports of a load, or what the server knows of it. Times in ms.

    Attributes:
        requests: Answered in full.
        input_tokens: Of all prompts by the server's count; None where that is not told.
        output_tokens: Of all answers.
        duration_s: As the client defines it; the server's is from the first request read to the
            last token sent.
        output_tok_s: Output tokens by the duration.
        ttft_p99_ms, tpot_p99_ms: None where the client gives none, for want of requests.
        tpot_mean_ms: Mean over requests of (last token - first token) / (tokens - 1).
    """

    requests: int
    input_tokens: int | None
    output_tokens: int
    duration_s: float
    output_tok_s: float
    ttft_mean_ms: float
    ttft_p50_ms: float
    ttft_p99_ms: float | None
    tpot_mean_ms: float
    tpot_p99_ms: float | None


class TruthServer:
    """Runs inside the block at `root_url`; `stop` ends it and returns what happened.

    Args:
        pace: Its schedule.
    """

    def __init__(self, pace: Pace) -> None:
        command = [sys.executable, "-P", "-m", "benchx.serving.groundtruth.server"]
        self._process = subprocess.Popen(
            [*command, json.dumps(asdict(pace))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.root_url = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"

    def stop(self) -> list[Truth]:
        """Every answered request, in the order of arrival."""
        output, _ = self._process.communicate(timeout=_END_S)
        truths = [Truth(**json.loads(line)) for line in output.splitlines()]
        return sorted(truths, key=lambda truth: truth.received_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def told_by_server(truths: Sequence[Truth]) -> Told:
    """The figures of these requests as the server knows them."""
    ttft = [(one.first_ns - one.received_ns) / 1e6 for one in truths]
    tpot = [(one.last_ns - one.first_ns) / 1e6 / (one.tokens - 1) for one in truths]
    began_ns = min(one.received_ns for one in truths)
    seconds = (max(one.last_ns for one in truths) - began_ns) / 1e9
    tokens = sum(one.tokens for one in truths)
    return Told(
        requests=len(truths),
        input_tokens=None,
        output_tokens=tokens,
        duration_s=seconds,
        output_tok_s=tokens / seconds,
        ttft_mean_ms=float(np.mean(ttft)),
        ttft_p50_ms=float(np.median(ttft)),
        ttft_p99_ms=float(np.percentile(ttft, 99)),
        tpot_mean_ms=float(np.mean(tpot)),
        tpot_p99_ms=float(np.percentile(tpot, 99)),
    )
