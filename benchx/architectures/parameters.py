"""Parameters of an architecture, total and active, and the bytes of its weights.

Counted as the layers are built in `benchx_kernels.model_stack`, norms and gates included, so that
a test can compare the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchx.architectures.descriptor import Architecture, Gqa, Kda, LayerKind, Mla, Moe, Precision

BYTES_PER_PARAMETER: Mapping[str, float] = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "fp8": 1.0,
    "mxfp4": 0.53125,
}
"""MXFP4: 4 bits and one 8-bit scale for 32 values (OCP Microscaling formats, v1.0); fp8 without
its scales, which are below 0.1 % in blocks of 128 x 128."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of a model by what decides their precision and where they live.

    Attributes:
        embedding: Rows that tokens look up; not multiplied with anything.
        head: Output head; 0 when it is the embedding.
        attention: All attention layers.
        dense: Dense MLPs, routers, shared experts, latent projections and norms.
        routed: Routed experts.
        routed_active: Those of them that one token meets.
        tied: Whether the embedding is multiplied as the output head too.
    """

    embedding: int
    head: int
    attention: int
    dense: int
    routed: int
    routed_active: int
    tied: bool

    @property
    def total(self) -> int:
        """Every parameter once."""
        return self.embedding + self.head + self.attention + self.dense + self.routed

    @property
    def active(self) -> int:
        """Parameters that one token is multiplied with; the lookup of its embedding is not one."""
        head = self.embedding if self.tied else self.head
        return head + self.attention + self.dense + self.routed_active

    def weight_bytes(self, *, routed: Precision, others: Precision) -> int:
        """Bytes of all weights with routed experts in one precision and the rest in another."""
        rest = self.total - self.routed
        size = self.routed * BYTES_PER_PARAMETER[routed] + rest * BYTES_PER_PARAMETER[others]
        return round(size)

    def rank_weight_bytes(
        self, *, routed: Precision, others: Precision, tensor: int = 1, expert: int = 1
    ) -> int:
        """Bytes on one rank: routed experts over the more of both ranks, the rest over `tensor`.

        With more expert than tensor ranks the former span several groups of the latter (data
        parallel attention); with fewer, tensor ranks split each expert too. Norms, routers and
        MLA's down-projections are replicated in practice and counted as split: below 1 % of a
        rank of eight, more of smaller ones.
        """
        rest = (self.total - self.routed) * BYTES_PER_PARAMETER[others] / tensor
        return round(self.routed * BYTES_PER_PARAMETER[routed] / max(tensor, expert) + rest)


def parameters(arch: Architecture) -> Parameters:
    """Count them, layer by layer."""
    moe_layers = sum(arch.is_moe)
    dense_layers = arch.layers - moe_layers
    dense = dense_layers * 3 * arch.hidden * (arch.dense_intermediate or 0)
    routed = active = 0
    if arch.moe is not None:
        expert = expert_parameters(arch.moe, arch.hidden)
        routed = moe_layers * arch.moe.experts * expert
        active = moe_layers * arch.moe.top_k * expert
        dense += moe_layers * _moe_resident(arch.moe, arch.hidden)
    readings = 2 * arch.layers + 1
    norms = readings * arch.hidden
    if arch.residual_block is not None:
        norms += 2 * readings * arch.hidden  # a query and a norm for each reading of the stream
    return Parameters(
        embedding=arch.vocab * arch.hidden,
        head=0 if arch.tied_embeddings else arch.vocab * arch.hidden,
        attention=sum(attention_parameters(arch, kind) for kind in arch.kinds),
        dense=dense + norms,
        routed=routed,
        routed_active=active,
        tied=arch.tied_embeddings,
    )


def expert_parameters(moe: Moe, hidden: int) -> int:
    """One routed expert: gate, up and down projections at the latent width, 3 l m."""
    return 3 * (moe.latent or hidden) * moe.intermediate


def attention_parameters(arch: Architecture, kind: LayerKind) -> int:
    """One attention layer of a kind."""
    if kind == "kda" and arch.kda is not None:
        return _kda(arch.kda, arch.hidden)
    if kind == "mla" and arch.mla is not None:
        return _mla(arch.mla, arch.hidden)
    if kind == "gqa" and arch.gqa is not None:
        return _gqa(arch.gqa, arch.hidden)
    raise ValueError(f"{arch.name} has no layer of kind {kind}")


def _moe_resident(moe: Moe, hidden: int) -> int:
    """What every token meets: router (with its bias), shared experts, latent projections."""
    found = moe.experts * (hidden + (moe.router == "sigmoid"))
    found += moe.shared * 3 * hidden * moe.intermediate
    if moe.latent is not None:
        found += 2 * hidden * moe.latent + (moe.latent if moe.latent_norm else 0)
    return found


def _kda(kda: Kda, hidden: int) -> int:
    """q, k, v, o; three short convolutions; decay of rank K; beta; output gate and its norm."""
    key, value = kda.heads * kda.head_dim, kda.heads * kda.value_dim
    found = hidden * (2 * key + value) + value * hidden + kda.conv * (2 * key + value)
    found += kda.head_dim * (hidden + key) + key + kda.heads + hidden * kda.heads
    if kda.output_gate == "full_rank":
        found += hidden * value
    else:
        found += kda.value_dim * (hidden + value)
    return found + kda.value_dim


def _mla(mla: Mla, hidden: int) -> int:
    """The query (through a norm at its rank, if it has one), latent, W_UK and W_UV, o."""
    width, value = mla.heads * (mla.nope_dim + mla.rope_dim), mla.heads * mla.value_dim
    rank = mla.q_lora
    found = hidden * width if rank is None else rank * (hidden + 1 + width)
    found += hidden * (mla.kv_lora + mla.rope_dim) + mla.kv_lora
    found += mla.kv_lora * mla.heads * (mla.nope_dim + mla.value_dim) + value * hidden
    return found + (hidden * value if mla.output_gate else 0)


def _gqa(gqa: Gqa, hidden: int) -> int:
    """q, k, v and o, and the norms of q and k where there are any."""
    found = hidden * gqa.head_dim * (2 * gqa.heads + 2 * gqa.kv_heads)
    return found + (2 * gqa.head_dim if gqa.qk_norm else 0)
