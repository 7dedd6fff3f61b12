"""The examples of `benchx/README.md` and `kernels/README.md` run as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


def examples(readme: str) -> list[str]:
    text = (ROOT / readme).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run(code: str, folder: Path, **environment: str) -> str:
    """What went wrong, or an empty string."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr[-2000:] if done.returncode else ""


def test_a_kernel_is_used_by_itself(tmp_path: Path) -> None:
    (code,) = examples("kernels/README.md")
    if torch.cuda.is_available():
        assert run(code, tmp_path) == ""
        return
    on_cpu = code.replace('torch.device("cuda")', 'torch.device("cpu")')
    assert on_cpu != code
    assert run(on_cpu, tmp_path, TRITON_INTERPRET="1") == ""


def test_a_backend_of_another_package_passes_the_check_that_it_is_shown_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, check = examples("benchx/README.md")
    (tmp_path / "my_package.py").write_text(backend, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert run(check, tmp_path) == ""


def test_the_check_finds_a_backend_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, check = examples("benchx/README.md")
    wrong = backend.replace("result.o.to", "(2 * result.o).to")
    assert wrong != backend
    (tmp_path / "my_package.py").write_text(wrong, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert "o: rms ratio" in run(check, tmp_path)
