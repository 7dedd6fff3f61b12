"""Widths of a stack of decoder layers, as plain values.

Letters in shapes, here and in the other `model_*` modules: B sequences, S new tokens of each,
d width of the stream, H heads, K and V key and value width of a KDA head, C latent width, R rope
width and N nope width of MLA, G heads of keys and values and D head width of grouped-query
attention, E experts, l their outer and m their inner width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mixer = Literal["kda", "mla", "gqa"]


@dataclass(frozen=True, kw_only=True)
class KdaShape:
    """Kimi Delta Attention: H, K, V, taps of the convolution, form of the decay and output gate."""

    heads: int
    head_dim: int
    value_dim: int
    conv: int
    gate: Literal["softplus", "bounded"]
    lower_bound: float
    full_rank_gate: bool

    @property
    def channels(self) -> tuple[int, int, int]:
        """Columns of q, k and v, all heads."""
        key = self.heads * self.head_dim
        return key, key, self.heads * self.value_dim


@dataclass(frozen=True, kw_only=True)
class MlaShape:
    """Multi-head latent attention: H, rank of q (None: full), C, N, R, V."""

    heads: int
    q_lora: int | None
    kv_lora: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    output_gate: bool
    rope: bool

    @property
    def row_dim(self) -> int:
        """C + R: what a token leaves in the cache."""
        return self.kv_lora + self.rope_dim

    @property
    def qk_dim(self) -> int:
        """N + R: width of expanded q and k."""
        return self.nope_dim + self.rope_dim


@dataclass(frozen=True, kw_only=True)
class GqaShape:
    """Grouped-query attention: H, G, D, and whether q and k are normalised a head."""

    heads: int
    kv_heads: int
    head_dim: int
    qk_norm: bool


@dataclass(frozen=True, kw_only=True)
class MoeShape:
    """Mixture of experts: E, experts a token goes to, shared experts, m, l (None: d).

    The experts of a token are the best of the best `top_groups` of `groups` equal groups, and
    their weights add up to `scale`.
    """

    experts: int
    top_k: int
    shared: int
    intermediate: int
    latent: int | None
    latent_norm: bool
    router: Literal["sigmoid", "softmax"] = "sigmoid"
    scale: float = 1.0
    groups: int = 1
    top_groups: int = 1


@dataclass(frozen=True, kw_only=True)
class SituShape:
    """Bounds of SiTU's two factors (arXiv 2607.24653)."""

    beta: float
    linear_beta: float


@dataclass(frozen=True, kw_only=True)
class StackShape:
    """A stack.

    Attributes:
        hidden: d.
        vocab: Rows of embedding and head.
        mixers: Attention of each layer.
        is_moe: Whether the MLP of each layer is `moe`; else dense.
        dense_intermediate: Width of a dense MLP, if a layer has one.
        tied: Whether the output head is the embedding.
        situ: Activation of the MLPs; None: SiLU.
        residual_block: Layers of a block of attention residuals; None: a plain sum.
    """

    hidden: int
    vocab: int
    mixers: tuple[Mixer, ...]
    is_moe: tuple[bool, ...]
    kda: KdaShape | None
    mla: MlaShape | None
    gqa: GqaShape | None
    moe: MoeShape | None
    dense_intermediate: int | None
    tied: bool
    situ: SituShape | None = None
    residual_block: int | None = None
