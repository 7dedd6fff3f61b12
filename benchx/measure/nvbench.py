"""Second opinion on the timer: the same two calls timed by NVBench (package `cuda-bench`).

NVBench keeps a global list of benchmarks and prints to the process's output, so it runs in a
process of its own: `python -m benchx.measure.nvbench OUT.json DEVICE_INDEX`.
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
from typing import Any

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure import gpu
from benchx.measure.ceilings import GPU_CEILING
from benchx.measure.control import copy_call, product_call
from benchx.measure.device import probe_device
from benchx.measure.warmup import warm_up

_TIME_LIMIT_S = 180
_MEAN_TAG = "nv/cold/time/gpu/mean"
_MEDIAN_TAG = "nv/cold/time/gpu/median"


class NvbenchAbsent(Exception):
    """NVBench can't give figures here; the text says why."""


def nvbench_times_ms(device: Device) -> Mapping[str, float]:
    """`copy` and `product` at the sizes of the ceilings, cold, in milliseconds.

    Raises:
        NvbenchAbsent: Not installed, or its run failed.
    """
    if find_spec("cuda") is None or find_spec("cuda.bench") is None:
        raise NvbenchAbsent("cuda-bench is not installed")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "nvbench.json"
        command = [sys.executable, "-m", "benchx.measure.nvbench", str(out), str(device.index)]
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=_TIME_LIMIT_S
            )
            return parse_times_ms(json.loads(out.read_text()))
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or error.stdout or "").strip().splitlines()
            raise NvbenchAbsent(f"NVBench failed: {lines[-1] if lines else error}") from error
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise NvbenchAbsent(f"NVBench gave no result: {error}") from error


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
    """Time both calls with NVBench on device `argv[1]` and write its JSON to `argv[0]`."""
    nvbench = import_module("cuda.bench")
    out, index = argv[0], int(argv[1])
    device = probe_device(index)
    calls = {
        "copy": copy_call(device, min(GPU_CEILING.copy_bytes, device.memory_bytes // 8)),
        "product": product_call(device, GPU_CEILING.matrix, GPU_CEILING.dtype),
    }
    for name, call in calls.items():
        warm_up(call, device)
        nvbench.register(_benchmark(call, index)).set_name(name)
    nvbench.run_all_benchmarks(["nvbench", "--devices", str(index), "--json", out])


def _benchmark(call: PreparedCall, index: int) -> Callable[[Any], None]:
    import torch

    def benchmark(state: Any) -> None:  # noqa: ANN401 (NVBench's own type, absent here)
        def launch(launched: Any) -> None:  # noqa: ANN401
            stream = gpu.external_stream(launched.get_stream().addressof(), index)
            with torch.cuda.stream(stream):
                call.run()

        state.exec(launch, batched=False)

    return benchmark


if __name__ == "__main__":
    main(sys.argv[1:])
