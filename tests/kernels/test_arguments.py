"""Every argument of every kernel, given as nothing, as something else, or in another rank."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from benchx_kernels._arguments import check_current
from benchx_kernels._configs import DecodeConfig, PrefillConfig
from benchx_kernels._launch import Launcher
from benchx_kernels._mla_configs import MlaDecodeConfig, MlaPrefillConfig
from benchx_kernels.batch import Batch
from benchx_kernels.chunk_prefill import States, chunk_prefill
from benchx_kernels.gate import Gate
from benchx_kernels.kda_decode import kda_decode
from benchx_kernels.mla_decode import mla_decode
from benchx_kernels.mla_prefill import mla_prefill
from benchx_kernels.short_conv import short_conv

T, H, W = 5, 1, 64
LEARNED: dict[str, Any] = {"a_log": torch.zeros(H), "dt_bias": torch.zeros(H, W)}
BATCH = Batch.from_lengths((T,), "cpu")
PREFILL_CUT: dict[str, Any] = {
    "chunk": 32, "intra_warps": 4, "block_v": 64, "warps": 4, "stages": 1, "prefix_stages": 1,
}  # fmt: skip

Arguments = dict[str, Any]


def halves(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16)


def gate(*shape: int, **change: Any) -> Gate:  # noqa: ANN401
    return Gate(**{"kind": "bounded", "g": halves(*shape), **LEARNED, **change})


def prefill() -> Arguments:
    return {
        "q": halves(T, H, W), "k": halves(T, H, W), "v": halves(T, H, W), "beta": halves(T, H),
        "gate": gate(T, H, W), "batch": BATCH, "scale": 0.1, "states": States(),
        "qk_l2norm": True, "config": PrefillConfig(**PREFILL_CUT),
    }  # fmt: skip


def decode() -> Arguments:
    return {
        "q": halves(2, 1, H, W), "k": halves(2, 1, H, W), "v": halves(2, 1, H, W),
        "beta": halves(2, 1, H), "state": torch.zeros(2, H, W, W), "gate": gate(2, 1, H, W),
        "scale": 0.1, "slots": torch.tensor([0, 1]), "state_v_first": True, "qk_l2norm": True,
        "config": DecodeConfig(block_v=8, warps=1),
    }  # fmt: skip


def latent() -> Arguments:
    return {
        "q": halves(1, 1, 16, 576), "kv_cache": halves(2, 64, 576),
        "block_table": torch.tensor([[0, 1]], dtype=torch.int32),
        "seqlens": torch.tensor([70], dtype=torch.int32), "kv_lora": 512, "scale": 0.1,
        "longest": 70, "config": MlaDecodeConfig(),
    }  # fmt: skip


def expanded() -> Arguments:
    return {
        "q": halves(T, 2, 192), "k": halves(T, 2, 192), "v": halves(T, 2, 128),
        "queries": BATCH, "keys": BATCH, "scale": 0.1, "config": MlaPrefillConfig(),
    }  # fmt: skip


def filters() -> Arguments:
    return {"x": torch.zeros(1, 2, 4), "taps": torch.zeros(4, 4), "window": torch.zeros(1, 3, 4)}


KERNELS: dict[str, tuple[Callable[..., Any], Callable[[], Arguments]]] = {
    "chunk_prefill": (chunk_prefill, prefill),
    "kda_decode": (kda_decode, decode),
    "mla_decode": (mla_decode, latent),
    "mla_prefill": (mla_prefill, expanded),
    "short_conv": (short_conv, filters),
}
OPTIONAL = {"beta", "states", "slots", "longest", "config"}
WRONG = [None, "70", 1.5, [8], {"splits": 2}, halves(), torch.zeros(2, 2, 2, 2, 2), object()]
CASES = [(name, argument) for name, (_, made) in KERNELS.items() for argument in made()]


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_an_argument_of_a_wrong_kind_is_a_value_error(name: str, argument: str) -> None:
    kernel, made = KERNELS[name]
    optional = argument in OPTIONAL and (name, argument) != ("kda_decode", "beta")
    for value in WRONG:
        if (value is None and optional) or (isinstance(value, float) and argument == "scale"):
            continue
        with pytest.raises(ValueError, match=r"."):
            kernel(**(made() | {argument: value}))


@pytest.mark.parametrize("field", ["kind", "g", "a_log", "dt_bias", "lower_bound"])
@pytest.mark.parametrize("name", ["chunk_prefill", "kda_decode"])
def test_a_field_of_a_gate_of_a_wrong_kind_is_a_value_error(name: str, field: str) -> None:
    kernel, made = KERNELS[name]
    shape = made()["q"].shape
    for value in WRONG:
        with pytest.raises(ValueError, match=r"."):
            kernel(**(made() | {"gate": gate(*shape, **{field: value})}))


def test_a_pool_of_states_without_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match="state has 0 dimensions; expected 4"):
        kda_decode(**(decode() | {"state": torch.zeros(())}))


def test_a_latent_width_that_only_equals_a_known_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kv_lora is 512\.0; expected a whole number"):
        mla_decode(**(latent() | {"kv_lora": 512.0}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Batch.from_lengths(cast(Any, None), "cpu"),
        lambda: Batch.from_lengths(cast(Any, torch.tensor([5])), "cpu"),
        lambda: Batch.from_lengths(cast(Any, ["5"]), "cpu"),
        lambda: Batch.from_lengths(cast(Any, [float("nan")]), "cpu"),
        lambda: Batch.from_lengths(cast(Any, [2.5]), "cpu"),
        lambda: Batch.from_lengths([9, -4], "cpu"),
        lambda: Batch.from_cu_seqlens(cast(Any, [0, 5]), 5),
        lambda: Batch.from_cu_seqlens(cast(Any, None), 5),
        lambda: Batch.from_cu_seqlens(torch.tensor([False, True]), 1),
        lambda: Batch(torch.tensor([0, 5, 5]), (9, -4)),
        lambda: Batch(BATCH.cu_seqlens, cast(Any, [5])),
        lambda: Batch(cast(Any, [0, 5]), (5,)),
    ],
)
def test_a_batch_of_anything_but_lengths_is_a_value_error(make: Callable[[], Batch]) -> None:
    with pytest.raises(ValueError, match=r"expected|cu_seqlens"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrefillConfig(**PREFILL_CUT | {"block_v": 48}),
        lambda: PrefillConfig(**PREFILL_CUT | {"block_v": 0}),
        lambda: PrefillConfig(**PREFILL_CUT | {"chunk": 48}),
        lambda: PrefillConfig(**PREFILL_CUT | {"warps": 3}),
        lambda: PrefillConfig(**PREFILL_CUT | {"intra_registers": 1000}),
        lambda: PrefillConfig(**PREFILL_CUT | {"segment_chunks": -1}),
        lambda: DecodeConfig(block_v=48, warps=1),
        lambda: DecodeConfig(block_v=8, warps=cast(Any, 1.0)),
        lambda: MlaDecodeConfig(block_m=24),
        lambda: MlaDecodeConfig(block_m=0),
        lambda: MlaDecodeConfig(splits=cast(Any, 1.5)),
        lambda: MlaDecodeConfig(splits=-1),
        lambda: MlaDecodeConfig(splits=129),
        lambda: MlaDecodeConfig(kernel=cast(Any, "hooper")),
        lambda: MlaPrefillConfig(kernel=cast(Any, "x")),
        lambda: MlaPrefillConfig(heads_together=-1),
    ],
)
def test_a_cut_that_no_kernel_has_is_a_value_error_where_it_is_made(
    make: Callable[[], object],
) -> None:
    with pytest.raises(ValueError, match=r"Config\.\w+ is .*; expected"):
        make()


def test_a_block_that_leaves_columns_uncomputed_is_refused() -> None:
    """It would return what was in the memory before."""
    with pytest.raises(ValueError, match="block_v is 256; it does not divide 64 columns"):
        kda_decode(**(decode() | {"config": DecodeConfig(block_v=256, warps=4)}))
    wide = PrefillConfig(**PREFILL_CUT | {"block_v": 128})
    with pytest.raises(ValueError, match="block_v is 128; it does not divide 64 columns"):
        chunk_prefill(**(prefill() | {"config": wide}))


def test_tensors_on_another_gpu_than_the_current_one_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    check_current(torch.device("cpu"))
    check_current(torch.device("cuda", 0))
    with pytest.raises(ValueError, match="q is on cuda:1, and the current device is cuda:0"):
        check_current(torch.device("cuda", 1))


def test_a_launch_by_a_second_thread_never_lacks_the_constants() -> None:
    """The second thread launches while the first is still noting what it compiled."""
    seen: list[tuple[object, ...]] = []
    noting, done = threading.Event(), threading.Event()

    class Names(tuple[str, ...]):
        def __getitem__(self, index: Any) -> Any:  # noqa: ANN401
            if not noting.is_set():
                noting.set()
                done.wait(2)
            return super().__getitem__(index)

    class Kernel:
        arg_names = Names(("x", "WIDTH"))

        def __getitem__(self, grid: object) -> Callable[..., Any]:
            def launch(*arguments: object, **constants: object) -> object:
                seen.append((*arguments, constants["WIDTH"]))
                return Compiled()

            return launch

    class Compiled:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            return lambda *arguments: seen.append(arguments)

    launch = Launcher(cast(Any, Kernel()), {"WIDTH": 64}, {})
    first = threading.Thread(target=launch, args=((1, 1, 1), "first"))
    first.start()
    noting.wait(2)
    second = threading.Thread(target=launch, args=((1, 1, 1), "second"))
    second.start()
    second.join(0.2)
    done.set()
    first.join()
    second.join()
    assert sorted(seen) == [("first", 64), ("second", 64)]
