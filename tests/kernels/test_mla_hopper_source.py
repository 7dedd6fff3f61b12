"""The Hopper kernels' source, run by threads on a CPU: values, order of events, no deadlock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch

from benchx.ops.mla_draw import make_decode_inputs, make_prefill_inputs
from benchx.ops.mla_inputs import MlaShape
from benchx_kernels import mla_decode as decoding
from benchx_kernels import mla_prefill as prefilling
from benchx_kernels import reference_mla
from benchx_kernels._launch import Launcher
from benchx_kernels._mla_configs import MlaDecodeConfig, MlaPrefillConfig
from benchx_kernels.batch import Batch
from benchx_kernels.device import (
    hopper_softmax,
    mla_decode_hopper,
    mla_decode_hopper_parts,
    mla_prefill_hopper,
)


def _neighbour(name: str) -> ModuleType:
    """A module beside this one, which pytest's import mode does not find by its name."""
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(name, module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


cpu = _neighbour("gluon_on_cpu")
CASES: dict[str, dict[str, Any]] = {
    "edges of tiles": {"lengths": (1, 64, 65, 0, 129)},
    "several pairs, half a pair at the end": {"lengths": (128, 513, 640)},
    "two tokens": {"lengths": (2, 66, 130), "tokens": 2, "heads": 33},
    "no rope": {"lengths": (200, 0), "rope": 0},
    "narrow rope": {"lengths": (200, 300), "rope": 16},
    "narrow latent": {"lengths": (300,), "latent": 128},
}


@pytest.fixture
def on_threads(interpreter: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Launches of Hopper kernels run here; all others as ever."""
    ordinary = Launcher.__call__
    modules = (
        hopper_softmax,
        mla_decode_hopper,
        mla_decode_hopper_parts,
        mla_prefill_hopper,
    )
    plans = (decoding._plan, prefilling._plan)
    with cpu.on_cpu(*modules) as chip:

        def launch(self: Launcher, grid: tuple[int, int, int], *arguments: object) -> None:
            if isinstance(self._kernel, FunctionType):  # patched: plain Python
                cpu.run_grid(chip, self._kernel, grid, arguments, self._constants)
            else:
                ordinary(self, grid, *arguments)

        monkeypatch.setattr(Launcher, "__call__", launch)
        for module in (decoding, prefilling):
            monkeypatch.setattr(module, "no_hopper", lambda _: None)
        for plan in plans:
            plan.cache_clear()
        yield
        for plan in plans:
            plan.cache_clear()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("splits", [1, 3])
def test_the_source_of_decode_is_right(on_threads: None, case: dict[str, Any], splits: int) -> None:
    latent = case.get("latent", 256)
    shape = MlaShape(
        heads=case.get("heads", 3), nope_dim=64, rope_dim=case.get("rope", 64), value_dim=64,
        kv_lora=latent, dtype="bfloat16", projections=False,
    )  # fmt: skip
    inputs = make_decode_inputs(
        shape, case["lengths"], tokens=case.get("tokens", 1), page_size=64,
        cache_dtype="bfloat16", seed=3, device=torch.device("cpu"),
    )  # fmt: skip
    found = decoding.mla_decode(
        inputs.q, inputs.kv_cache, inputs.block_table, inputs.seqlens, kv_lora=latent,
        scale=inputs.scale, longest=max(inputs.lengths),
        config=MlaDecodeConfig(kernel="hopper", splits=splits),
    )  # fmt: skip
    reference = reference_mla.paged_latent_decode(
        inputs.q, inputs.kv_cache, inputs.block_table,
        lengths=inputs.lengths, kv_lora=latent, scale=inputs.scale,
    )  # fmt: skip
    assert ratio(found, reference) < 6e-3


@pytest.mark.parametrize(
    ("lengths", "prefix", "rope"),
    [((1, 0, 130), 0, 64), ((64, 129), 37, 64), ((200,), 200, 0)],
    ids=["edges", "behind a prefix", "no rope"],
)
def test_the_source_of_prefill_is_right(
    on_threads: None, lengths: tuple[int, ...], prefix: int, rope: int
) -> None:
    shape = MlaShape(
        heads=2, nope_dim=64, rope_dim=rope, value_dim=64, kv_lora=64, dtype="bfloat16",
        projections=False,
    )  # fmt: skip
    keys = [length + prefix for length in lengths]
    inputs = make_prefill_inputs(shape, lengths, keys, seed=3, device=torch.device("cpu"))
    assert inputs.k is not None
    assert inputs.v is not None
    found = prefilling.mla_prefill(
        inputs.q, inputs.k, inputs.v, scale=inputs.scale,
        queries=Batch.from_lengths(lengths, "cpu"), keys=Batch.from_lengths(keys, "cpu"),
        config=MlaPrefillConfig(kernel="hopper", block_m=128, block_n=128),
    )  # fmt: skip
    reference = reference_mla.varlen_prefill(
        inputs.q, inputs.k, inputs.v, q_lengths=lengths, kv_lengths=keys, scale=inputs.scale
    )
    assert ratio(found, reference) < 6e-3


def ratio(found: torch.Tensor, reference: torch.Tensor) -> float:
    error = found.double() - reference.double()
    return float(error.square().mean().sqrt() / reference.double().square().mean().sqrt())
