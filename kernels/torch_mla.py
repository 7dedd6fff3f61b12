"""Multi-head latent attention in torch operations, for any device: the baselines of its kernels.

Letters in shapes as in `benchx_kernels.reference_mla`. Scores are kept in fp32, weights are
rounded to the dtype of the values before the second product, as fused kernels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch.backends.cuda import (
    SDPAParams,
    can_use_efficient_attention,
    can_use_flash_attention,
)
from torch.nn.attention import SDPBackend

if TYPE_CHECKING:
    from torch.nn.attention.bias import CausalBias

SCORE_BYTES = 1 << 29
"""Bound on the fp32 scores of one block of queries in explicit attention."""


def scores(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """fp32 [G, M, N] = a [G, M, K] @ b [G, N, K]^T.

    A bf16 result would round a logit of 100 by up to 0.25, a weight by 28 %. Only CUDA's batched
    product has an fp32 result for narrower operands; elsewhere the operands are widened.
    """
    narrow = a.dtype is not torch.float32
    if narrow and a.is_cuda and torch.version.hip is None:
        return torch.bmm(a, b.transpose(1, 2), out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float().transpose(1, 2))


def absorb(q: torch.Tensor, w_uk: torch.Tensor) -> torch.Tensor:
    """Queries against the latent: q [M, H, N + R], w_uk [H, N, C] -> [M, H, C + R]."""
    nope = w_uk.shape[1]
    latent = torch.bmm(q[..., :nope].transpose(0, 1), w_uk).transpose(0, 1)
    return torch.cat([latent, q[..., nope:]], dim=-1)


def project_values(out: torch.Tensor, w_uv: torch.Tensor) -> torch.Tensor:
    """Latent outputs to head outputs: out [M, H, C], w_uv [H, V, C] -> [M, H, V], contiguous."""
    return torch.bmm(out.transpose(0, 1), w_uv.transpose(1, 2)).transpose(0, 1).contiguous()


def expand(
    c_kv: torch.Tensor, k_pe: torch.Tensor, w_uk: torch.Tensor, w_uv: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys [L, H, N + R] and values [L, H, V] from c_kv [L, C] and k_pe [L, R]."""
    heads, nope, _ = w_uk.shape
    k_nope = (c_kv @ w_uk.flatten(0, 1).T).view(-1, heads, nope)
    v = (c_kv @ w_uv.flatten(0, 1).T).view(-1, heads, w_uv.shape[1])
    return torch.cat([k_nope, k_pe[:, None].expand(-1, heads, -1)], dim=-1), v


