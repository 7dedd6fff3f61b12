"""Model descriptors and what follows from them: parameters, cache bytes, FLOPs, tiers."""

from benchx.architectures.catalog import load_architecture, shipped_architectures
from benchx.architectures.descriptor import Architecture, Gqa, Kda, Mla, Moe

__all__ = [
    "Architecture",
    "Gqa",
    "Kda",
    "Mla",
    "Moe",
    "load_architecture",
    "shipped_architectures",
]
