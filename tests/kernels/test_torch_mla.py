"""What torch's own MLA costs before it runs."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys, torch
from benchx_kernels.torch_mla import CausalSdpa
q = torch.ones(1, 3, 2, 8)
assert CausalSdpa.of(3, 3).attend(q, q, q, scale=1.0).shape == q.shape
print(*{"torch._dynamo", "sympy"} & set(sys.modules))
"""


def test_attention_without_a_prefix_does_not_load_torch_s_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