def causal_explicit(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    score_bytes: int = SCORE_BYTES,
) -> torch.Tensor:
    """Two products and a softmax for one sequence, in blocks of queries, unseen keys left out.

    Args:
        q: [S, H, D]; query i sees the first L - S + i + 1 keys, and L >= S.
        k: [L, G, D] with G = H, or 1 when the heads share the latent.
        v: [L, G, V].
        scale: Factor on the products.
        score_bytes: Bound on the fp32 scores of a block.

    Returns:
        [S, H, V] in v's dtype.
    """
    tokens, heads, _ = q.shape
    keys, groups, width = v.shape
    k, v = k.transpose(0, 1), v.transpose(0, 1)
    out = q.new_empty(tokens, heads, width, dtype=v.dtype)
    step = max(1, score_bytes // max(1, 4 * heads * keys))
    for start in range(0, tokens, step):
        stop = min(start + step, tokens)
        seen, count = keys - tokens + stop, stop - start
        # [G, rows, D]: heads are the groups, or rows of the only group
        rows = q[start:stop].transpose(0, 1) if groups > 1 else q[start:stop].flatten(0, 1)[None]
        s = scores(rows, k[:, :seen]).mul_(scale).view(groups, count, -1, seen)
        future = torch.ones(count, count, dtype=torch.bool, device=q.device).triu(1)
        s[..., seen - count :].masked_fill_(future[:, None], -torch.inf)
        part = torch.bmm(s.softmax(-1).to(v.dtype).flatten(1, 2), v[:, :seen])
        out[start:stop] = part.transpose(0, 1) if groups > 1 else part[0].view(count, heads, width)
    return out


@dataclass(frozen=True, kw_only=True)
class CachePlan:
    """Where the rows of a paged cache are, padded to the longest sequence.

    Attributes:
        slots: int64 [B, L]: row of the flattened cache; padding repeats a row that holds a token,
            so that a weight of 0 never meets a NaN.
        visible: bool [B, S, L]: which keys a query token sees; None when it is all of them.
        empty: int64 [E]: sequences without a token.
    """

    slots: torch.Tensor
    visible: torch.Tensor | None
    empty: torch.Tensor

    @classmethod
    def of(
        cls, block_table: torch.Tensor, lengths: Sequence[int], *, page_size: int, tokens: int
    ) -> CachePlan:
        """The plan of a step with `tokens` query tokens per sequence."""
        device = block_table.device
        seqlens = torch.tensor(list(lengths), device=device)
        position = torch.arange(max(1, *lengths), device=device)
        held = position < seqlens[:, None]
        pages = block_table.long()[:, position // page_size]
        slots = torch.where(held, pages * page_size + position % page_size, -1)
        some = slots.max().clamp(min=0)  # any slot that holds a token
        last = seqlens[:, None] - tokens + torch.arange(tokens, device=device)
        visible = position <= last[..., None]
        return cls(
            slots=torch.where(held, slots, some),
            visible=None if bool(visible.all()) else visible,
            empty=torch.nonzero(seqlens == 0).flatten(),
        )

    def gather(self, kv_cache: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Rows [B, L, C + R] in `dtype` of kv_cache [pages, page_size, C + R]."""
        rows = kv_cache.flatten(0, 1).index_select(0, self.slots.flatten())
        return rows.to(dtype).view(*self.slots.shape, -1)


def latent_explicit(
    q: torch.Tensor, rows: torch.Tensor, plan: CachePlan, *, kv_lora: int, scale: float
) -> torch.Tensor:
    """Attention of q [B, S, H, C + R] on rows [B, L, C + R]: two products and a softmax."""
    batch, tokens, heads, _ = q.shape
    s = scores(q.flatten(1, 2), rows).mul_(scale)
    if plan.visible is not None:
        s.view(batch, tokens, heads, -1).masked_fill_(~plan.visible[:, :, None], -torch.inf)
    out = torch.bmm(s.softmax(-1).to(rows.dtype), rows[..., :kv_lora])
    return out.view(batch, tokens, heads, kv_lora).index_fill_(0, plan.empty, 0)


@dataclass(frozen=True, kw_only=True)
class LatentSdpa:
    """`latent_explicit` by scaled_dot_product_attention.

    The heads become queries of a single head: it would repeat the shared rows for each otherwise.

    Attributes:
        plan: Of the cache.
        mask: bool [B, 1, S * H, L], or None when every query sees every row.
    """

    plan: CachePlan
    mask: torch.Tensor | None

    @classmethod
    def of(cls, plan: CachePlan, heads: int) -> LatentSdpa:
        """The mask, laid out once."""
        if plan.visible is None:
            return cls(plan=plan, mask=None)
        rows = plan.visible[:, :, None].expand(-1, -1, heads, -1).flatten(1, 2)
        return cls(plan=plan, mask=rows[:, None])

    def attend(
        self, q: torch.Tensor, rows: torch.Tensor, *, kv_lora: int, scale: float
    ) -> torch.Tensor:
        """[B, S, H, C] from q [B, S, H, C + R] and rows [B, L, C + R]."""
        q_rows, k, v = self._operands(q, rows, kv_lora)
        out = F.scaled_dot_product_attention(q_rows, k, v, self.mask, scale=scale)
        return out.view(*q.shape[:3], kv_lora).index_fill_(0, self.plan.empty, 0)

    def choice(self, q: torch.Tensor, rows: torch.Tensor, *, kv_lora: int) -> str:
        """Which kernel torch picks for these operands."""
        return sdpa_choice(*self._operands(q, rows, kv_lora), self.mask, causal=False)

    @staticmethod
    def _operands(
        q: torch.Tensor, rows: torch.Tensor, kv_lora: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return q.flatten(1, 2)[:, None], rows[:, None], rows[:, None, :, :kv_lora]


@dataclass(frozen=True, kw_only=True)
class CausalSdpa:
    """Causal scaled_dot_product_attention of N equal sequences, aligned to the end.

    torch's own `is_causal` aligns to the start, so a cached prefix takes its lower-right bias.

    Attributes:
        bias: None without a prefix.
    """

    bias: CausalBias | None

    @classmethod
    def of(cls, tokens: int, keys: int) -> CausalSdpa:
        """For `tokens` queries among `keys` keys."""
        if tokens == keys:
            return cls(bias=None)
        # Only here: it brings in torch's compiler, as many modules as torch itself.
        from torch.nn.attention.bias import causal_lower_right

        return cls(bias=causal_lower_right(tokens, keys))

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, scale: float
    ) -> torch.Tensor:
        """[N, S, H, V] from q [N, S, H, D], k [N, L, H, D] and v [N, L, H, V]."""
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out = F.scaled_dot_product_attention(
            q, k, v, self.bias, is_causal=self.bias is None, scale=scale
        )
        return out.transpose(1, 2)

    def choice(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> str:
        """Which kernel torch picks for these operands."""
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        if self.bias is None:
            return sdpa_choice(q, k, v, None, causal=True)
        # The order in which CausalBias tries them before it writes the mask out.
        wanted = SDPAParams(q, k, v, None, 0.0, False, False)
        if can_use_flash_attention(wanted):
            return "flash_attention, lower-right bias"
        if can_use_efficient_attention(wanted):
            return "efficient_attention, lower-right bias"
        mask = q.new_ones(q.shape[2], k.shape[2], dtype=torch.bool)
        return f"{sdpa_choice(q, k, v, mask, causal=False)}, mask written out"


def sdpa_choice(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, *, causal: bool
) -> str:
    """The kernel that scaled_dot_product_attention picks for these operands, by its own rule."""
    chosen = torch._fused_sdp_choice(q, k, v, mask, 0.0, causal)
    return str(SDPBackend(chosen).name).lower()
