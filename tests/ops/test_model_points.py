"""What a descriptor predicts of a stack, against the tensors that the stack holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchx.architectures import load_architecture, shipped_architectures
from benchx.architectures.parameters import parameters
from benchx.architectures.variants import patterned, shrunk, sliced, variant
from benchx.core.axes import Params, Scalar
from benchx.core.device import Device
from benchx.core.errors import UsageError
from benchx.core.outcome import Outcome
from benchx.measure.device import probe_device
from benchx.ops.model_backend import StackBackend, model_backend_names
from benchx.ops.model_inputs import stack_shape
from benchx.ops.model_operator import PROBE_TOKENS, ModelOperator
from benchx.ops.model_points import ModelPoint
from benchx_kernels.model_attention import TorchAttention
from benchx_kernels.model_stack import Stack

CPU = torch.device("cpu")
KIMI = "kimi-linear-48b-a3b"
SHRINK = {"kimi-k3": 64, "kimi-k2": 32, "deepseek-v3": 64, KIMI: 16, "llama-3.1-70b": 64,
          "qwen3-235b-a22b": 32}  # fmt: skip


def params_of(phase: str, **change: Scalar) -> Params:
    operator = ModelOperator(KIMI, phase)
    defaults = {name: spec.default for name, spec in operator.axes.items()}
    known = {name: value for name, value in defaults.items() if value is not None}
    return known | {"phase": phase, "dtype": "float32", **change}


def backend_of(name: str, phase: str, word: str | None = None) -> StackBackend:
    arch = load_architecture(name)
    usual = "sdpa" if arch.kda is None else "chunked+sdpa"
    return StackBackend.named(word or usual, arch, name, phase)


@pytest.mark.parametrize("name", shipped_architectures())
def test_every_descriptor_has_a_width_to_shrink_to(name: str) -> None:
    assert name in SHRINK


@pytest.mark.parametrize("lengths", ["1", "37", "3x16"])
@pytest.mark.parametrize("name", shipped_architectures())
def test_the_bytes_predicted_are_the_bytes_held_after_a_prefill(name: str, lengths: str) -> None:
    params = params_of(
        "prefill", seqlens=lengths, layers=8, shrink=SHRINK[name], dtype="bfloat16", chunk=20
    )
    operator = ModelOperator(name, "prefill")
    inputs = operator.make_inputs(params, seed=0, device=CPU)
    cache = inputs.new_cache()
    inputs.stack.prefill(inputs.tokens, cache, TorchAttention(), chunk=inputs.chunk)
    work = operator.work(params)
    assert cache.cache_bytes() == work.kv_cache_bytes
    assert cache.state_bytes() == work.kv_state_bytes
    allocated = sum(value.nbytes for layer in cache.layers for value in vars(layer).values())
    assert allocated == work.kv_cache_bytes + work.kv_state_bytes


@pytest.mark.parametrize("name", shipped_architectures())
def test_the_parameters_predicted_are_those_of_the_stack(name: str) -> None:
    arch = shrunk(sliced(load_architecture(name), 6), SHRINK[name])
    stack = Stack(stack_shape(arch), seed=0, dtype=torch.float32, device=CPU)
    assert sum(weight.numel() for weight in stack.weights()) == parameters(arch).total


@pytest.mark.parametrize("cache", ["bfloat16", "float8_e4m3"])
def test_narrower_caches_and_states_are_predicted_too(cache: str) -> None:
    params = params_of(
        "prefill", seqlens="2x24", shrink=16, layers=4, dtype="bfloat16", cache_dtype=cache,
        state_dtype="bfloat16",
    )  # fmt: skip
    operator = ModelOperator(KIMI, "prefill")
    held = operator.make_inputs(params, seed=0, device=CPU).new_cache()
    held.tokens = 24
    assert held.cache_bytes() == operator.work(params).kv_cache_bytes
    assert held.state_bytes() == operator.work(params).kv_state_bytes


BACKENDS = {
    ("prefill", name) for name in ("recurrent+expanded", "chunked+sdpa", "chunked+expanded")
} | {("decode", name) for name in ("recurrent+absorbed", "chunked+sdpa")}


@pytest.mark.parametrize(("phase", "word"), sorted(BACKENDS))
@pytest.mark.parametrize("pattern", ["own", "all_mla", "all_kda"])
def test_backends_agree_with_the_fp64_stack(phase: str, word: str, pattern: str) -> None:
    sizes: dict[str, Scalar] = (
        {"seqlens": "2x40", "prefix": 24, "chunk": 64}
        if phase == "prefill"
        else {"batch": 3, "context": 70, "tokens": 2}
    )
    params = params_of(phase, shrink=16, layers=4, pattern=pattern, **sizes)
    operator = ModelOperator(KIMI, phase)
    inputs = operator.make_inputs(params, seed=0, device=CPU)
    truth = operator.reference(inputs).outputs["logits"]
    call = backend_of(KIMI, phase, word).prepare(inputs.clone())
    first = call.run()["logits"]
    assert (first - truth).norm() < 1e-4 * truth.norm()
    assert call.reset is not None
    call.reset()
    assert torch.equal(call.run()["logits"], first)


@pytest.mark.parametrize("name", ["deepseek-v3", "llama-3.1-70b"])
def test_models_of_one_kind_of_attention_have_one_backend_word(name: str) -> None:
    params = params_of("prefill", seqlens=24, shrink=SHRINK[name], layers=2)
    operator = ModelOperator(name, "prefill")
    inputs = operator.make_inputs(params, seed=0, device=CPU)
    truth = operator.reference(inputs).outputs["logits"]
    found = backend_of(name, "prefill").prepare(inputs).run()["logits"]
    assert (found - truth).norm() < 1e-4 * truth.norm()


def test_only_a_model_with_experts_may_be_off_by_one_of_them() -> None:
    assert ModelOperator("llama-3.1-70b", "prefill").max_rms_ratio == 0.05
    assert ModelOperator(KIMI, "prefill").max_rms_ratio == 0.25


def test_the_probe_is_short_and_shares_the_weights() -> None:
    params = params_of("prefill", seqlens="4x200", prefix=100, shrink=16, layers=4)
    operator = ModelOperator(KIMI, "prefill")
    inputs = operator.make_inputs(params, seed=0, device=CPU)
    probe = operator.probe(inputs)
    assert probe.stack is inputs.stack
    assert tuple(probe.tokens.shape) == (2, PROBE_TOKENS)
    assert (probe.prefix, probe.chunk) == (24, 136)


def test_more_than_the_device_has_is_out_of_memory_with_the_bytes_asked_for() -> None:
    params = params_of("decode", batch=1 << 20, context=1 << 20, layers=4)
    with pytest.raises(MemoryError, match=r"allocate [0-9.]+ TiB: weights .* cache .* the device"):
        ModelOperator(KIMI, "decode").make_inputs(params, seed=0, device=CPU)


@pytest.mark.parametrize(
    ("phase", "change", "told"),
    [
        ("prefill", {"seqlens": 2**21}, "at most 1048576"),
        ("prefill", {"seqlens": 2**20, "prefix": 1}, "1048577 tokens"),
        ("prefill", {"seqlens": "3+4"}, "equally long"),
        ("decode", {"batch": 1, "context": 2, "tokens": 3}, "can't hold 3 new tokens"),
        ("decode", {"batch": 1, "context": 2**21}, "context: 2097152 tokens"),
        ("prefill", {"seqlens": 8, "layers": 99}, "has 27 layers, not 99"),
    ],
)
def test_a_combination_without_sense_is_told(
    phase: str, change: dict[str, Scalar], told: str
) -> None:
    assert told in str(ModelOperator(KIMI, phase).problem(params_of(phase, **change)))


def test_a_pattern_needs_the_layer_that_it_repeats() -> None:
    with pytest.raises(UsageError, match="does not have"):
        patterned(load_architecture("deepseek-v3"), "all_kda")


def test_a_pattern_keeps_everything_but_the_attention() -> None:
    arch = load_architecture(KIMI)
    full = patterned(arch, "all_mla")
    assert full.count("mla") == 27
    assert (full.hidden, full.moe, full.dense_layers) == (arch.hidden, arch.moe, 1)


def test_a_slice_of_kda_layers_only_keeps_kda() -> None:
    assert sliced(load_architecture(KIMI), 3).kinds == ("kda", "kda", "kda")


def test_variants_of_every_architecture_are_valid() -> None:
    for name in shipped_architectures():
        small = variant(load_architecture(name), layers=2, pattern="own", shrink=1000)
        assert small.layers == 2


def test_a_backend_that_lacks_a_device_says_so_before_anything_is_built() -> None:
    device = replace(probe_device(), torch_type="cpu", vendor="cpu")
    params = params_of("prefill", seqlens=64, dtype="bfloat16")
    refusal = backend_of(KIMI, "prefill", "triton+sdpa").unavailable(params, device)
    if refusal is not None:  # the interpreter of Triton counts as a device
        assert refusal.outcome is Outcome.SKIPPED
    refused = backend_of(KIMI, "prefill", "chunked+flashinfer").unavailable(params, device)
    assert isinstance(device, Device)
    assert refused is not None


def test_backend_words_join_those_of_the_operators() -> None:
    names = model_backend_names(load_architecture(KIMI), "prefill")
    assert "triton+sdpa" in names
    assert model_backend_names(load_architecture("llama-3.1-70b"), "decode") == (
        "sdpa",
        "transformers",
    )
    with pytest.raises(UsageError, match="no backend 'chunkd"):
        backend_of(KIMI, "prefill", "chunkd+sdpa")


def test_costs_are_those_of_the_variant_that_runs() -> None:
    whole = ModelPoint.of(KIMI, params_of("prefill", seqlens=1024)).work()
    part = ModelPoint.of(KIMI, params_of("prefill", seqlens=1024, layers=4)).work()
    assert part.kv_cache_bytes * 7 == whole.kv_cache_bytes
    assert part.kv_state_bytes * 20 == whole.kv_state_bytes * 3
    assert part.flops < whole.flops / 4


@pytest.mark.parametrize(("batch", "share"), [(1, 1 / 32), (2, 63 / 1024), (4096, 1.0)])
def test_a_decode_step_reads_the_experts_that_its_tokens_meet(batch: int, share: float) -> None:
    """8 of 256 experts a token, chosen alike: two tokens meet 8 + 8 x 31 / 32 of them."""
    point = ModelPoint.of(KIMI, params_of("decode", batch=batch, context=1, dtype="bfloat16"))
    counted = parameters(point.arch)
    moved = point.cache_bytes(1) + 2 * point.state_bytes()
    rest = 2 * (counted.total - counted.routed - counted.embedding)
    assert point.work().min_bytes == pytest.approx(moved + rest + 2 * counted.routed * share)


def test_a_decode_step_leaves_nothing_new_to_transfer() -> None:
    work = ModelPoint.of(KIMI, params_of("decode", batch=2, context=100)).work()
    assert not work.leaves_kv
    assert work.tokens == 2


@pytest.mark.parametrize(
    ("chunk", "prefix", "lengths"),
    [(0, 8, "2x24"), (1 << 13, 8, "2x24"), (20, 22, "2x10")],
)
def test_backends_are_asked_about_the_last_pass_of_a_prefill(
    chunk: int, prefix: int, lengths: str
) -> None:
    params = params_of("prefill", seqlens="2x24", prefix=8, layers=4, shrink=16, chunk=chunk)
    asked = ModelPoint.of(KIMI, params).mla_params()
    assert asked is not None
    assert (asked["prefix"], asked["seqlens"]) == (prefix, lengths)
