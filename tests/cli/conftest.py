"""The command as a function: arguments in; exit code, stdout and stderr out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from benchx.cli import app


@dataclass(frozen=True)
class Result:
    """What a user of the command sees."""

    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture
def benchx(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command in this process."""

    def call(*arguments: str) -> Result:
        monkeypatch.setattr("sys.argv", ["benchx", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            app.main()
        printed = capsys.readouterr()
        return Result(int(end.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture
def unread() -> Callable[..., tuple[int, str]]:
    """Call the command in a process whose stdout nobody reads; returns exit code and stderr."""

    def call(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "benchx", *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as running:
            assert running.stdout is not None
            assert running.stderr is not None
            running.stdout.close()
            complaints = running.stderr.read()
        return running.returncode, complaints

    return call
