"""MLA in torch operations: `expanded`, `absorbed` and `sdpa`, on any device.

The row index of a paged cache and the mask are laid out in `prepare`, as a server does once per
step for all layers; gathering the rows is part of a call, since the paged cache is the input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.ops.base import I_, Unavailable
from benchx.ops.mla_inputs import DecodeInputs, Expanded, Latent, PrefillInputs
from benchx.ops.packages import unsupported

if TYPE_CHECKING:
    import torch

    from benchx_kernels.torch_mla import CachePlan

    Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Bound:
    """A computation bound to its inputs: `call` returns the output `o`."""

    call: Callable[[], torch.Tensor]
    dispatched: str


@dataclass(kw_only=True)
class TorchBackend(Generic[I_]):
    """One way to write the operator in torch.

    Attributes:
        name: Name of the backend.
        operator: Name of the operator.
        bind: Makes the call; called once per set of inputs.
        only_projections: Why it needs `projections: true`, or None when it does either.
        dispatched: What the last bound call runs.
    """

    name: str
    operator: str
    bind: Callable[[I_], Bound]
    only_projections: str | None = None
    dispatched: str | None = field(default=None, init=False)

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """Only a form that lacks its operands is refused; any device will do."""
        reason = self.only_projections
        return unsupported((reason is None or bool(params["projections"]), reason or ""))

    def prepare(self, inputs: I_) -> PreparedCall:
        """Bind to inputs."""
        bound = self.bind(inputs)
        self.dispatched = bound.dispatched
        return PreparedCall(run=lambda: {"o": bound.call()})

    def provenance(self) -> Mapping[str, Any]:
        """Version of torch, the hash of the code that ran, and what it dispatched to."""
        import torch

        from benchx_kernels import torch_mla

        return {
            "package": "torch",
            "version": torch.__version__,
            "module": torch_mla.__name__,
            "sha256": hashlib.sha256(Path(torch_mla.__file__).read_bytes()).hexdigest(),
            "dispatched": self.dispatched,
        }


def _cache_plan(inputs: DecodeInputs) -> CachePlan:
    from benchx_kernels.torch_mla import CachePlan

    return CachePlan.of(
        inputs.block_table, inputs.lengths, page_size=inputs.page_size, tokens=inputs.tokens
    )


def _on_latent(
    inputs: DecodeInputs,
    plan: CachePlan,
    attend: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """`attend(q [B, S, H, C + R], rows [B, L, C + R])`, the projections around it if there are."""
    from benchx_kernels.torch_mla import absorb, project_values

    rows: torch.Tensor = plan.gather(inputs.kv_cache, inputs.q.dtype)
    if inputs.weights is None:
        return attend(inputs.q, rows)
    absorbed = absorb(inputs.q.flatten(0, 1), inputs.weights.w_uk)
    out = attend(absorbed.view(*inputs.q.shape[:3], -1), rows)
    values: torch.Tensor = project_values(out.flatten(0, 1), inputs.weights.w_uv)
    return values.view(*inputs.q.shape[:3], -1)


def _decode_absorbed(inputs: DecodeInputs) -> Bound:
    from benchx_kernels.torch_mla import latent_explicit

    plan = _cache_plan(inputs)

    def attend(q: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = latent_explicit(
            q, rows, plan, kv_lora=inputs.kv_lora, scale=inputs.scale
        )
        return out

    return Bound(lambda: _on_latent(inputs, plan, attend), "bmm, softmax, bmm")


def _decode_sdpa(inputs: DecodeInputs) -> Bound:
    from benchx_kernels.torch_mla import LatentSdpa

    plan = _cache_plan(inputs)
    sdpa = LatentSdpa.of(plan, heads=inputs.q.shape[2])
    rows = plan.gather(inputs.kv_cache, inputs.q.dtype)
    like_q = rows.new_empty(*inputs.q.shape[:3], rows.shape[-1])
    chosen = sdpa.choice(like_q, rows, kv_lora=inputs.kv_lora)

    def attend(q: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = sdpa.attend(q, rows, kv_lora=inputs.kv_lora, scale=inputs.scale)
        return out

    return Bound(lambda: _on_latent(inputs, plan, attend), chosen)


def _decode_expanded(inputs: DecodeInputs) -> Bound:
    """Sequence by sequence: the keys and values of a whole batch would not fit."""
    from benchx_kernels.torch_mla import CachePlan, causal_explicit, expand

    weights = inputs.weights
    assert weights is not None
    plans = [
        CachePlan.of(table, [length], page_size=inputs.page_size, tokens=inputs.tokens)
        for table, length in zip(inputs.block_table[:, None], inputs.lengths, strict=True)
    ]

    def call() -> torch.Tensor:
        out = inputs.q.new_zeros(*inputs.q.shape[:3], weights.w_uv.shape[1])
        for row in (row for row, length in enumerate(inputs.lengths) if length):
            latent = plans[row].gather(inputs.kv_cache, inputs.q.dtype)[0]
            c_kv, k_pe = latent[:, : inputs.kv_lora], latent[:, inputs.kv_lora :]
            k, v = expand(c_kv, k_pe, weights.w_uk, weights.w_uv)
            out[row] = causal_explicit(inputs.q[row], k, v, scale=inputs.scale)
        return out

    return Bound(call, "bmm, softmax, bmm on expanded keys and values")


def _prefill_expanded(inputs: PrefillInputs) -> Bound:
    from benchx_kernels.torch_mla import causal_explicit

    def call() -> torch.Tensor:
        k, v = _keys_and_values(inputs)
        parts = _sequences(inputs, inputs.q, k, v)
        return _packed([causal_explicit(*part, scale=inputs.scale) for part in parts])

    return Bound(call, "bmm, softmax, bmm in blocks of queries")


def _prefill_absorbed(inputs: PrefillInputs) -> Bound:
    import torch

    from benchx_kernels.torch_mla import absorb, causal_explicit, project_values

    latent = inputs.operands
    assert isinstance(latent, Latent)

    def call() -> torch.Tensor:
        q = absorb(inputs.q, latent.weights.w_uk)
        rows = torch.cat([latent.c_kv, latent.k_pe], dim=-1)[:, None]
        parts = _sequences(inputs, q, rows, latent.c_kv[:, None])
        out = _packed([causal_explicit(*part, scale=inputs.scale) for part in parts])
        values: torch.Tensor = project_values(out, latent.weights.w_uv)
        return values

    return Bound(call, "bmm, softmax, bmm on the latent in blocks of queries")


def _prefill_sdpa(inputs: PrefillInputs) -> Bound:
    """One call when all sequences are equal, else one for each."""
    from benchx_kernels.torch_mla import CausalSdpa

    biases = {
        (tokens, keys): CausalSdpa.of(tokens, keys)
        for tokens, keys in zip(inputs.q_lengths, inputs.kv_lengths, strict=True)
        if tokens
    }

    def sdpa_of(q: torch.Tensor, k: torch.Tensor) -> CausalSdpa:
        return biases[q.shape[1], k.shape[1]]

    def call() -> torch.Tensor:
        batches = _batches(inputs, *_keys_and_values(inputs))
        outputs = [sdpa_of(q, k).attend(q, k, v, scale=inputs.scale) for q, k, v in batches]
        return _packed([out.flatten(0, 1) for out in outputs])

    batches = _batches(inputs, *_keys_and_values(inputs))
    chosen = {sdpa_of(q, k).choice(q, k, v) for q, k, v in batches}
    return Bound(call, "; ".join(sorted(chosen)))


def _keys_and_values(inputs: PrefillInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys [Tk, H, N + R] and values [Tk, H, V], expanded when the point starts from the latent."""
    from benchx_kernels.torch_mla import expand

    given = inputs.operands
    if isinstance(given, Expanded):
        return given.k, given.v
    weights = given.weights
    k, v = expand(given.c_kv, given.k_pe, weights.w_uk, weights.w_uv)
    return k, v


