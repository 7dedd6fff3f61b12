"""The machine's own ceilings, measured: how fast it copies and how fast it multiplies."""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.measure.cache import ColdCache
from benchx.measure.control import WorkSize, copy_call, product_call
from benchx.measure.environment import driver_version
from benchx.measure.timers import Timer, make_timer
from benchx.measure.warmup import warm_up
from benchx.stats.summary import median

_GIB = 2**30
_SCHEMA = 1

GPU_CEILING = WorkSize(4 * _GIB, 8192, "bfloat16")
CPU_CEILING = WorkSize(_GIB // 16, 1024, "float32")


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """The two roofs of a roofline: the best medians of cold calls that this device has shown.

    Attributes:
        copy_gb_s: Bytes read plus bytes written per second of a large copy, in GB/s (10^9).
        matmul_tflop_s: 2 n^3 / time of a large square product, in TFLOP/s.
        matmul_dtype: Its dtype.
        measured_at: UTC, ISO 8601; of the last measurement that raised one of them.
        device_name: Device that was measured.
    """

    copy_gb_s: float
    matmul_tflop_s: float
    matmul_dtype: str
    measured_at: str
    device_name: str


def ceilings(device: Device, cache_dir: Path | None = None, *, again: bool = False) -> Ceilings:
    """Ceilings of `device`, from the user's cache or measured now (a second).

    The file's name carries device, driver, torch and, on a CPU, the number of threads: a change
    of any is measured anew. A file that can't be used is measured anew too; a folder that can't
    be written to costs only the time. Deleting the file forgets what was measured.

    Args:
        device: What to measure.
        cache_dir: Folder; default `$BENCHX_CACHE_DIR`, else `$XDG_CACHE_HOME/benchx`, else
            `~/.cache/benchx`.
        again: Measure in any case. What is higher than before replaces it: a first measurement
            on a busy machine must not stay for good, nor a later one lower a roof.
    """
    path = (cache_dir or user_cache_dir()) / f"ceilings-{device_key(device)}.json"
    known = _read(path)
    if known is not None and not again:
        return known
    found = measure_ceilings(device, GPU_CEILING if device.is_gpu else CPU_CEILING)
    best = found if known is None else higher_of(known, found)
    if best != known:
        _write(path, best)
    return best


def higher_of(known: Ceilings, found: Ceilings) -> Ceilings:
    """Each roof at its higher value; `known` itself where `found` raises neither."""
    copy_gb_s = max(known.copy_gb_s, found.copy_gb_s)
    matmul_tflop_s = max(known.matmul_tflop_s, found.matmul_tflop_s)
    if (copy_gb_s, matmul_tflop_s) == (known.copy_gb_s, known.matmul_tflop_s):
        return known
    return replace(found, copy_gb_s=copy_gb_s, matmul_tflop_s=matmul_tflop_s)


def measure_ceilings(device: Device, size: WorkSize) -> Ceilings:
    """Measure now, `size.within(device)`."""
    size = size.within(device)
    timer = make_timer("auto", device, ColdCache(device))
    copy_ms = _median_ms(device, timer, copy_call(device, size.copy_bytes))
    product_ms = _median_ms(device, timer, product_call(device, size.matrix, size.dtype))
    if device.is_gpu:
        import torch

        torch.cuda.empty_cache()
    return Ceilings(
        copy_gb_s=2 * size.copy_bytes / copy_ms / 1e6,
        matmul_tflop_s=2 * size.matrix**3 / product_ms / 1e9,
        matmul_dtype=size.dtype,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device_name=device.name,
    )


def _median_ms(device: Device, timer: Timer, call: PreparedCall) -> float:
    samples = 30 if device.is_gpu else 5
    warm_up(call, device, max_time_s=1.0 if device.is_gpu else 0.1)
    return median(timer.sample([call], samples).device_time_ms)


def device_key(device: Device) -> str:
    """Name of the device and a digest of everything its ceilings depend on."""
    import torch

    identity = [
        _SCHEMA,
        device.vendor,
        device.name,
        device.arch,
        device.memory_bytes if device.is_gpu else device.compute_units,
        driver_version() if device.is_gpu else torch.get_num_threads(),
        str(torch.__version__),
    ]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:10]
    slug = "".join(c if c.isalnum() else "-" for c in device.name.lower())[:40].strip("-")
    return f"{slug}-{digest}"


def user_cache_dir() -> Path:
    """`$BENCHX_CACHE_DIR`, else `$XDG_CACHE_HOME/benchx`, else `~/.cache/benchx`."""
    if own := os.environ.get("BENCHX_CACHE_DIR"):
        return Path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "benchx"
    return Path("~/.cache/benchx").expanduser()


def _read(path: Path) -> Ceilings | None:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    names = {field.name for field in fields(Ceilings)}
    if not isinstance(data, dict) or set(data) != names:
        return None
    rates = (data["copy_gb_s"], data["matmul_tflop_s"])
    if not all(isinstance(r, int | float) and math.isfinite(r) and r > 0 for r in rates):
        return None
    return Ceilings(**data)


def _write(path: Path, found: Ceilings) -> None:
    content = json.dumps(asdict(found), indent=1, sort_keys=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=path.stem, suffix=".tmp", delete=False
        ) as file:
            draft = Path(file.name)
            try:
                file.write(content.encode())
                file.flush()
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
    except OSError:  # a read-only or full home: measure again next time
        return
