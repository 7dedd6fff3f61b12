"""What software and machine a launch ran on; nothing that names a person or a host."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import benchx
from benchx.core.method import METHOD_VERSIONS
from benchx.core.sources import digests, folders
from benchx.measure.device import cpu_name, usable_cpus

_AMD_VERSION = Path("/sys/module/amdgpu/version")
"""Only where the driver was installed by itself; the one of the kernel has no other version."""

_PREFIXES = (
    "CUDA_", "NVIDIA_", "CUBLAS_", "CUDNN_", "NCCL_", "HIP_", "ROCR_", "HSA_", "RCCL_", "MIOPEN_",
    "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "TRITON_", "FLA_", "VLLM_", "SGLANG_", "SGL_",
    "TRTLLM_", "OMP_", "MKL_",
)  # fmt: skip
"""Of variables that change what is compiled, chosen or allocated."""

_PRIVATE_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS|CRED|AUTH|COOKIE|HOST|ADDR|(^|_)IP($|_)|URL|URI|ENDPOINT|USER|UUID"
)

_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_+.,:;=\[\]-]{0,64}")
"""Words, numbers and lists of them; neither a path nor a sentence."""

_PRIVATE_VALUE = re.compile(r"\d+\.\d+\.\d+\.\d+|(GPU|MIG)-[0-9a-fA-F]|[A-Za-z0-9]{24}")
"""An address, a card's UUID, or as many letters and digits in a row as no setting has."""

WITHHELD = "(withheld)"

_TRITONS = ("triton", "triton-rocm", "pytorch-triton-rocm", "pytorch-triton")
"""Names that the wheels of torch's indices have it under."""


def snapshot() -> dict[str, Any]:
    """Versions and hardware as plain data; None where something is absent.

    Keys: python, os, kernel, machine, cpu, cpus (usable by this process), torch, torch_threads,
    cuda, hip, driver, triton, numpy, benchx, code (hashes of our sources, `core.sources.digest`),
    method (`core.method`), git_commit and git_dirty (of the checkout that benchx was imported
    from), variables. No host name, user name or path.
    """
    import torch

    commit, dirty = git_state(folders()["benchx"].parent)
    return {
        "python": platform.python_version(),
        "os": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": cpu_name(),
        "cpus": len(usable_cpus()),
        "torch": str(torch.__version__),
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "driver": driver_version(),
        "triton": next(filter(None, map(package_version, _TRITONS)), None),
        "numpy": package_version("numpy"),
        "benchx": benchx.__version__,
        "code": dict(digests()),
        "method": dict(METHOD_VERSIONS),
        "git_commit": commit,
        "git_dirty": dirty,
        "variables": variables(),
    }


def variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment variables that compilers, libraries and engines obey: name -> value.

    A value that may be a secret, or that names a place, an address or a person is withheld: the
    name alone says that the variable is set.
    """
    return {
        name: _shown(name, value)
        for name, value in sorted(environ.items())
        if name.startswith(_PREFIXES)
    }


def _shown(name: str, value: str) -> str:
    is_plain = _PLAIN_VALUE.fullmatch(value) and not _PRIVATE_VALUE.search(value)
    return value if is_plain and not _PRIVATE_NAME.search(name) else WITHHELD


def package_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def driver_version() -> str | None:
    """Version of the driver of torch's GPUs (NVIDIA: by NVML, AMD: by the kernel), or None.

    A machine may have both: an AMD processor's own graphics beside an NVIDIA card.
    """
    import torch

    if torch.version.hip is not None:
        return _AMD_VERSION.read_text().strip() if _AMD_VERSION.is_file() else None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        found = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    return found.decode() if isinstance(found, bytes) else str(found)


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Commit of the checkout at `root`, and whether it is changed; (None, None) if there is none.

    Changed: a tracked file differs, or there is a file in `benchx` or `kernels` that git does not
    know. Results and scenarios of the user don't count.
    """
    if not (root / ".git").exists():
        return None, None
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    answers = [_git(root, *question) for question in _CHANGES]
    known = [answer for answer in answers if answer is not None]
    return commit, bool("".join(known)) if len(known) == len(answers) else None


_CHANGES = (
    ("status", "--porcelain", "--untracked-files=no"),
    ("ls-files", "--others", "--exclude-standard", "--", "benchx", "kernels"),
)


def _git(root: Path, *arguments: str) -> str | None:
    """What git answers, or None."""
    # A checkout that belongs to another user (the mount of a container) is asked too: git refuses
    # those lest they name programs to run, but this one's own code is running already.
    settings = ["-c", f"safe.directory={root}"]
    command = ["git", "--no-optional-locks", *settings, "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
