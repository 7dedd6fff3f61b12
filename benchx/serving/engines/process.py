"""An engine as a process tree that is started, watched and, whatever happens, ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from benchx.core.errors import RunFailed
from benchx.core.outcome import Outcome
from benchx.serving.engines import warden

LOOPBACK = "127.0.0.1"

_TAIL_BYTES, _REASON_CHARACTERS = 65536, 300
_REAP_S = 10.0
_NAMED_ERROR = re.compile(r"\b[A-Za-z_.]*(?:Error|Exception)\b\s*:|\berror:|can't start", re.I)
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|OutOfMemory", re.IGNORECASE)


class EngineFailed(RunFailed):
    """An engine did not start, did not work, or died.

    Args:
        message: What happened, the engine's own words included.
        outcome: What its points become.
    """

    def __init__(self, message: str, *, outcome: Outcome, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.outcome = outcome


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start an engine.

    Attributes:
        command: Program and arguments, no shell.
        env: Variables added to those of this process.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class EngineProcess:
    """A running engine. Use it as a context: leaving it ends the whole process tree.

    Args:
        launch: What to run.
        log: File that stdout and stderr are appended to.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, launch: Launch, log: Path, *, grace_s: float = 10.0) -> None:
        self.launch, self.log, self._grace_s = launch, log, grace_s
        log.parent.mkdir(parents=True, exist_ok=True)
        # -I: neither the engine's environment nor the working folder may change the warden.
        warded = [sys.executable, "-I", warden.__file__, str(grace_s), *launch.command]
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._warden = subprocess.Popen(
                warded,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **launch.env},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process group and session of the tree; the engine is a child of that process."""
        return self._warden.pid

    def exit_code(self) -> int | None:
        """The engine's exit code (128 + signal), or None while it runs."""
        code = self._warden.poll()
        return 128 - code if code is not None and code < 0 else code

    def stop(self) -> None:
        """End the tree: in order first, then by force. Harmless when it is gone already."""
        if self._warden.stdin is not None and not self._warden.stdin.closed:
            with suppress(OSError):
                self._warden.stdin.write(b"stop\n")
                self._warden.stdin.flush()
            with suppress(OSError):
                self._warden.stdin.close()
        try:
            code = self._warden.wait(self._grace_s + _REAP_S)
        except subprocess.TimeoutExpired:
            code = None
        if code is None or code < 0:  # hanging or killed: the group is still named after it
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._warden.pid, signal.SIGKILL)
            self._warden.wait()

    def fail_if_gone(self) -> None:
        """Raise EngineFailed, in the engine's own words, when it has ended."""
        code = self.exit_code()
        if code is None:
            return
        words = self.last_words()
        raise EngineFailed(
            f"the engine exited with code {code}" + (f": {words}" if words else ""),
            outcome=Outcome.OOM if _OUT_OF_MEMORY.search(self._tail()) else Outcome.CRASHED,
            hint=f"its log: {self.log}",
        )

    def last_words(self) -> str:
        """The last line of the log that names an error, else its last line; empty if none."""
        lines = [line.strip() for line in self._tail().splitlines() if line.strip()]
        named = [line for line in lines if _NAMED_ERROR.search(line)]
        return (named or lines or [""])[-1][-_REASON_CHARACTERS:]

    def _tail(self) -> str:
        with suppress(OSError), self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
        return ""


def claim_port(wanted: int | None, host: str = LOOPBACK) -> int:
    """The wanted port when it is free, or any free one.

    Raises:
        EngineFailed: When the wanted port is taken: another server would answer in the engine's
            place.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted or 0))
        except OSError as error:
            raise EngineFailed(
                f"port {wanted} of {host} can't be used: {error.strerror}",
                outcome=Outcome.CRASHED,
                hint="leave `port` out to take a free one",
            ) from error
        return int(probe.getsockname()[1])
