"""Ready means: healthy, and a generation returned tokens, within one time limit.

Health alone is a promise: engines answer 200 while they still compile, and some answer 200 with
an empty stream to everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from benchx.core.outcome import Outcome
from benchx.serving.engines.process import EngineFailed, EngineProcess
from benchx.serving.exchange import get
from benchx.serving.request import Endpoint
from benchx.serving.trial import Trial

Generate = Callable[[Endpoint, float], Trial]
"""Sends one small request within so many seconds (see `trial.try_once`)."""

_POLL_S = 0.25
_HEALTH_TIMEOUT_S = 5.0
_NOT_YET = (503, 429)
"""Statuses of a server that asks for patience."""

_DYING_S, _DYING_POLL_S = 10.0, 0.1


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """How long it took until the engine was of use.

    Attributes:
        healthy_s: From the start until the health check passed; None where there is none.
        ready_s: From the start until a generation had returned tokens.
        tokens: Tokens that it returned.
        charged_usd: What a hosted service charged for it; 0 where it tells nothing.
    """

    healthy_s: float | None
    ready_s: float
    tokens: int
    charged_usd: float = 0.0


def root_url(base_url: str, path: str) -> str:
    """The address of a path that counts from the root of the server (`/health`, `/metrics`)."""
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def origin_of(url: str) -> tuple[str, str]:
    """Scheme and host with port: what makes two addresses the same server."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def fail_if_dying(process: EngineProcess, endpoint: Endpoint, health_path: str | None) -> None:
    """Raise EngineFailed, in the engine's own words, when it has ended or ends now.

    Its connections break before its process has ended: the end of one that is not healthy is
    waited for, or what it did last would count as the work of an engine that lives.

    Args:
        process: The engine.
        endpoint: Where it answers.
        health_path: What to ask, from the root; None: it can't be asked.
    """
    deadline = time.monotonic() + _DYING_S
    while health_path is not None and time.monotonic() < deadline:
        process.fail_if_gone()
        if get(root_url(endpoint.base_url, health_path), timeout_s=_HEALTH_TIMEOUT_S).ok:
            break
        time.sleep(_DYING_POLL_S)
    process.fail_if_gone()


class ReadinessCheck:
    """Waits for one engine.

    Args:
        endpoint: Where it will answer.
        health_path: What to poll first, from the root; None goes to the generation at once.
        generate: Sends the request that proves that it works.
        timeout_s: Limit for all of it.
        process: The engine's process when benchx started it, so that its death is seen at once.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        health_path: str | None,
        generate: Generate,
        timeout_s: float,
        process: EngineProcess | None = None,
    ) -> None:
        self._endpoint, self._health_path = endpoint, health_path
        self._generate, self._process = generate, process
        self._timeout_s = timeout_s
        self._started = time.monotonic()
        self._state = "it never answered"
        self._charged_usd = 0.0

    def wait(self) -> Readiness:
        """Block until it is ready.

        Raises:
            EngineFailed: It died, the time is over, or it is healthy without working.
        """
        healthy_s = None
        if self._health_path is not None:
            while not self._healthy(self._health_path):
                self._pause()
            healthy_s = self._elapsed_s()
        while (tokens := self._tokens()) is None:
            self._pause()
        if self._process is not None:
            self._process.fail_if_gone()  # another server may have answered in its place
        return Readiness(
            healthy_s=healthy_s,
            ready_s=self._elapsed_s(),
            tokens=tokens,
            charged_usd=self._charged_usd,
        )

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def _left_s(self) -> float:
        return self._timeout_s - self._elapsed_s()

    def _pause(self) -> None:
        if self._process is not None:
            self._process.fail_if_gone()
        if self._left_s() <= _POLL_S:
            words = self._process.last_words() if self._process else ""
            url = self._endpoint.base_url
            raise EngineFailed(
                f"the engine was not ready after {self._timeout_s:g} s: {self._state}"
                + (f"; its log ends: {words}" if words else ""),
                outcome=Outcome.TIMEOUT,
                hint="allow more with `engine.ready_timeout`"
                if self._process
                else f"is the server up, and the address right? `benchx probe {url}` asks it",
            )
        time.sleep(_POLL_S)

    def _healthy(self, path: str) -> bool:
        limit_s = max(min(_HEALTH_TIMEOUT_S, self._left_s()), 0.1)
        answer = get(root_url(self._endpoint.base_url, path), timeout_s=limit_s)
        self._state = f"{path} answered {answer.summary()}" if answer.status else self._state
        return answer.ok

    def _tokens(self) -> int | None:
        """Tokens of a generation; None when the server asks for patience."""
        trial = self._generate(self._endpoint, max(self._left_s(), 0.1))
        cost = (trial.facts.usage or {}).get("cost")
        if isinstance(cost, int | float):
            self._charged_usd += cost
        if trial.problem is None:
            return trial.tokens
        self._state = f"a generation failed: {trial.problem}"
        if trial.status is None or trial.status in _NOT_YET:
            return None
        if self._process is not None:
            fail_if_dying(self._process, self._endpoint, self._health_path)
        raise EngineFailed(
            f"the server answers but does not work: {self._state}",
            outcome=Outcome.CRASHED if self._left_s() > 0 else Outcome.TIMEOUT,
            hint=self._hint(trial),
        )

    def _hint(self, trial: Trial) -> str | None:
        if self._process is not None:
            return f"its log: {self._process.log}"
        ends_well = urlsplit(self._endpoint.base_url).path.rstrip("/").endswith("/v1")
        if trial.status == 404 and not ends_well:
            return "engine.base_url is an address up to and including /v1"
        return None
