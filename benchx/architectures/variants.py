"""Slices and reductions of an architecture: what fits on one device, and what to compare it with.

Each keeps the ratios that matter and is named in the record: a figure of a slice is a shape study,
not a figure of the model.
"""

from __future__ import annotations

from typing import Any

from benchx.architectures.descriptor import Architecture, Moe
from benchx.core.errors import UsageError

PATTERNS = ("own", "all_mla", "all_kda")
"""Attention of the layers: as published, or one kind in all of them at equal width."""

_GRAIN = 16
"""Widths stay multiples of it: grouped products need rows of whole 16-byte words."""


def sliced(arch: Architecture, layers: int) -> Architecture:
    """The first `layers` layers; 0 means all of them.

    Raises:
        UsageError: The model has fewer.
    """
    if not 0 <= layers <= arch.layers:
        raise UsageError(f"{arch.name} has {arch.layers} layers, not {layers}")
    if layers in (0, arch.layers):
        return arch
    change: dict[str, Any] = {"layers": layers, "dense_layers": min(arch.dense_layers, layers)}
    if arch.full_attention is not None:
        change["full_attention"] = tuple(n for n in arch.full_attention if n <= layers)
    return _changed(arch, change)


def patterned(arch: Architecture, pattern: str) -> Architecture:
    """The architecture with one kind of attention in all layers; `own` leaves it as it is.

    Raises:
        UsageError: It has no layer of that kind to repeat.
    """
    if pattern == "own":
        return arch
    if arch.kda is None or arch.mla is None:
        raise UsageError(f"pattern {pattern} repeats a layer that {arch.name} does not have")
    if pattern == "all_mla":
        return _changed(arch, {"full_attention": None, "kda": None})
    return _changed(arch, {"full_attention": ()})


def shrunk(arch: Architecture, divisor: int) -> Architecture:
    """Widths, heads, experts and vocabulary divided; layers and head widths stay."""
    if divisor == 1:
        return arch

    def width(value: int) -> int:
        return max(_GRAIN, value // divisor // _GRAIN * _GRAIN)

    change: dict[str, Any] = {"hidden": width(arch.hidden), "vocab": width(arch.vocab)}
    if arch.dense_intermediate is not None:
        change["dense_intermediate"] = width(arch.dense_intermediate)
    if arch.kda is not None:
        heads = max(1, arch.kda.heads // divisor)
        change["kda"] = arch.kda.model_copy(update={"heads": heads})
    if arch.mla is not None:
        rank = arch.mla.q_lora
        change["mla"] = arch.mla.model_copy(
            update={
                "heads": max(1, arch.mla.heads // divisor),
                "q_lora": None if rank is None else width(rank),
                "kv_lora": width(arch.mla.kv_lora),
            }
        )
    if arch.gqa is not None:
        groups = arch.gqa.heads // arch.gqa.kv_heads
        kv_heads = max(1, arch.gqa.kv_heads // divisor)
        update = {"kv_heads": kv_heads, "heads": kv_heads * groups}
        change["gqa"] = arch.gqa.model_copy(update=update)
    if arch.moe is not None:
        latent, moe = arch.moe.latent, arch.moe
        change["moe"] = arch.moe.model_copy(
            update={
                "experts": _experts(moe, moe.experts // divisor),
                "intermediate": width(arch.moe.intermediate),
                "latent": None if latent is None else width(latent),
            }
        )
    return _changed(arch, change)


def _experts(moe: Moe, wanted: int) -> int:
    """The least number from `wanted` on that a token finds `top_k` of in the groups it may use."""
    a_group = max(-(-wanted // moe.groups), -(-moe.top_k // moe.top_groups))
    return moe.groups * max(a_group, 1 if moe.groups == 1 else 2)


def variant(arch: Architecture, *, layers: int, pattern: str, shrink: int) -> Architecture:
    """All three, in this order."""
    return shrunk(patterned(sliced(arch, layers), pattern), shrink)


def _changed(arch: Architecture, change: dict[str, Any]) -> Architecture:
    """A copy that drops `kda` when no layer is left for it, checked like any other."""
    data = {name: getattr(arch, name) for name in type(arch).model_fields} | change
    full = data["full_attention"]
    if full is not None and len(full) == data["layers"]:
        data |= {"full_attention": None, "kda": None}
    data["schema"] = data.pop("schema_version")
    return Architecture.model_validate(data)
