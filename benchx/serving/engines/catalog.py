"""The engines that come with benchx, in the order of `benchx list engines`."""

from benchx.serving.engines import transformers, vllm, sglang, trtllm, llamacpp, endpoint  # isort: skip
from benchx.serving.engines.base import ENGINES

__all__ = ["ENGINES", "endpoint", "llamacpp", "sglang", "transformers", "trtllm", "vllm"]
