"""Every built-in operator and backend, by explicit list; importing this module registers them.

The order is the one in which `benchx list` and `backends: all` name them.
"""

from __future__ import annotations

# isort: off
import benchx.ops.linear_attention
import benchx.ops.delta_rule
import benchx.ops.gated_delta_rule
import benchx.ops.kda_prefill
import benchx.ops.kda_decode
import benchx.ops.mla_prefill
import benchx.ops.mla_decode
import benchx.ops.kv_copy
import benchx.ops.backends_triton_linear
import benchx.ops.backends_triton_mla
import benchx.ops.backends_fla
import benchx.ops.backends_fla_ancestry
import benchx.ops.backends_flashkda
import benchx.ops.backends_cudnn
import benchx.ops.backends_flashmla
import benchx.ops.backends_flashinfer  # noqa: F401
