"""Third-party packages that backends wrap: found without importing them, named in every record."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.metadata import packages_distributions as distributions_of_modules
from importlib.util import find_spec
from typing import Any

from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.ops.base import Unavailable


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package as a backend needs it.

    Attributes:
        module: Top-level import name (`fla`).
        distribution: Name on the package index (`fla-core`).
        tested: Version seen to work, as pinned in `constraints.txt`.
        minimum: Oldest version whose interface the adapter knows, or None for any.
        archs: GPUs that its kernels are compiled for (`sm_90`); empty means any GPU of any vendor.
        wheels: What the published wheels run on, when that is less than every Python on Linux.
        hashed_files: Pattern of the installed files whose hash identifies the kernels.
        needs_gpu: Whether it runs on GPUs only.
    """

    module: str
    distribution: str
    tested: str
    minimum: str | None = None
    archs: tuple[str, ...] = ()
    wheels: str | None = None
    hashed_files: str = "*.py"
    needs_gpu: bool = True

    @property
    def install(self) -> str:
        """The command that installs the tested version."""
        return f"pip install {self.distribution}=={self.tested}"

    def installed(self) -> Distribution | None:
        """What provides `module` here (a fork may bear another name), without importing it."""
        if find_spec(self.module) is None:
            return None
        return _provider(self.module, self.distribution)

    def absent(self, device: Device) -> Unavailable | None:
        """Why it can't be used on this machine, or None; a missing GPU is named first.

        The command is given whenever the installation is at fault too, so that `benchx doctor`
        on a machine without the GPU tells what the machine with one will need.
        """
        unfit, uninstalled = self._device_problem(device), self._installation_problem()
        reason = unfit or uninstalled
        if reason is None:
            return None
        command = self.install if uninstalled else None
        return Unavailable(outcome=Outcome.SKIPPED, reason=reason, install=command)

    def provenance(self) -> dict[str, Any]:
        """Name and version of what is installed, and the hash of its kernels' files."""
        found = self.installed()
        return {
            "package": found.metadata["Name"] if found else self.distribution,
            "version": found.version if found else None,
            "file_sha256": _files_sha256(found, self.hashed_files) if found else None,
        }

    def _device_problem(self, device: Device) -> str | None:
        if not self.needs_gpu:
            return None
        if not device.is_gpu:
            return f"{self.distribution} needs a GPU; this is {device.name}"
        if self.archs and device.arch not in self.archs:
            known = ", ".join(self.archs)
            return f"{self.distribution} has kernels for {known}; this GPU is {device.arch}"
        return None

    def _installation_problem(self) -> str | None:
        if find_spec(self.module) is None:
            only = f" (wheels: {self.wheels})" if self.wheels else ""
            return f"{self.distribution} is not installed{only}"
        found = self.installed()
        if self.minimum and found and _release(found.version) < _release(self.minimum):
            name = found.metadata["Name"]
            return (
                f"{name} {found.version} is installed; this adapter needs {self.minimum} or later"
            )
        return None


def unsupported(*limits: tuple[bool, str]) -> Unavailable | None:
    """The first limit that a combination of axis values breaks.

    Args:
        limits: Pairs of (holds, the reason when it doesn't).
    """
    for holds, reason in limits:
        if not holds:
            return Unavailable(outcome=Outcome.UNSUPPORTED, reason=reason)
    return None


@cache
def _provider(module: str, usual: str) -> Distribution | None:
    try:
        return distribution(usual)
    except PackageNotFoundError:
        names = distributions_of_modules().get(module)
        return distribution(names[0]) if names else None


def _files_sha256(found: Distribution, pattern: str) -> str | None:
    """Hash over the content of the matching files, in order of path; None without a file list."""
    paths = sorted(path for path in found.files or () if path.match(pattern))
    if not paths:
        return None
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_binary())
    return digest.hexdigest()


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `0.6.0.post1` is (0, 6, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
