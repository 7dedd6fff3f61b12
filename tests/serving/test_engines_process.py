"""Engines as processes: whatever they do, there is a reason, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchx.core.errors import UsageError
from benchx.core.outcome import Outcome, Unavailable
from benchx.serving.engines.base import Capabilities, Engine, EngineSettings
from benchx.serving.engines.catalog import ENGINES
from benchx.serving.engines.process import EngineFailed, EngineProcess, Launch, claim_port
from benchx.serving.engines.python_package import installed_version
from benchx.serving.engines.session import RunningEngine, running, settings_from
from benchx.serving.request import Endpoint

FAKES = Path(__file__).parent / "fakes"


class FakeEngine:
    """The script in `fakes/`, as an engine; `model` is its mode."""

    name = "fake"
    title = "a script"
    distributions: tuple[str, ...] = ("psutil",)
    starts = True

    def __init__(self, pids: Path) -> None:
        self.pids = pids

    def missing(self, settings: EngineSettings) -> Unavailable | None:
        return None

    def prepare(self, settings: EngineSettings) -> EngineSettings:
        return settings

    def launch(self, settings: EngineSettings, *, port: int) -> Launch:
        script, mode = str(FAKES / "engine.py"), str(settings.model)
        return Launch(command=(sys.executable, script, mode, str(port), str(self.pids)))

    def endpoint(self, settings: EngineSettings, *, port: int) -> Endpoint:
        return Endpoint(base_url=f"http://127.0.0.1:{port}/v1", api="completions", model="fake")

    def capabilities(self, settings: EngineSettings) -> Capabilities:
        return Capabilities(usage="always", done_marker=True, token_ids=False)

    def exact_length(self, tokens: int) -> Mapping[str, Any]:
        return {}


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    return FakeEngine(tmp_path / "pids.json")


def run_fake(engine: Engine, tmp_path: Path, mode: str, timeout_s: float = 20) -> RunningEngine:
    """Start it, return what it was like, and end it."""
    settings = EngineSettings(name="fake", model=mode, ready_timeout_s=timeout_s)
    with running(engine, settings, log=tmp_path / "engine.log") as found:
        return found


def living(pids: Path) -> list[int]:
    found = []
    for pid in json.loads(pids.read_text()):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def wait_until_gone(pids: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while (left := living(pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def test_an_engine_is_ready_once_a_generation_has_returned_tokens(
    engine: FakeEngine, tmp_path: Path
) -> None:
    found = run_fake(engine, tmp_path, "slow")
    assert found.readiness.tokens == 4
    assert found.readiness.healthy_s is not None
    assert found.readiness.ready_s >= found.readiness.healthy_s
    assert found.process is not None
    assert found.process.exit_code() is not None
    assert not living(engine.pids)


@pytest.mark.parametrize(
    ("mode", "outcome", "words"),
    [
        ("exits", Outcome.CRASHED, "exited with code 1: RuntimeError: no kernel image"),
        ("late", Outcome.CRASHED, "exited with code 137: ValueError: no such layer"),
        ("oom", Outcome.OOM, "CUDA out of memory"),
        ("falls", Outcome.OOM, "exited with code 1: torch.OutOfMemoryError"),
        ("breaking", Outcome.OOM, "exited with code 1: torch.OutOfMemoryError"),
        ("liar", Outcome.CRASHED, "200 without a token"),
        ("breaks", Outcome.CRASHED, "HTTP 500"),
        ("errors", Outcome.CRASHED, "head dimension 96"),
    ],
)
def test_an_engine_that_can_not_work_fails_at_once_with_its_own_words(
    engine: FakeEngine, tmp_path: Path, mode: str, outcome: Outcome, words: str
) -> None:
    started = time.monotonic()
    with pytest.raises(EngineFailed, match=words) as caught:
        run_fake(engine, tmp_path, mode, timeout_s=60)
    assert caught.value.outcome is outcome
    assert time.monotonic() - started < 30  # long before the limit


@pytest.mark.parametrize(
    ("mode", "limit_s", "words"),
    [("never", 6.0, "answered HTTP 503"), ("deaf", 2.0, "it never answered")],
)
def test_an_engine_that_never_gets_ready_is_a_timeout_that_says_what_it_answered(
    engine: FakeEngine, tmp_path: Path, mode: str, limit_s: float, words: str
) -> None:
    with pytest.raises(EngineFailed, match=words) as caught:
        run_fake(engine, tmp_path, mode, timeout_s=limit_s)
    assert caught.value.outcome is Outcome.TIMEOUT
    assert not engine.pids.exists() or not living(engine.pids)  # it may have had no time to begin


def test_an_endpoint_where_nothing_listens_is_told_with_the_command_that_asks_it(
    tmp_path: Path,
) -> None:
    with socket.socket() as taken:  # bound and not listening: no other process takes the port
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        settings = EngineSettings(name="endpoint", model="m", base_url=url, ready_timeout_s=0.5)
        with (
            pytest.raises(EngineFailed, match="ConnectionRefusedError") as caught,
            running(ENGINES.get("endpoint"), settings, log=tmp_path / "log"),
        ):
            pass
    assert f"benchx probe {url}" in (caught.value.hint or "")


@pytest.mark.parametrize("mode", ["stubborn", "brood"])
def test_what_ignores_sigterm_is_killed_with_all_its_children(
    engine: FakeEngine, tmp_path: Path, mode: str
) -> None:
    launch = engine.launch(EngineSettings(name="fake", model=mode), port=0)
    with EngineProcess(launch, tmp_path / "log", grace_s=0.3):
        while not engine.pids.exists():
            time.sleep(0.02)
        assert living(engine.pids)
    assert not living(engine.pids)


@pytest.mark.parametrize(("mode", "more"), [("good", ()), ("brood", ()), ("stubborn", ("fork",))])
def test_a_kill_9_of_benchx_leaves_no_process_of_the_engine(
    tmp_path: Path, mode: str, more: tuple[str, ...]
) -> None:
    pids, log = tmp_path / "pids.json", tmp_path / "log"
    script = [sys.executable, str(FAKES / "killed_parent.py")]
    parent = subprocess.Popen(
        [*script, mode, str(pids), str(log), str(FAKES / "engine.py"), *more],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    warden = int(parent.stdout.readline())
    assert living(pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(pids, limit_s=6)
    deadline = time.monotonic() + 10
    while psutil.pid_exists(warden) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(warden)


def test_a_killed_warden_takes_the_engine_with_it(engine: FakeEngine, tmp_path: Path) -> None:
    launch = engine.launch(EngineSettings(name="fake", model="good"), port=0)
    with EngineProcess(launch, tmp_path / "log") as process:
        while not engine.pids.exists():
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        wait_until_gone(engine.pids, limit_s=5)
        with pytest.raises(EngineFailed, match="exited with code 137"):
            process.fail_if_gone()


def test_a_port_that_is_taken_is_refused_before_anything_is_started(
    engine: FakeEngine, tmp_path: Path
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        settings = EngineSettings(name="fake", model="good", port=port)
        with (
            pytest.raises(EngineFailed, match=f"port {port} of 127.0.0.1 can't be used"),
            running(engine, settings, log=tmp_path / "log"),
        ):
            pass
    assert not (tmp_path / "log").exists()


def test_a_free_port_is_found_and_can_be_bound() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", claim_port(None)))


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with EngineProcess(Launch(command=("/no/such/engine",)), tmp_path / "log") as process:
        deadline = time.monotonic() + 10
        while process.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(EngineFailed, match=r"can't start /no/such/engine: No such file"):
            process.fail_if_gone()


def test_what_an_engine_prints_is_in_its_log(engine: FakeEngine, tmp_path: Path) -> None:
    with pytest.raises(EngineFailed):
        run_fake(engine, tmp_path, "exits")
    assert "INFO: loading" in (tmp_path / "engine.log").read_text()


def test_the_engine_gets_its_environment_on_top_of_ours(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import os; print(os.environ['ADDED'], 'PATH' in os.environ)")
    with EngineProcess(Launch(command=command, env={"ADDED": "7"}), tmp_path / "log") as process:
        while process.exit_code() is None:
            time.sleep(0.02)
    assert (tmp_path / "log").read_text().split() == ["7", "True"]


def test_what_a_record_says_of_an_engine_is_plain_data(engine: FakeEngine, tmp_path: Path) -> None:
    told = run_fake(engine, tmp_path, "good").to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["gpus"] == 0
    assert told["version"] == f"psutil {psutil.__version__}"
    assert told["ready_s"] > 0


def test_a_version_is_asked_of_the_python_that_runs_the_engine() -> None:
    other = EngineSettings(name="fake", python=(sys.executable,))
    assert installed_version(other, ("no-such", "psutil")) == f"psutil {psutil.__version__}"
    assert installed_version(other, ("no-such",)) is None
    assert installed_version(replace(other, python=("no-such-python",)), ("psutil",)) is None
    assert installed_version(replace(other, python=("vllm", "serve")), ("psutil",)) is None


def test_settings_come_from_plain_data_and_unknown_ones_are_refused() -> None:
    settings = settings_from({"name": "vllm", "python": ["uv", "run"], "args": {"seed": 1}})
    assert settings == replace(EngineSettings(name="vllm"), python=("uv", "run"), args={"seed": 1})
    with pytest.raises(UsageError, match="tensor_paralel"):
        settings_from({"name": "vllm", "tensor_paralel": 8})
