from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchx.ops import base
from benchx.ops.base import OPERATORS
from benchx.runner import Progress, RunSummary, Silent, run
from benchx.runner.local import LocalExecutor
from benchx.scenario import Scenario, load

FAKES = Path(__file__).parent / "fakes"

TEXT = """\
schema: 1
name: faking
title: What happens?
kind: kernel
op: fake
backends: [{backends}]
axes: {{size: [{sizes}]}}
measure: {{launches: {launches}, setup_time_limit: {limit}}}
"""


@pytest.fixture(scope="session", autouse=True)
def fakes_on_path() -> Iterator[None]:
    """The modules in fakes/ can be imported, here and in workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(FAKES), prepend=os.pathsep)
        patch.setattr(sys, "path", [*sys.path, str(FAKES)])
        yield


@pytest.fixture(scope="module", autouse=True)
def no_fakes_left() -> Iterator[None]:
    """What a module registers in this process is unknown to the tests of other parts."""
    known, backends = dict(OPERATORS._entries), dict(base._BACKENDS)
    yield
    OPERATORS._entries = known
    base._BACKENDS.clear()
    base._BACKENDS.update(backends)
    for name in [path.stem for path in FAKES.glob("*.py")]:
        sys.modules.pop(name, None)  # importing it again registers again


@pytest.fixture
def write_scenario(tmp_path: Path) -> Callable[..., Path]:
    """Writes a scenario of fake backends; returns its file."""

    def write(
        *backends: str, sizes: str = "1", launches: int = 1, limit: str = "20s", name: str = "s"
    ) -> Path:
        path = tmp_path / f"{name}.yaml"
        words = ", ".join(backends)
        path.write_text(TEXT.format(backends=words, sizes=sizes, launches=launches, limit=limit))
        return path

    return write


@pytest.fixture
def fake_run(tmp_path: Path) -> Callable[..., RunSummary]:
    """Runs a scenario, or the file of one, on fake workers, in this process."""

    def start(
        what: Path | Scenario, *, progress: Progress | None = None, **options: object
    ) -> RunSummary:
        import fake_run as script

        return run(
            what if isinstance(what, Scenario) else load(what),
            script.WORDS,
            out_dir=tmp_path / "out",
            progress=progress or Silent(),
            executor=LocalExecutor("fake_worker"),
            **options,  # type: ignore[arg-type]
        )

    return start
