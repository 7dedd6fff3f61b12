"""What a model point's parameters mean: architecture, phase, sizes; its cost, its layers' shapes.

Every figure is of the variant that runs (`layers`, `pattern`, `shrink`), never scaled up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from benchx.architectures import Architecture, load_architecture
from benchx.architectures.cache import (
    ITEM_BYTES,
    CacheFormat,
    cache_bytes_per_token,
    state_bytes_per_sequence,
)
from benchx.architectures.flops import decode_flops, prefill_flops
from benchx.architectures.parameters import parameters
from benchx.architectures.variants import PATTERNS, variant
from benchx.core.axes import AxisSpec, Params, parse_lengths
from benchx.core.record import Work

_HALVES = ("bfloat16", "float16", "float32")

SHARED_AXES: Mapping[str, AxisSpec] = {
    "layers": AxisSpec(type="int", doc="the first layers only; 0 = all", default=0, minimum=0),
    "pattern": AxisSpec(type="str", doc="attention of the layers: as published, or all of a kind",
                        default="own", choices=PATTERNS),
    "shrink": AxisSpec(type="int", doc="divides widths, heads, experts and vocabulary", default=1,
                       minimum=1),
    "dtype": AxisSpec(type="str", doc="of weights and stream", default="bfloat16",
                      choices=_HALVES),
    "cache_dtype": AxisSpec(type="str", doc="of the cached rows; auto = dtype", default="auto",
                            choices=("auto", *_HALVES, "float8_e4m3")),
    "state_dtype": AxisSpec(type="str", doc="of the recurrent state", default="float32",
                            choices=_HALVES),
}  # fmt: skip
PREFILL_AXES: Mapping[str, AxisSpec] = {
    "seqlens": AxisSpec(type="lengths", doc="new tokens of each sequence, all equal", minimum=1),
    "prefix": AxisSpec(type="int", doc="cached tokens before each sequence", default=0, minimum=0),
    "chunk": AxisSpec(type="int", doc="new tokens of all sequences in one pass; 0 = all",
                      default=8192, minimum=0),
    **SHARED_AXES,
}  # fmt: skip
DECODE_AXES: Mapping[str, AxisSpec] = {
    "batch": AxisSpec(type="int", doc="sequences", minimum=1),
    "context": AxisSpec(type="int", doc="tokens of each sequence, the new ones included",
                        minimum=1),
    "tokens": AxisSpec(type="int", doc="new tokens of each sequence", default=1, minimum=1),
    **SHARED_AXES,
}  # fmt: skip
AXES: Mapping[str, Mapping[str, AxisSpec]] = {"prefill": PREFILL_AXES, "decode": DECODE_AXES}


@lru_cache(maxsize=64)
def _variant(subject: str, layers: int, pattern: str, shrink: int) -> Architecture:
    return variant(load_architecture(subject), layers=layers, pattern=pattern, shrink=shrink)


@dataclass(frozen=True, kw_only=True)
class ModelPoint:
    """One point.

    Attributes:
        subject: Name or path of the architecture.
        arch: The variant that runs.
        params: Axis values, `phase` among them.
        sequences: B.
        new: S, new tokens of each sequence.
        prefix: Cached tokens of each sequence.
    """

    subject: str
    arch: Architecture
    params: Params
    sequences: int
    new: int
    prefix: int

    @classmethod
    def of(cls, subject: str, params: Params) -> ModelPoint:
        """From the parameters of a point.

        Raises:
            BenchxError: The architecture can't be read or has no such variant.
        """
        arch = _variant(
            subject, int(params["layers"]), str(params["pattern"]), int(params["shrink"])
        )
        if params["phase"] == "decode":
            sequences, new = int(params["batch"]), int(params["tokens"])
            prefix = int(params["context"]) - new
        else:
            lengths = parse_lengths(str(params["seqlens"]))
            sequences, new, prefix = len(lengths), lengths[0], int(params["prefix"])
        return cls(
            subject=subject, arch=arch, params=params, sequences=sequences, new=new, prefix=prefix
        )

    @property
    def decode(self) -> bool:
        """Whether it is a decode step."""
        return self.params["phase"] == "decode"

    @property
    def chunk(self) -> int:
        """Tokens of each sequence in one forward pass."""
        total = int(self.params.get("chunk", 0))
        return max(1, total // self.sequences) if total else self.new

    @property
    def form(self) -> CacheFormat:
        """Dtypes of cache, state and window."""
        return CacheFormat(
            cache_dtype=self.cache_dtype,
            state_dtype=str(self.params["state_dtype"]),
            conv_dtype=str(self.params["dtype"]),
        )

    @property
    def cache_dtype(self) -> str:
        """`auto` resolved."""
        named = str(self.params["cache_dtype"])
        return str(self.params["dtype"]) if named == "auto" else named

    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return parameters(self.arch).total * ITEM_BYTES[str(self.params["dtype"])]

    def cache_bytes(self, tokens: int) -> int:
        """Bytes of the rows of `tokens` tokens of every sequence."""
        return self.sequences * tokens * cache_bytes_per_token(self.arch, self.form)

    def state_bytes(self) -> int:
        """Bytes of all sequences' states and windows."""
        return self.sequences * state_bytes_per_sequence(self.arch, self.form)

    def expanded_bytes(self) -> int:
        """Bytes of the keys and values that MLA's rows are expanded to, one layer at a time.

        Of all tokens of all sequences at the last chunk of a prefill, H (N + R + V) values each:
        what grows with the prompt beside the cache. 0 in decode, which works on the latent.
        """
        mla = self.arch.mla
        if mla is None or self.decode or not self.arch.count("mla"):
            return 0
        values = mla.heads * (mla.nope_dim + mla.rope_dim + mla.value_dim)
        rows = self.sequences * (self.prefix + self.new)
        return rows * values * ITEM_BYTES[str(self.params["dtype"])]

    def work(self) -> Work:
        """FLOPs, least bytes and what is left behind.

        FLOPs as in `architectures.flops`. Least bytes: the weights that the tokens meet, once a
        pass; the cached rows read once; new rows written; states read and written. Of E experts
        T tokens with k choices each meet E (1 - (1 - k / E)^T) where all are chosen alike, which
        is what random weights come close to.
        """
        tokens = self.sequences * self.new
        if self.decode:
            context = self.prefix + self.new
            flops = self.sequences * decode_flops(self.arch, context, tokens=self.new)
        else:
            flops = self.sequences * prefill_flops(self.arch, self.new, prefix=self.prefix)
        moved = self.cache_bytes(self.prefix) + self.cache_bytes(self.new) + 2 * self.state_bytes()
        return Work(
            flops=float(flops),
            min_bytes=self._met_weight_bytes() + moved,
            tokens=tokens,
            kv_cache_bytes=self.cache_bytes(self.new),
            kv_state_bytes=self.state_bytes(),
            leaves_kv=not self.decode,
        )

    def _met_weight_bytes(self) -> int:
        counted, moe = parameters(self.arch), self.arch.moe
        passes = 1 if self.decode else -(-self.new // self.chunk)
        routed = 0.0
        if moe is not None:
            a_pass = self.sequences * (self.new if self.decode else min(self.chunk, self.new))
            routed = counted.routed * (1 - (1 - moe.top_k / moe.experts) ** a_pass)
        met = counted.total - counted.routed - (0 if counted.tied else counted.embedding) + routed
        return round(passes * met * ITEM_BYTES[str(self.params["dtype"])])

    def kda_params(self) -> Params | None:
        """A KDA layer as a point of its operator; None when no layer is one."""
        kda = self.arch.kda
        if kda is None:
            return None
        same: dict[str, str | int | float | bool] = {
            "heads": kda.heads, "head_dim": kda.head_dim, "value_dim": kda.value_dim,
            "dtype": self.params["dtype"], "state_dtype": self.params["state_dtype"],
            "gate": kda.gate, "lower_bound": kda.lower_bound,
        }  # fmt: skip
        if self.decode:
            return same | {"batch": self.sequences, "tokens": self.new}
        lengths = f"{self.sequences}x{min(self.chunk, self.new)}"
        return same | {"seqlens": lengths, "initial_state": True, "qk_l2norm": True}

    def mla_params(self) -> Params | None:
        """An MLA layer as a point of its operator; None when no layer is one."""
        mla = self.arch.mla
        if mla is None or not self.arch.count("mla"):
            return None
        same: dict[str, str | int | float | bool] = {
            "heads": mla.heads, "nope_dim": mla.nope_dim, "rope_dim": mla.rope_dim,
            "value_dim": mla.value_dim, "kv_lora": mla.kv_lora, "dtype": self.params["dtype"],
            "projections": False,
        }  # fmt: skip
        if self.decode:
            return same | {
                "batch": self.sequences, "context": self.prefix + self.new, "tokens": self.new,
                "context_spread": 0.0, "page_size": 64, "cache_dtype": self.cache_dtype,
            }  # fmt: skip
        last = min(self.chunk, self.new)
        lengths = f"{self.sequences}x{last}"
        return same | {"seqlens": lengths, "prefix": self.prefix + self.new - last}


def point_problem(subject: str, params: Params) -> str | None:
    """Why a combination makes no sense: unequal sequences, or beyond what the model is made for."""
    from benchx.core.errors import BenchxError

    try:
        point = ModelPoint.of(subject, params)
    except BenchxError as error:
        return error.message
    if not point.decode and len(set(parse_lengths(str(params["seqlens"])))) > 1:
        return f"seqlens {params['seqlens']}: sequences of a model point must be equally long"
    if point.prefix < 0:
        return f"a context of {params['context']} can't hold {point.new} new tokens"
    longest = point.prefix + point.new
    if longest > point.arch.max_context:
        axis = "context" if point.decode else "seqlens"
        return f"{axis}: {longest} tokens; {subject} is made for at most {point.arch.max_context}"
    return None
