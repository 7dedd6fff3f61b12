"""An engine from start to end: port, process, readiness, what was observed, clean shutdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchx.core.errors import UsageError
from benchx.core.outcome import Outcome
from benchx.serving.engines.base import Capabilities, Engine, EngineSettings
from benchx.serving.engines.gpus import GpuUse, gpus_in_use, read_memory
from benchx.serving.engines.process import EngineFailed, EngineProcess, Launch, claim_port
from benchx.serving.engines.python_package import installed_version
from benchx.serving.engines.readiness import (
    Readiness,
    ReadinessCheck,
    fail_if_dying,
    origin_of,
    root_url,
)
from benchx.serving.engines.server_version import told_version
from benchx.serving.request import Endpoint, Request
from benchx.serving.scrape import Scraper
from benchx.serving.server_summary import AcceptanceMode, acceptance_mode
from benchx.serving.trial import TRIAL, TRIAL_IDS, try_once

ATTACH_LIMIT_S = 60.0
"""Patience with a server that is said to run already."""


@dataclass(frozen=True, kw_only=True)
class RunningEngine:
    """An engine that has proved that it works.

    Attributes:
        engine: Which one.
        settings: What the scenario says of it, as prepared: `model` is what was served.
        endpoint: Where to send requests.
        capabilities: What it can do and tell.
        readiness: How long it took.
        gpus: GPUs that it occupies.
        launch: How it was started; None when it ran already.
        version: Package and version; None when unknown.
        process: Its process tree; None when it ran already.
    """

    engine: Engine
    settings: EngineSettings
    endpoint: Endpoint
    capabilities: Capabilities
    readiness: Readiness
    gpus: GpuUse
    launch: Launch | None = None
    version: str | None = None
    process: EngineProcess | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """The command line; empty when it ran already."""
        return () if self.launch is None else self.launch.command

    def fail_if_gone(self) -> None:
        """Raise EngineFailed when the engine has died, or dies now."""
        if self.process is not None:
            fail_if_dying(self.process, self.endpoint, self.capabilities.health_path)

    def scraper(self) -> Scraper | None:
        """What reads its metrics; None where it tells none.

        An address of its own gets the endpoint's key only where both are one server.
        """
        able, endpoint = self.capabilities, self.endpoint
        if able.metrics_url is not None:
            is_same = origin_of(able.metrics_url) == origin_of(endpoint.base_url)
            return Scraper(able.metrics_url, endpoint=endpoint if is_same else None)
        if able.metrics_path is None:
            return None
        return Scraper(root_url(endpoint.base_url, able.metrics_path), endpoint=endpoint)

    @property
    def acceptance(self) -> AcceptanceMode:
        """Whether drafts are accepted by the model or by decree, as far as its settings tell."""
        return acceptance_mode(self.settings, self.capabilities)

    def to_json(self) -> dict[str, Any]:
        """What a record says of it: no secret (variables are named, never read), no folder."""
        env = {} if self.launch is None else self.launch.env
        return {
            "engine": self.engine.name,
            "version": self.version,
            "model": _portable(self.endpoint.model),
            "base_url": self.endpoint.base_url,
            "command": [_portable(word) for word in self.command],
            "env": {name: _portable(value) for name, value in env.items()},
            "healthy_s": self.readiness.healthy_s,
            "ready_s": self.readiness.ready_s,
            "gpus": self.gpus.count,
            "gpus_source": self.gpus.source,
            "gpu_names": list(self.gpus.names),
            "load_format": self.settings.load_format,
            "acceptance": self.acceptance,
        }


def _portable(word: str) -> str:
    """The word, or the last part of an absolute path: records go to other machines."""
    return Path(word).name if word.startswith("/") else word


@contextmanager
def running(
    engine: Engine, settings: EngineSettings, *, log: Path, trial: Request | None = None
) -> Iterator[RunningEngine]:
    """Start the engine (or attach to it) and wait until it works; end it on the way out.

    Args:
        engine: Which one.
        settings: What the scenario says of it.
        log: File for what it prints.
        trial: The request that proves that it works, which no workload may contain; None: a
            short one, as text or, for a server without a tokenizer, as token ids.

    Raises:
        EngineFailed: It did not start, is not ready in time, or occupies other GPUs than said.
        UsageError: A variable that holds a secret is not set.
    """
    settings = engine.prepare(settings)
    trial = _trial(engine, settings) if trial is None else trial
    if not engine.starts:
        yield _attached(engine, settings, trial)
        return
    port = claim_port(settings.port, settings.host)
    launched = engine.launch(settings, port=port)
    before = read_memory()
    with EngineProcess(launched, log) as process:
        endpoint, able = engine.endpoint(settings, port=port), engine.capabilities(settings)
        readiness = _ready(endpoint, able, settings, trial, process)
        use = gpus_in_use(before, read_memory(), declared=settings.gpus, asked=settings.gpus_asked)
        yield RunningEngine(
            engine=engine,
            settings=settings,
            endpoint=endpoint,
            capabilities=able,
            readiness=readiness,
            gpus=use,
            launch=launched,
            version=installed_version(settings, engine.distributions)
            or told_version(endpoint, able.version_paths, engine.distributions),
            process=process,
        )


def _trial(engine: Engine, settings: EngineSettings) -> Request:
    """A model with random weights may end at once: the trial asks for an exact length."""
    plain = TRIAL if engine.capabilities(settings).text else TRIAL_IDS
    return replace(plain, extra=engine.exact_length(plain.max_tokens))


def _attached(engine: Engine, settings: EngineSettings, trial: Request) -> RunningEngine:
    endpoint, able = engine.endpoint(settings, port=0), engine.capabilities(settings)
    endpoint.secret_headers()  # a missing key is said before anything is sent
    found = RunningEngine(
        engine=engine,
        settings=settings,
        endpoint=endpoint,
        capabilities=able,
        readiness=_ready(endpoint, able, settings, trial, None),
        gpus=GpuUse(count=settings.gpus, source="declared"),
    )
    found = replace(found, version=told_version(endpoint, able.version_paths, engine.distributions))
    if able.metrics_url is not None:
        _need_metrics(found)
    return found


def _need_metrics(engine: RunningEngine) -> None:
    """Metrics that were asked for are there, or nothing is measured."""
    scraper = engine.scraper()
    assert scraper is not None
    scraper.poll()
    if scraper.problem is not None:
        raise EngineFailed(
            f"engine.metrics_url gives no metrics: {scraper.problem}",
            outcome=Outcome.CRASHED,
            hint="correct it, or leave it out to measure without the server's metrics",
        )


def _ready(
    endpoint: Endpoint,
    able: Capabilities,
    settings: EngineSettings,
    trial: Request,
    process: EngineProcess | None,
) -> Readiness:
    return ReadinessCheck(
        endpoint,
        health_path=able.health_path,
        generate=lambda there, limit_s: try_once(there, trial, limit_s),
        timeout_s=(
            min(settings.ready_timeout_s, ATTACH_LIMIT_S)
            if process is None
            else settings.ready_timeout_s
        ),
        process=process,
    ).wait()


def settings_from(data: Mapping[str, Any]) -> EngineSettings:
    """Settings from plain data (see `EngineSettings`); raises UsageError for unknown keys."""
    known = EngineSettings.__dataclass_fields__
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise UsageError(f"engine: unknown settings {', '.join(unknown)}")
    plain = dict(data)
    if isinstance(plain.get("python"), list):
        plain["python"] = tuple(plain["python"])
    return EngineSettings(**plain)
