"""Second opinion on the timer: the same two calls timed by NVBench (package `cuda-bench`).

NVBench keeps a global list of benchmarks and prints to the process's output, so it runs in a
process of its own, `python -m benchx.measure.nvbench FOLDER DEVICE_INDEX`, and there benchx's
timer is asked too: about the same call on the same data, before and after each of NVBench's turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.core.sources import python_command
from benchx.measure import gpu
from benchx.measure.cache import ColdCache
from benchx.measure.ceilings import GPU_CEILING
from benchx.measure.control import copy_call, product_call
from benchx.measure.device import probe_device
from benchx.measure.pacing import paced_ms, pause
from benchx.measure.timers import make_timer

ROUNDS = 3

_TIME_LIMIT_S = 180
_MIN_TIME_S = 0.04
_MEAN_TAG = "nv/cold/time/gpu/mean"
_MEDIAN_TAG = "nv/cold/time/gpu/median"
_THEIRS, _OURS = "nvbench.json", "benchx.json"

Pairs = tuple[tuple[float, float], ...]
"""Milliseconds of each round: by benchx, by the other."""


class NvbenchAbsent(Exception):
    """NVBench can't give figures here; the text says why."""


def nvbench_pairs(device: Device) -> Mapping[str, Pairs]:
    """`copy` and `product` at the sizes of the ceilings, cold: 3 rounds of each.

    Raises:
        NvbenchAbsent: Not installed, or its run failed.
    """
    if find_spec("cuda") is None or find_spec("cuda.bench") is None:
        raise NvbenchAbsent("cuda-bench is not installed")
    with tempfile.TemporaryDirectory() as folder:
        command = python_command("benchx.measure.nvbench", folder, str(device.index))
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=_TIME_LIMIT_S
            )
            theirs, ours = (
                json.loads((Path(folder) / name).read_text()) for name in (_THEIRS, _OURS)
            )
            return pair_up(ours, parse_times_ms(theirs))
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or error.stdout or "").strip().splitlines()
            raise NvbenchAbsent(f"NVBench failed: {lines[-1] if lines else error}") from error
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise NvbenchAbsent(f"NVBench gave no result: {error}") from error


def pair_up(ours: Mapping[str, list[float]], theirs: Mapping[str, float]) -> Mapping[str, Pairs]:
    """Rounds of each piece of work: ours is the mean of the figures before and after theirs.

    Args:
        ours: Benchmark name, `copy_0` for the first round of `copy` -> milliseconds.
        theirs: The same -> milliseconds.

    Raises:
        ValueError: A benchmark of theirs is missing.
    """
    missing = sorted(set(ours) - set(theirs))
    if missing or not ours:
        raise ValueError(f"no figure of {', '.join(missing) or 'anything'}")
    pairs: dict[str, Pairs] = {}
    for name, times_ms in ours.items():
        work = name.rpartition("_")[0]
        pairs[work] = (*pairs.get(work, ()), (fmean(times_ms), theirs[name]))
    return pairs


def parse_times_ms(result: Mapping[str, Any]) -> Mapping[str, float]:
    """Benchmark name -> milliseconds from NVBench's JSON: the median where it has one.

    Raises:
        ValueError: A benchmark was skipped or has no time.
    """
    times: dict[str, float] = {}
    for benchmark in result["benchmarks"]:
        for state in benchmark["states"]:
            seconds = _seconds(state)
            if seconds is None:
                raise ValueError(f"{benchmark['name']}: {state.get('skip_reason') or 'no time'}")
            times[benchmark["name"]] = seconds * 1e3
    return times


def _seconds(state: Mapping[str, Any]) -> float | None:
    found = {summary["tag"]: summary for summary in state.get("summaries") or ()}
    for tag in (_MEDIAN_TAG, _MEAN_TAG):
        for entry in found.get(tag, {}).get("data", ()):
            if entry["name"] == "value":
                return float(entry["value"])
    return None


def main(argv: list[str]) -> None:
    """Time both calls by turns on device `argv[1]`; two JSON files go to the folder `argv[0]`.

    NVBench takes about as many samples as we do (20 to 30), not its default half a second.
    """
    nvbench = import_module("cuda.bench")
    folder, device = Path(argv[0]), probe_device(int(argv[1]))
    size = GPU_CEILING.within(device)
    calls = {
        "copy": copy_call(device, size.copy_bytes),
        "product": product_call(device, size.matrix, size.dtype),
    }
    timer = make_timer("auto", device, ColdCache(device))
    ours: dict[str, list[float]] = {}
    for name, call in calls.items():
        for index in range(ROUNDS):
            times_ms = ours.setdefault(f"{name}_{index}", [])

            def ask_us(call: PreparedCall = call, times_ms: list[float] = times_ms) -> None:
                times_ms.append(paced_ms(call, timer))

            nvbench.register(_benchmark(call, device, ask_us)).set_name(f"{name}_{index}")
    options = ["--devices", str(device.index), "--min-time", str(_MIN_TIME_S), "--max-noise", "50"]
    nvbench.run_all_benchmarks(["nvbench", *options, "--json", str(folder / _THEIRS)])
    (folder / _OURS).write_text(json.dumps(ours))


def _benchmark(
    call: PreparedCall, device: Device, ask_us: Callable[[], None]
) -> Callable[[Any], None]:
    import torch

    def benchmark(state: Any) -> None:  # noqa: ANN401 (NVBench's own type, absent here)
        def launch(launched: Any) -> None:  # noqa: ANN401
            pause()  # the stream is blocked meanwhile, its timer starts after that
            stream = gpu.external_stream(launched.get_stream().addressof(), device.index)
            with torch.cuda.stream(stream):
                call.run()

        ask_us()
        state.exec(launch, batched=False)
        ask_us()

    return benchmark


if __name__ == "__main__":
    main(sys.argv[1:])
