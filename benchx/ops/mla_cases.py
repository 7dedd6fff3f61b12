"""Inputs on which MLA kernels are known to break, for any backend on any device.

Sources: public reports against FlashMLA, FlashInfer, vLLM and sglang; the comments name those that
a case reproduces. Widths are those of a real layer (latent 512, rope 64), the only ones that
compiled kernels take, but where a case says otherwise. Slots, pages and block-table entries
without a token are poisoned in all of them (`mla_draw`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchx.core.axes import Params, Scalar, format_lengths
from benchx.ops.mla_draw import make_decode_inputs, make_prefill_inputs
from benchx.ops.mla_inputs import DecodeInputs, MlaShape, PrefillInputs

if TYPE_CHECKING:
    import torch

    from benchx.ops.base import Operator

SEED = 20260202
LARGE_LOGITS = 30.0
"""Standard deviation of the logits: a bf16 logit of 100 is off by 0.25, its weight by 28 %."""

DECODE_LENGTHS: Mapping[str, tuple[int, ...]] = {
    # Empty sequences: FlashMLA#11 and #92; the output is 0.
    "page edges": (0, 1, 63, 64, 65),
    "all empty": (0, 0),
    "empty in front": (0, 65),
    "empty in the middle": (65, 0, 0, 1),
    "empty at the end": (129, 1, 0),
    "one token": (1,),
    "long beside short": (1500, 1, 300, 64),
    "one long sequence": (2049,),
}
DECODE_SHAPES: Mapping[str, dict[str, Scalar]] = {
    "1 head": {"heads": 1},
    "3 heads": {"heads": 3},
    "96 heads": {"heads": 96},
    "128 heads": {"heads": 128},
    "2 tokens": {"tokens": 2},
    "4 tokens": {"tokens": 4},
    # Several tokens of many heads: rows of one token end in the middle of a tile of 64.
    "3 tokens of 96 heads": {"tokens": 3, "heads": 96},
    "pages of 1": {"page_size": 1},
    "pages of 16": {"page_size": 16},
    "pages of 100": {"page_size": 100},
    "fp16": {"dtype": "float16"},
    "fp32": {"dtype": "float32"},
    "fp8 cache": {"cache_dtype": "float8_e4m3"},
    # Rows of 512 and 320: kernels that reuse K as V, or pad to a power of two.
    "no rope": {"rope_dim": 0},
    "latent 256": {"kv_lora": 256},
    "odd widths": {"kv_lora": 72, "rope_dim": 24, "nope_dim": 40},
}
PREFILL_LENGTHS: Mapping[str, tuple[int, ...]] = {
    "1 token": (1,),
    "63 tokens": (63,),
    "64 tokens": (64,),
    "65 tokens": (65,),
    "300 tokens": (300,),
    "equal sequences": (40, 40, 40),
    "empty in front": (0, 65),
    "empty in the middle": (17, 0, 0, 65),
    "empty at the end": (65, 17, 0),
    "tail of one token": (128, 1),
    "long before short": (200, 1, 40),
}
PREFILL_SHAPES: Mapping[str, dict[str, Scalar]] = {
    "1 head": {"heads": 1},
    "12 heads": {"heads": 12},
    "128 heads": {"heads": 128},
    # A cached prefix moves the diagonal: kernels that align it to the start are wrong here.
    "prefix of 1": {"prefix": 1},
    "prefix of 63": {"prefix": 63},
    "prefix of 200": {"prefix": 200},
    "fp16": {"dtype": "float16"},
    "fp32": {"dtype": "float32"},
    "no rope": {"rope_dim": 0},
    "value 64": {"value_dim": 64},
    "odd widths": {"nope_dim": 40, "rope_dim": 24, "value_dim": 72},
}
PROJECTED_SHAPES: Mapping[str, dict[str, Scalar]] = {
    "projections": {},
    "projections, no rope": {"rope_dim": 0},
    "projections, value 64, latent 256": {"value_dim": 64, "kv_lora": 256},
    "projections, fp32": {"dtype": "float32"},
}


@dataclass(frozen=True, kw_only=True)
class DecodeCase:
    """One adversarial decode step.

    Attributes:
        name: What is adversarial about it.
        params: All axes, so that a backend can say whether it is available; `lengths` counts
            where it differs from `context`.
        lengths: Cached tokens per sequence.
        logit_scale: Standard deviation of the logits.
    """

    name: str
    params: Params
    lengths: tuple[int, ...]
    logit_scale: float = 1.0

    def make(self, operator: Operator[DecodeInputs], device: torch.device) -> DecodeInputs:
        """The inputs on `device`."""
        cache_dtype = str(self.params["cache_dtype"])
        return make_decode_inputs(
            MlaShape.of(self.params),
            self.lengths,
            tokens=int(self.params["tokens"]),
            page_size=int(self.params["page_size"]),
            cache_dtype=str(self.params["dtype"]) if cache_dtype == "auto" else cache_dtype,
            seed=SEED,
            device=device,
            logit_scale=self.logit_scale,
        )


@dataclass(frozen=True, kw_only=True)
class PrefillCase:
    """One adversarial prefill; attributes as in `DecodeCase`."""

    name: str
    params: Params
    lengths: tuple[int, ...]
    logit_scale: float = 1.0

    def make(self, operator: Operator[PrefillInputs], device: torch.device) -> PrefillInputs:
        """The inputs on `device`."""
        prefix = int(self.params["prefix"])
        return make_prefill_inputs(
            MlaShape.of(self.params),
            self.lengths,
            [prefix + length for length in self.lengths],
            seed=SEED,
            device=device,
            logit_scale=self.logit_scale,
        )


def decode_cases(operator: Operator[DecodeInputs]) -> Iterator[DecodeCase]:
    """All cases of `mla_decode`."""
    base: Mapping[str, Scalar] = {**_defaults(operator), "heads": 12}

    def case(
        name: str, lengths: tuple[int, ...], changed: Mapping[str, Scalar], logit_scale: float = 1.0
    ) -> DecodeCase:
        shape = {"batch": len(lengths), "context": max(lengths)}
        params = {**base, **shape, **changed}
        return DecodeCase(name=name, params=params, lengths=lengths, logit_scale=logit_scale)

    for name, lengths in DECODE_LENGTHS.items():
        yield case(name, lengths, {})
    some = (65, 0, 4, 130)
    for name, changed in DECODE_SHAPES.items():
        yield case(name, some, changed)
    for name, changed in PROJECTED_SHAPES.items():
        yield case(name, some, {"projections": True, "tokens": 2, **changed})
    yield case("large logits", (1, 65, 300), {}, LARGE_LOGITS)
    yield case("large logits, 2 tokens", (2, 65, 300), {"tokens": 2}, LARGE_LOGITS)


def prefill_cases(operator: Operator[PrefillInputs]) -> Iterator[PrefillCase]:
    """All cases of `mla_prefill`."""
    base: Mapping[str, Scalar] = {**_defaults(operator), "heads": 3}

    def case(
        name: str, lengths: tuple[int, ...], changed: Mapping[str, Scalar], logit_scale: float = 1.0
    ) -> PrefillCase:
        params = {**base, "seqlens": format_lengths(lengths), **changed}
        return PrefillCase(name=name, params=params, lengths=lengths, logit_scale=logit_scale)

    for name, lengths in PREFILL_LENGTHS.items():
        yield case(name, lengths, {})
        yield case(f"{name}, prefix of 37", lengths, {"prefix": 37})
    some = (17, 65, 0, 1)
    for name, changed in PREFILL_SHAPES.items():
        yield case(name, some, changed)
    for name, changed in PROJECTED_SHAPES.items():
        yield case(name, some, {"projections": True, "prefix": 20, **changed})
    yield case("large logits", (200, 33), {}, LARGE_LOGITS)


def _defaults(operator: Operator[PrefillInputs] | Operator[DecodeInputs]) -> dict[str, Scalar]:
    defaults = {name: axis.default for name, axis in operator.axes.items()}
    return {name: value for name, value in defaults.items() if value is not None}