def _sequences(
    inputs: PrefillInputs, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> Iterator[Triple]:
    """Queries, keys and values of each sequence that has a query."""
    q_lengths, kv_lengths = list(inputs.q_lengths), list(inputs.kv_lengths)
    parts = zip(
        q.split_with_sizes(q_lengths),
        k.split_with_sizes(kv_lengths),
        v.split_with_sizes(kv_lengths),
        strict=True,
    )
    return (part for part in parts if len(part[0]))


def _batches(inputs: PrefillInputs, k: torch.Tensor, v: torch.Tensor) -> Iterator[Triple]:
    """[N, S, H, *] each: all sequences at once when they are equal, else one by one."""
    count = len(inputs.q_lengths)
    if len({*zip(inputs.q_lengths, inputs.kv_lengths, strict=True)}) == 1:
        q, k, v = (x.view(count, -1, *x.shape[1:]) for x in (inputs.q, k, v))
        return iter([(q, k, v)])
    return ((q[None], k[None], v[None]) for q, k, v in _sequences(inputs, inputs.q, k, v))


def _packed(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """[T, H, V] from the parts of the sequences, without a copy when there is nothing to pack."""
    import torch

    return parts[0].contiguous() if len(parts) == 1 else torch.cat(list(parts))


DECODE_BACKENDS = (
    TorchBackend(name="absorbed", operator="mla_decode", bind=_decode_absorbed),
    TorchBackend(name="sdpa", operator="mla_decode", bind=_decode_sdpa),
    TorchBackend(
        name="expanded",
        operator="mla_decode",
        bind=_decode_expanded,
        only_projections="expanding the cache takes W_UK and W_UV: needs projections: true",
    ),
)
PREFILL_BACKENDS = (
    TorchBackend(name="expanded", operator="mla_prefill", bind=_prefill_expanded),
    TorchBackend(name="sdpa", operator="mla_prefill", bind=_prefill_sdpa),
    TorchBackend(
        name="absorbed",
        operator="mla_prefill",
        bind=_prefill_absorbed,
        only_projections="attention on the latent starts from it: needs projections: true",
    ),
)
