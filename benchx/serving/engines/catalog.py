"""The engines that come with benchx, in the order of `benchx list engines`."""

from benchx.serving.engines import endpoint
from benchx.serving.engines.base import ENGINES

__all__ = ["ENGINES", "endpoint"]
