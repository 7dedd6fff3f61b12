"""The ground-truth server as a child process that ends with its parent."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Self

from benchx.core.errors import RunFailed
from benchx.core.sources import python_command
from benchx.serving.groundtruth.stream import Pace, Truth

_END_S = 30.0


class GroundTruth:
    """Starts the server on entry; `base_url` is valid inside the block.

    Args:
        pace: Its schedule.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._process: subprocess.Popen[str] | None = None
        self.base_url = ""

    def __enter__(self) -> Self:
        command = python_command("benchx.serving.groundtruth.server")
        self._process = subprocess.Popen(
            [*command, json.dumps(asdict(self._pace))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self._process.wait()
            raise RunFailed("the ground-truth server did not start")
        self.base_url = f"http://127.0.0.1:{port}/v1"
        return self

    def stop(self) -> Mapping[str, Truth]:
        """End it; returns what happened, by the `user` field of the requests."""
        assert self._process is not None
        output, _ = self._process.communicate(timeout=_END_S)
        truths = [Truth(**json.loads(line)) for line in output.splitlines()]
        return {truth.key: truth for truth in truths}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
