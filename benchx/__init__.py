"""benchx: how fast, and at what cost, a machine serves hybrid-attention LLMs."""

__version__ = "0.1.0"
