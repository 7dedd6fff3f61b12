"""The definitions of `mla_prefill` and `mla_decode`: costs, inputs, reference, what makes sense."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import benchx.ops.catalog  # noqa: F401
from benchx.core.axes import Params, Scalar
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.mla_decode import context_lengths
from benchx.ops.mla_inputs import (
    UNUSED_PAGE,
    DecodeInputs,
    Expanded,
    Latent,
    MlaShape,
    causal_pairs,
    projected_flops,
)

DECODE, PREFILL = OPERATORS.get("mla_decode"), OPERATORS.get("mla_prefill")
CPU = torch.device("cpu")


def decode(**changed: Scalar) -> Params:
    base = {"heads": 2, "batch": 3, "context": 100}
    return {name: axis.default for name, axis in DECODE.axes.items()} | base | changed


def prefill(**changed: Scalar) -> Params:
    base = {"heads": 2, "seqlens": "0+5+3"}
    return {name: axis.default for name, axis in PREFILL.axes.items()} | base | changed


def test_decode_costs_agree_with_flashmla_s_count() -> None:
    work = DECODE.work(decode(heads=128, batch=128, context=4096))
    assert work.flops == 2 * 128 * 128 * 4096 * (576 + 512)
    assert work.min_bytes == 128 * (4096 * 576 * 2 + 128 * (576 + 512) * 2)
    assert (work.tokens, work.leaves_kv) == (128, False)


def test_an_fp8_cache_halves_the_bytes_of_the_rows_alone() -> None:
    wide, narrow = (DECODE.work(decode(cache_dtype=d)) for d in ("bfloat16", "float8_e4m3"))
    assert wide.min_bytes - narrow.min_bytes == 3 * 100 * 576


def test_decode_with_projections_adds_their_products_and_their_weights() -> None:
    core, full = DECODE.work(decode()), DECODE.work(decode(projections=True))
    assert full.flops - core.flops == 2 * 3 * 2 * (128 + 128) * 512
    assert full.min_bytes == 3 * 100 * 576 * 2 + 2 * (3 * 2 * (192 + 128) + 2 * 256 * 512)


def test_prefill_costs_are_causal() -> None:
    work = PREFILL.work(prefill(heads=16, seqlens="8192"))
    assert work.flops == 2 * 16 * (8192 * 8193 // 2) * (192 + 128)
    assert work.min_bytes == 2 * 8192 * 16 * (192 + 192 + 128 + 128)


def test_prefill_with_projections_adds_the_expansion() -> None:
    core = PREFILL.work(prefill(heads=16, seqlens="100", prefix=50))
    full = PREFILL.work(prefill(heads=16, seqlens="100", prefix=50, projections=True))
    assert full.flops - core.flops == 2 * 150 * 512 * 16 * (128 + 128)


def test_prefill_leaves_the_latent_of_the_new_tokens_behind() -> None:
    work = PREFILL.work(prefill(heads=16, seqlens="100+20", prefix=50))
    assert work.kv_cache_bytes == 120 * 1152
    assert (work.kv_state_bytes, work.tokens, work.leaves_kv) == (0, 120, True)
    assert PREFILL.work(prefill(rope_dim=0)).kv_cache_bytes == 8 * 1024


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5))
def test_pairs_are_those_of_the_triangle_aligned_to_the_end(parts: list[tuple[int, int]]) -> None:
    lengths = [(tokens, tokens + prefix) for tokens, prefix in parts]
    counted = sum(keys - tokens + i + 1 for tokens, keys in lengths for i in range(tokens))
    q_lengths, kv_lengths = zip(*lengths, strict=True)
    assert causal_pairs(q_lengths, kv_lengths) == counted


@given(st.integers(1, 40), st.integers(0, 5000), st.floats(0, 0.99))
def test_spread_contexts_keep_their_mean(batch: int, context: int, spread: float) -> None:
    lengths = context_lengths(decode(batch=batch, context=context, context_spread=spread))
    assert len(lengths) == batch
    assert abs(sum(lengths) / batch - context) <= 0.5
    assert sorted(lengths) == list(lengths)


@pytest.mark.parametrize(
    ("params", "word"),
    [
        (decode(context=3, tokens=4), "can't hold the 4 new tokens"),
        (decode(context_spread=1.0), "below 1"),
        (decode(dtype="float32", cache_dtype="bfloat16"), "cache_dtype bfloat16"),
        (prefill(seqlens="0+0"), "holds no token"),
    ],
)
def test_a_combination_that_means_nothing_is_a_problem(params: Params, word: str) -> None:
    operator = DECODE if "context" in params else PREFILL
    assert word in (operator.problem(params) or "")


def test_an_empty_context_is_no_problem() -> None:
    assert DECODE.problem(decode(context=0, tokens=4)) is None


@pytest.mark.parametrize("projections", [False, True])
def test_equal_seeds_give_equal_inputs_and_others_do_not(projections: bool) -> None:
    for operator, params in (
        (DECODE, decode(context=70, projections=projections)),
        (PREFILL, prefill(projections=projections)),
    ):
        one, same, other = (
            operator.make_inputs(params, seed=seed, device=CPU) for seed in (1, 1, 2)
        )
        assert torch.equal(one.q, same.q)
        assert not torch.equal(one.q, other.q)


def held(inputs: DecodeInputs) -> torch.Tensor:
    """Bool [pages, page_size]: slots that hold a token."""
    mask = torch.zeros(inputs.kv_cache.shape[:2], dtype=torch.bool)
    for table, length in zip(inputs.block_table, inputs.lengths, strict=True):
        for position in range(length):
            mask[table[position // inputs.page_size], position % inputs.page_size] = True
    return mask


def test_slots_without_a_token_are_poisoned_and_pages_are_shuffled() -> None:
    params = decode(context=100, context_spread=0.5, page_size=16)
    inputs = DECODE.make_inputs(params, seed=1, device=CPU)
    mask = held(inputs)
    assert int(mask.sum()) == sum(inputs.lengths) == int(inputs.seqlens.sum())
    assert not inputs.kv_cache[mask].isnan().any()
    assert inputs.kv_cache[~mask].isnan().all()
    used = inputs.block_table[inputs.block_table != UNUSED_PAGE]
    assert len(used.unique()) == len(used)
    assert used.tolist() != sorted(used.tolist())
    assert (inputs.block_table == UNUSED_PAGE).any()


def test_logits_have_unit_variance() -> None:
    core = DECODE.make_inputs(decode(heads=8, batch=1, context=512), seed=1, device=CPU)
    rows = core.kv_cache[core.block_table[0].long()].flatten(0, 1).float()
    logits = torch.einsum("bshd,ld->bshl", core.q.float(), rows) * core.scale
    assert 0.9 < float(logits.std()) < 1.1
    full = PREFILL.make_inputs(
        prefill(seqlens="256", heads=4, projections=True), seed=1, device=CPU
    )
    latent = full.operands
    assert isinstance(latent, Latent)
    k_nope = torch.einsum("lc,hnc->lhn", latent.c_kv.float(), latent.weights.w_uk.float())
    assert 0.9 < float(k_nope.std()) < 1.1


def test_a_clone_shares_no_memory() -> None:
    inputs = DECODE.make_inputs(decode(), seed=1, device=CPU)
    copy = inputs.clone()
    copy.kv_cache.zero_()
    assert inputs.kv_cache.nan_to_num().abs().sum() > 0
    assert copy.nbytes() == inputs.nbytes() >= inputs.kv_cache.nbytes


@pytest.mark.parametrize(("operator", "params"), [(DECODE, decode()), (PREFILL, prefill())])
@pytest.mark.parametrize("projections", [False, True])
def test_the_reference_covers_what_a_backend_must_return(
    operator: Any,  # noqa: ANN401
    params: Params,
    projections: bool,
) -> None:
    inputs = operator.make_inputs({**params, "projections": projections}, seed=1, device=CPU)
    reference, specs = operator.reference(inputs), operator.output_specs(inputs)
    assert reference.heads is None
    assert reference.outputs["o"].shape == specs["o"].shape
    assert reference.outputs["o"].dtype == torch.float64
    assert reference.method == "fp64 softmax attention"


@pytest.mark.parametrize("operator", [DECODE, PREFILL])
def test_a_sampled_reference_says_so_and_equals_the_whole(
    operator: Any,  # noqa: ANN401
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = decode(heads=7) if operator is DECODE else prefill(heads=7)
    inputs = operator.make_inputs(params, seed=1, device=CPU)
    whole = operator.reference(inputs).outputs["o"]
    monkeypatch.setattr("benchx.ops.mla_reference.BUDGET_FLOPS", {"cpu": 1.0})
    sample = operator.reference(inputs)
    assert sample.heads == (0, 3, 6)
    assert sample.method == "fp64 softmax attention, 3 of 7 heads (0+3+6)"
    chosen = whole.index_select(sample.head_dims["o"], torch.tensor(sample.heads))
    torch.testing.assert_close(sample.outputs["o"], chosen, rtol=1e-12, atol=1e-12)


def test_inputs_give_their_operands_in_the_form_of_the_point() -> None:
    core = PREFILL.make_inputs(prefill(), seed=1, device=CPU)
    full = PREFILL.make_inputs(prefill(projections=True), seed=1, device=CPU)
    assert isinstance(core.operands, Expanded)
    assert isinstance(full.operands, Latent)
    assert core.cu_seqlens_q.tolist() == [0, 0, 5, 8]
    assert core.cu_seqlens_q.dtype == torch.int32


def test_torch_backends_say_what_ran() -> None:
    inputs = PREFILL.make_inputs(prefill(seqlens="9"), seed=1, device=CPU)
    sdpa = backends_of("mla_prefill").get("sdpa")
    sdpa.prepare(inputs)
    said = sdpa.provenance()
    assert said["version"] == torch.__version__
    assert said["dispatched"] in {"math", "flash_attention"}
    assert len(said["sha256"]) == 64


SHORT_WIDTHS: dict[str, Any] = {
    "heads": 3, "nope_dim": 16, "rope_dim": 8, "value_dim": 16, "kv_lora": 64, "dtype": "float32",
    "projections": True,
}  # fmt: skip


@pytest.mark.parametrize("backend", ["absorbed", "expanded"])
@pytest.mark.parametrize(("seqlens", "prefix"), [("1", 400), ("7+30", 90), ("64", 0), ("40", 20)])
def test_no_prefill_with_projections_does_fewer_flops_than_its_work_counts(
    backend: str, seqlens: str, prefix: int
) -> None:
    params = prefill(seqlens=seqlens, prefix=prefix, **SHORT_WIDTHS)
    assert _products(PREFILL, backend, params) >= PREFILL.work(params).flops


@pytest.mark.parametrize("backend", ["absorbed", "expanded"])
@pytest.mark.parametrize(("tokens", "context"), [(1, 300), (1, 1), (60, 64)])
def test_no_decode_with_projections_does_fewer_flops_than_its_work_counts(
    backend: str, tokens: int, context: int
) -> None:
    params = decode(batch=2, tokens=tokens, context=context, **SHORT_WIDTHS)
    assert _products(DECODE, backend, params) >= DECODE.work(params).flops


def _products(operator: Any, backend: str, params: Params) -> int:  # noqa: ANN401
    """FLOPs of the matrix products and attentions that torch counted in one call."""
    call = (
        backends_of(operator.name)
        .get(backend)
        .prepare(operator.make_inputs(params, seed=0, device=CPU))
    )
    with FlopCounterMode(display=False) as counter:
        call.run()
    return int(counter.get_total_flops())


def test_a_token_behind_a_long_prefix_is_counted_absorbed_and_a_whole_prompt_expanded() -> None:
    shape = MlaShape.of(prefill(heads=16, projections=True))
    weights = 2 * 16 * (128 + 128) * 512
    pairs = 8193
    assert projected_flops(shape, (1,), (pairs,)) == weights + 2 * 16 * pairs * (512 + 64 + 512)
    whole = 1024 * weights + 2 * 16 * (1024 * 1025 // 2) * (128 + 64 + 128)
    assert projected_flops(shape, (1024,), (1024,)) == whole
    assert projected_flops(shape, (1, 1024), (pairs, 1024)) == whole + projected_flops(
        shape, (1,), (pairs,)
    )


@given(st.integers(1, 300), st.integers(0, 3000), st.sampled_from([1, 16, 128]))
def test_work_with_projections_is_never_above_either_form(
    new: int, prefix: int, heads: int
) -> None:
    params = prefill(seqlens=str(new), prefix=prefix, heads=heads, projections=True)
    keys, pairs = new + prefix, new * (new + prefix) - new * (new - 1) // 2
    weights = 2 * heads * 256 * 512
    counted = PREFILL.work(params).flops
    assert counted <= keys * weights + 2 * heads * pairs * 320
    assert counted <= new * weights + 2 * heads * pairs * 1088
