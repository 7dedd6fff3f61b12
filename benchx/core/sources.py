"""Which code this is, and how a process of benchx starts another one that runs the same."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from benchx.core import start
from benchx.core.errors import UsageError

PACKAGES = ("benchx", "benchx_kernels", "benchx_scenarios")
"""Import names of everything that a wheel of benchx holds."""

MEASURING = ("benchx", "benchx_kernels")
"""Those whose sources decide what is measured, and how."""

NOT_MEASURING = ("cli", "reporting", "gate", "economics")
"""Parts of benchx that have no share in a measurement: what they change, no launch notices."""

_SUFFIXES = (".py", ".yaml")
"""Code, and the tables that it computes with (descriptors of models, hardware)."""


@cache
def folders() -> Mapping[str, Path]:
    """Package -> the folder that this process imports it from, links resolved.

    A package that is not installed is left out.
    """
    found = {}
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            found[name] = Path(next(iter(spec.submodule_search_locations))).resolve()
    return found


def check_one_checkout(found: Mapping[str, Path] | None = None) -> None:
    """Refuse to measure the kernels of another checkout than that of benchx itself.

    `python -m benchx` in a checkout takes benchx from there, but the kernels from wherever they
    are installed: a comparison of two checkouts would then measure the same kernels twice.

    Args:
        found: Package -> folder; None: those of this process.

    Raises:
        UsageError: benchx is in a checkout that has kernels of its own, and they aren't used.
    """
    found = folders() if found is None else found
    root = found["benchx"].parent
    own = root / "kernels"
    if not ((root / "pyproject.toml").is_file() and (own / "__init__.py").is_file()):
        return
    used = found.get("benchx_kernels")
    if used != own.resolve():
        raise UsageError(
            f"benchx is imported from {found['benchx']}, but its kernels from {used}, which "
            f"belong to another checkout",
            hint=f"install this checkout into the environment that runs it: pip install -e {root}",
        )


@cache
def digests() -> Mapping[str, str]:
    """Package -> `digest` of its folder, for those that measure; computed once per process.

    What changes on the disk later is another code, and shows as a difference from this one.
    """
    found = folders()
    return {name: digest(found[name]) for name in MEASURING if name in found}


def digest(folder: Path) -> str:
    """The first 16 hexadecimal digits of a sha256 over the `.py` and `.yaml` files in a folder.

    Each file counts with its path relative to the folder, its length and its bytes, in the order
    of the paths, so a copy has the digest of its original. `NOT_MEASURING` is left out.
    """
    total = hashlib.sha256()
    for name, path in sorted(
        (path.relative_to(folder).as_posix(), path) for path in _files(folder)
    ):
        content = path.read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()[:16]


def _files(folder: Path) -> Iterable[Path]:
    for path in folder.rglob("*"):
        is_part = path.relative_to(folder).parts[0] not in NOT_MEASURING
        if is_part and path.suffix in _SUFFIXES and path.is_file():
            yield path


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module in a fresh Python with the packages of this process.

    `python -m` alone would take the installed benchx, also where this process was started from
    another checkout. The working folder is not searched for modules.
    """
    places = {name: str(folder) for name, folder in folders().items()}
    return [sys.executable, "-P", start.__file__, json.dumps(places), module, *arguments]
