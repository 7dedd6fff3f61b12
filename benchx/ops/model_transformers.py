"""transformers' own modules as a backend of a model point, on the same weights, prompt and cache.

Somebody else's model is a check in both directions: it is judged by our stack in fp64, and our
stack by agreeing with it. Attention is torch's scaled_dot_product_attention, the cache grows by
concatenation, MLA is expanded in decode too: what a user of transformers gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchx.core.axes import Params
from benchx.core.call import PreparedCall
from benchx.core.device import Device
from benchx.ops.base import Unavailable
from benchx.ops.model_inputs import ModelInputs
from benchx.ops.model_points import ModelPoint
from benchx.ops.packages import unsupported
from benchx.ops.transformers_family import PACKAGE, class_problem, config_values, model_type

if TYPE_CHECKING:
    from torch import Tensor

    from benchx.core.call import Tensors
    from benchx_kernels.model_cache import KdaCache, StackCache

NAME = "transformers"


@dataclass(frozen=True, kw_only=True)
class TransformersBackend:
    """A `Backend[ModelInputs]`.

    Attributes:
        operator: Name or path of the architecture.
        phase: prefill or decode.
        name: As in scenarios.
    """

    operator: str
    phase: str
    name: str = NAME

    def unavailable(self, params: Params, device: Device) -> Unavailable | None:
        """No such class, dtypes that it does not keep apart, or no transformers."""
        point = ModelPoint.of(self.operator, params)
        problem = class_problem(point.arch)
        refused = unsupported(
            (problem is None, str(problem)),
            (
                point.cache_dtype == params["dtype"],
                f"transformers caches in the dtype of the weights, not in {point.cache_dtype}",
            ),
            (
                params["state_dtype"] == "float32" or point.arch.kda is None,
                "transformers keeps KDA's state in float32",
            ),
        )
        return refused or PACKAGE.absent(device)

    def prepare(self, inputs: ModelInputs) -> PreparedCall:
        """Builds the modules around the stack's tensors; a call grows a cache of its own."""
        import torch

        model, cached = _model(inputs), _Cached(inputs)

        @torch.inference_mode()
        def run() -> Tensors:
            cache = cached.take(model.config)
            for part in torch.split(inputs.tokens, inputs.chunk, dim=1):
                out = model(input_ids=part, cache=cache, use_cache=True, logits_to_keep=1)
            return {"logits": out.logits[:, -1].contiguous()}

        return PreparedCall(run=run, reset=lambda: cached.renew(model.config), graph_safe=False)

    def provenance(self) -> Mapping[str, Any]:
        """The package; what it computes KDA with depends on what else is installed."""
        return PACKAGE.provenance()


def _model(inputs: ModelInputs) -> Any:  # noqa: ANN401 - no types installed
    """A causal language model whose parameters are the stack's tensors."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from benchx.ops.transformers_weights import named_weights
    from benchx_kernels.model_mixers import ROPE_BASE
    from benchx_kernels.model_weights import EPS

    values = config_values(inputs.arch, eps=EPS, rope_base=ROPE_BASE)
    config = AutoConfig.for_model(model_type(inputs.arch), **values)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa", dtype=inputs.stack.dtype
        )
    model.load_state_dict(named_weights(inputs.stack), strict=True, assign=True)
    rotary = getattr(model.model, "rotary_emb", None)
    if rotary is not None:  # its buffers are no weights: made anew, off the meta device
        model.model.rotary_emb = type(rotary)(config).to(inputs.device)
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):  # those of latents are no part of the config
            module.variance_epsilon = EPS
    return model.eval()


class _Cached:
    """Caches that hold the prefix; each serves one call, since a call changes it.

    Args:
        inputs: Whose prefix is held once, as the stack's cache, and shared as far as it is only
            read.
    """

    def __init__(self, inputs: ModelInputs) -> None:
        self._prefix = inputs.prefix
        self._latent = inputs.arch.mla.kv_lora if inputs.arch.mla is not None else None
        self._held = inputs.new_cache() if inputs.prefix else None
        self._ready: Any = None

    def take(self, config: Any) -> Any:  # noqa: ANN401 - no types installed
        """The next one; made now where `renew` was not called."""
        if self._ready is None:
            self.renew(config)
        ready, self._ready = self._ready, None
        return ready

    def renew(self, config: Any) -> None:  # noqa: ANN401 - no types installed
        """Make the next one."""
        from transformers import DynamicCache

        self._ready = DynamicCache(config=config)
        if self._held is not None:
            _fill(self._ready, self._held, self._prefix, self._latent)


def _fill(cache: Any, held: StackCache, tokens: int, latent: int | None) -> None:  # noqa: ANN401
    """`tokens` of what the stack's cache holds, as views but for the states."""
    from benchx_kernels.model_cache import KdaCache

    for layer, ours in zip(cache.layers, held.layers, strict=True):
        if isinstance(ours, KdaCache):
            _fill_state(layer, ours)
            continue
        rows = ours.rows[:, :tokens]
        layer.lazy_initialization(rows, rows)
        layer.keys, layer.values = _keys_values(rows, latent)


def _keys_values(rows: Tensor, latent: int | None) -> tuple[Tensor, Tensor]:
    """[B, heads, T, width] of both: latent and shared part of MLA, keys and values of GQA."""
    if latent is None:
        keys, values = rows.unbind(2)
        return keys.transpose(1, 2), values.transpose(1, 2)
    return rows[:, None, :, :latent], rows[:, None, :, latent:]


def _fill_state(layer: Any, ours: KdaCache) -> None:  # noqa: ANN401 - no types installed
    """The convolution's inputs, oldest first, with room for the newest; the state, key first."""
    import torch

    window = torch.nn.functional.pad(ours.window.transpose(1, 2), (1, 0))
    layer.update_conv_state(window, conv_kernel_size=window.shape[-1])
    layer.update_recurrent_state(ours.state.transpose(-1, -2).contiguous())
