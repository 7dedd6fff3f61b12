"""What a prefill needs beside weights and cache: linear in the prompt, and no more than stated."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchx.architectures import load_architecture
from benchx.core.axes import Params, Scalar
from benchx.measure.device import probe_device
from benchx.ops.model_backend import StackBackend
from benchx.ops.model_operator import ModelOperator
from benchx.ops.model_points import ModelPoint
from benchx_kernels import model_mixers
from benchx_kernels.model_shapes import MlaShape

CPU = torch.device("cpu")
KIMI = "kimi-linear-48b-a3b"
CHUNK = 16


class LiveBytes(TorchDispatchMode):
    """Bytes of all storages made inside, and their peak; views of older ones are none."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.peak = 0, 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self._known.add(tensor.untyped_storage()._cdata)
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._hold(tensor.untyped_storage())
        return out

    def _hold(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def params_of(tokens: int, **change: Scalar) -> Params:
    axes = ModelOperator(KIMI, "prefill").axes
    known = {name: spec.default for name, spec in axes.items() if spec.default is not None}
    sizes: Params = {"phase": "prefill", "seqlens": str(tokens), "chunk": CHUNK, "layers": 4}
    return {**known, **sizes, "shrink": 16, "dtype": "float32", **change}


def peak_of(tokens: int, **change: Scalar) -> int:
    """Peak bytes of one call beyond what was there before: weights, prompt and cache."""
    arch = load_architecture(KIMI)
    inputs = ModelOperator(KIMI, "prefill").make_inputs(
        params_of(tokens, **change), seed=0, device=CPU
    )
    call = StackBackend.named("chunked+expanded", arch, KIMI, "prefill").prepare(inputs)
    with LiveBytes() as live:
        call.run()
    return live.peak


def test_live_bytes_are_counted_and_given_back() -> None:
    with LiveBytes() as live:
        kept = torch.zeros(1000)
        torch.zeros(5000).add_(1)
        view = kept[:10]
    assert live.peak == 4 * 6000
    assert live.now == 4 * 1000
    assert view is not None


def test_memory_grows_with_the_prompt_by_one_layers_keys_and_values_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_mixers, "EXPAND_ROWS", 256)
    layers: dict[str, Scalar] = {"layers": 2, "pattern": "all_mla"}
    grown = peak_of(2048, **layers) - peak_of(1024, **layers)
    stated = ModelPoint.of(KIMI, params_of(1024, **layers)).expanded_bytes()
    assert 0.5 * stated < grown < 1.05 * stated  # scores of all pairs would be ten times that


def test_a_longer_chunk_takes_more_memory() -> None:
    assert peak_of(512, chunk=512) > 1.5 * peak_of(512)


def test_rows_expanded_in_parts_are_those_expanded_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = MlaShape(
        heads=2, q_lora=None, kv_lora=32, nope_dim=16, rope_dim=8, value_dim=16,
        output_gate=False, rope=False,
    )  # fmt: skip
    draw = model_mixers.Draw.seeded(0, torch.float64, CPU)
    mixer, rows = model_mixers.MlaMixer(shape, 64, draw), torch.randn(23, 40, dtype=torch.float64)
    whole = mixer._expanded(rows)
    monkeypatch.setattr(model_mixers, "EXPAND_ROWS", 7)
    for parts, once in zip(mixer._expanded(rows), whole, strict=True):
        torch.testing.assert_close(parts, once)


def test_what_the_expanded_keys_take_is_asked_for_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 sequences of 1M tokens on a machine whose memory holds all but their keys and values."""
    point = ModelPoint.of(KIMI, params_of(1, seqlens="64x1M"))
    assert point.expanded_bytes() == 64 * 2**20 * 2 * (192 + 128) * 4
    has = point.weight_bytes() + point.cache_bytes(2**20) + 2 * point.state_bytes()
    machine = replace(probe_device(), memory_bytes=has + 1)
    monkeypatch.setattr("benchx.measure.device.probe_device", lambda _index: machine)
    with pytest.raises(MemoryError, match="expanded keys and values 160 GiB; the device has"):
        ModelOperator(KIMI, "prefill").make_inputs(point.params, seed=0, device=CPU)


def test_layers_that_expand_nothing_need_nothing_for_it() -> None:
    assert ModelPoint.of(KIMI, params_of(4096, pattern="all_kda")).expanded_bytes() == 0
