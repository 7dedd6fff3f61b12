"""SGLang's client in Rust without the rest of SGLang: takes the arguments of `sglang-bench`.

The extension is loaded from its file in this Python's packages. Importing the package `sglang`
would import torch and all that belongs to it, which the client does not need.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

FOLDER = Path(sysconfig.get_path("platlib"), "sglang", "srt", "rust_extensions")


def main() -> None:
    """Load it and hand over the command line."""
    file = next(FOLDER.glob("_bench.*.so"), None)
    if file is None:
        sys.exit(f"no _bench.*.so in {FOLDER}: pip install --no-deps sglang")
    spec = spec_from_file_location("sglang.srt.rust_extensions._bench", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.run_argv(["sglang-bench", *sys.argv[1:]])


if __name__ == "__main__":
    main()
