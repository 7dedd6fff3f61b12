"""What an architecture is: widths, layer pattern and source, checked for contradictions.

Letters used by the modules that derive something from it: d `hidden`, H heads, K and V key and
value width of a KDA head, C `kv_lora`, R `rope_dim`, N `nope_dim` of MLA, l `latent` and
m `intermediate` of the experts.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from benchx.core.units import UnitError
from benchx.scenario.schema import Settings, Slug, Word

Size = Annotated[int, Field(ge=1, le=2**40)]
Count = Annotated[int, Field(ge=0, le=2**40)]
Precision = Literal["float32", "bfloat16", "fp8", "mxfp4"]
LayerKind = Literal["kda", "mla", "gqa"]


class Kda(Settings):
    """Kimi Delta Attention (arXiv 2510.26692).

    Attributes:
        heads: H.
        head_dim: K, also the rank of the decay's projection.
        value_dim: V.
        conv: Taps of the short convolution of q, k and v.
        gate: Form of the decay.
        lower_bound: Smallest log decay of the `bounded` gate.
        output_gate: `low_rank` (rank V) or `full_rank`.
    """

    heads: Size
    head_dim: Size
    value_dim: Size
    conv: Size = 4
    gate: Literal["softplus", "bounded"] = "softplus"
    lower_bound: Annotated[float, Field(lt=0)] = -5.0
    output_gate: Literal["low_rank", "full_rank"] = "low_rank"


class Mla(Settings):
    """Multi-head latent attention (arXiv 2405.04434).

    Attributes:
        heads: H.
        q_lora: Rank of the query's projection; None: a full one.
        kv_lora: C, the latent that is cached.
        nope_dim: N, width of q and k without position.
        rope_dim: R, width of the part that the heads share; it is cached too.
        value_dim: V.
        output_gate: Whether a full-rank gate multiplies the output.
        rope: Whether the shared part is rotated (Kimi Linear and K3 leave it as it is).
    """

    heads: Size
    q_lora: Size | None = None
    kv_lora: Size
    nope_dim: Size
    rope_dim: Count
    value_dim: Size
    output_gate: bool = False
    rope: bool = True


class Gqa(Settings):
    """Grouped-query attention: H query heads share `kv_heads` heads of keys and values."""

    heads: Size
    kv_heads: Size
    head_dim: Size
    qk_norm: bool = False

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.heads % self.kv_heads:
            raise UnitError(f"kv_heads {self.kv_heads}", f"a divisor of heads ({self.heads})")
        return self


class Moe(Settings):
    """A mixture of experts.

    Attributes:
        experts: Routed experts of a layer.
        top_k: How many of them a token goes to.
        shared: Shared experts; they see every token at full width.
        intermediate: m, of routed and shared experts.
        latent: l, width that the routed experts work at (LatentMoE, arXiv 2601.18089); None: d.
        latent_norm: Whether the sum of the experts is normalised before it is widened again.
        router: Form of the scores; `sigmoid` comes with a bias that the choice, but not the
            weights, depends on.
        scale: Factor on the renormalised weights of the chosen experts.
        groups, top_groups: Experts are chosen from the best `top_groups` of `groups` equal groups
            (arXiv 2412.19437, section 2.1.2).
    """

    experts: Size
    top_k: Size
    shared: Count
    intermediate: Size
    latent: Size | None = None
    latent_norm: bool = False
    router: Literal["sigmoid", "softmax"] = "sigmoid"
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    groups: Size = 1
    top_groups: Size = 1

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.top_k > self.experts:
            raise UnitError(f"top_k {self.top_k}", f"at most experts ({self.experts})")
        if self.experts % self.groups or (self.groups > 1 and self.experts < 2 * self.groups):
            raise UnitError(f"groups {self.groups}", f"equal parts of {self.experts} experts, >= 2")
        reachable = self.experts // self.groups * min(self.top_groups, self.groups)
        if self.top_groups > self.groups or self.top_k > reachable:
            raise UnitError(
                f"top_groups {self.top_groups}",
                f"at most groups ({self.groups}), with top_k ({self.top_k}) experts in them",
            )
        return self


class Situ(Settings):
    """SiTU in the place of SiLU: both factors of the gated product are bounded.

    `[b tanh(g / b) sigmoid(g)] x [c tanh(u / c)]` (arXiv 2607.24653).

    Attributes:
        beta: b.
        linear_beta: c.
    """

    beta: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    linear_beta: Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Checkpoint(Settings):
    """Precision of the published weights: the routed experts, and everything else."""

    routed_experts: Precision = "bfloat16"
    others: Precision = "bfloat16"


class Architecture(Settings):
    """One decoder.

    Attributes:
        name: Word in scenarios and commands.
        title: Name for people.
        sources: Where the numbers come from.
        unconfirmed: Dotted keys whose values no primary source was seen for.
        omitted: What the descriptor leaves out, if anything.
        hidden: d.
        vocab: Rows of the embedding.
        layers: Number of layers.
        max_context: Longest sequence that the model is published for.
        tied_embeddings: Whether the output head is the embedding.
        full_attention: Layers with `mla` or `gqa`, from 1; None: all of them. The others are KDA.
        mla: Shape of the full-attention layers, or None.
        gqa: Likewise; exactly one of both is given.
        kda: Shape of the other layers.
        dense_layers: Layers at the start whose MLP is dense; all of them without `moe`.
        dense_intermediate: Width of a dense MLP; None when no layer has one.
        moe: The other layers' MLP.
        situ: Activation of all MLPs; None: SiLU.
        residual_block: Layers of a block of attention residuals (arXiv 2603.15031): each layer
            reads a weighted mix of the blocks before; None: the plain sum.
        checkpoint: Precision of the published weights.
    """

    schema_version: Literal[1] = Field(alias="schema")
    name: Slug
    title: Word
    sources: Annotated[tuple[Word, ...], Field(min_length=1)]
    unconfirmed: tuple[Word, ...] = ()
    omitted: tuple[Word, ...] = ()
    hidden: Size
    vocab: Size
    layers: Size
    max_context: Size
    tied_embeddings: bool = False
    full_attention: tuple[Size, ...] | None = None
    mla: Mla | None = None
    gqa: Gqa | None = None
    kda: Kda | None = None
    dense_layers: Count = 0
    dense_intermediate: Size | None = None
    moe: Moe | None = None
    situ: Situ | None = None
    residual_block: Size | None = None
    checkpoint: Checkpoint = Checkpoint()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for problem, expected in _contradictions(self):
            raise UnitError(problem, expected)
        return self

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """Kind of attention of each layer, first layer first."""
        full: LayerKind = "mla" if self.mla is not None else "gqa"
        if self.full_attention is None:
            return (full,) * self.layers
        chosen = set(self.full_attention)
        return tuple(full if layer in chosen else "kda" for layer in range(1, self.layers + 1))

    @property
    def is_moe(self) -> tuple[bool, ...]:
        """Whether the MLP of each layer is a mixture of experts."""
        return tuple(
            self.moe is not None and layer >= self.dense_layers for layer in range(self.layers)
        )

    def count(self, kind: LayerKind) -> int:
        """Layers of one kind of attention."""
        return self.kinds.count(kind)


def _contradictions(arch: Architecture) -> list[tuple[str, str]]:
    """(what was got, what was expected) for sizes that can't hold together."""
    full, found = arch.full_attention, []
    if (arch.mla is None) == (arch.gqa is None):
        found.append(("both or none of `mla` and `gqa`", "exactly one of `mla` and `gqa`"))
    if full is not None and (len(set(full)) < len(full) or max(full, default=0) > arch.layers):
        found.append((f"full_attention {list(full)}", f"different layers from 1 to {arch.layers}"))
    has_kda = full is not None and len(full) < arch.layers
    if has_kda and arch.kda is None:
        found.append(("`full_attention` without `kda`", "`kda`: the shape of the other layers"))
    if not has_kda and arch.kda is not None:
        found.append(("`kda` without a layer of that kind", "`full_attention`: layers that differ"))
    if arch.dense_layers > arch.layers:
        found.append((f"dense_layers {arch.dense_layers}", f"at most layers ({arch.layers})"))
    if (arch.dense_layers or arch.moe is None) and arch.dense_intermediate is None:
        found.append(("a dense MLP without `dense_intermediate`", "`dense_intermediate`"))
    return found
