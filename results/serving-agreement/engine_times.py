"""What the engine itself says of a load: its own histograms, before and after."""

from __future__ import annotations

from collections.abc import Mapping

from benchx.serving.exchange import get
from benchx.serving.prometheus import parse, total

HISTOGRAMS = {
    "ttft_mean_ms": "vllm:time_to_first_token_seconds",
    "tpot_mean_ms": "vllm:request_time_per_output_token_seconds",
}
"""Figure -> histogram of vLLM; both count from the arrival at its front end to its own output."""

Reading = Mapping[str, tuple[float, float]]
"""Figure -> sum in seconds and count, since the engine began."""


def read_times(url: str) -> Reading:
    """Ask the engine at this root; raises RuntimeError when it does not tell."""
    page = get(f"{url}/metrics", timeout_s=30).body.decode()
    found: dict[str, tuple[float, float]] = {}
    for figure, name in HISTOGRAMS.items():
        parts = [total(list(parse(page, {f"{name}_{end}"})), "sum") for end in ("sum", "count")]
        if parts[0] is None or parts[1] is None:
            raise RuntimeError(f"{url}/metrics has no {name}")
        found[figure] = (parts[0], parts[1])
    return found


def means_ms(before: Reading, after: Reading) -> dict[str, float]:
    """Means over the requests between two readings."""
    return {
        figure: 1000 * (after[figure][0] - before[figure][0]) / (after[figure][1] - count)
        for figure, (_, count) in before.items()
    }
