"""Engines that are Python packages: whether they are there, and which Python runs them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from benchx.core.outcome import Outcome, Unavailable
from benchx.serving.engines.base import NO_MODEL, EngineSettings

_ASK_VERSION = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
for name in json.loads(sys.argv[1]):
    try:
        print(name, version(name))
        break
    except PackageNotFoundError:
        pass
"""


def interpreter(settings: EngineSettings) -> tuple[str, ...]:
    """The program that runs the engine's Python: the scenario's, else the one that runs benchx."""
    return settings.python or (sys.executable,)


def package_missing(
    settings: EngineSettings, modules: tuple[str, ...], install: str
) -> Unavailable | None:
    """Why a package can't be run, without importing it.

    For another Python only the program is looked for: what is in it shows when it is started.
    """
    if settings.model is None:
        return NO_MODEL
    if settings.python:
        if shutil.which(settings.python[0]) is None:
            reason = f"there is no program {settings.python[0]} (engine.python)"
            return Unavailable(outcome=Outcome.SKIPPED, reason=reason, install=install)
        return None
    absent = [module for module in modules if find_spec(module) is None]
    if not absent:
        return None
    reason = f"package {absent[0]} is not installed (or name a Python with it in engine.python)"
    return Unavailable(outcome=Outcome.SKIPPED, reason=reason, install=install)


def installed_version(settings: EngineSettings, distributions: tuple[str, ...]) -> str | None:
    """`vllm 0.26.0`: the first of these that the engine's Python has; None if unknown.

    A whole program instead of a Python (`vllm serve`) is not asked; see `told_version` for it.
    """
    if not settings.python:
        return _own_version(distributions)
    if settings.python[-1] == "serve":
        return None
    command = [*settings.python, "-I", "-c", _ASK_VERSION, json.dumps(distributions)]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None


def _own_version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return None


def untranslatable(settings: EngineSettings, *names: str) -> Unavailable | None:
    """Refuse settings that an engine has no flag for, instead of dropping them silently."""
    for name in names:
        if getattr(settings, name) is not None:
            reason = f"{settings.name} has no setting for engine.{name}"
            return Unavailable(outcome=Outcome.UNSUPPORTED, reason=reason)
    return None
