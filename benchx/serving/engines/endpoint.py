"""`endpoint`: a server that runs already, here or hosted; nothing is started or stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchx.core.errors import UsageError
from benchx.core.outcome import Unavailable
from benchx.serving.engines.base import ENGINES, Capabilities, EngineSettings
from benchx.serving.engines.process import Launch
from benchx.serving.http_wire import Address
from benchx.serving.request import Endpoint


class EndpointEngine:
    """Attaches to `base_url`. What it can do is unknown until `benchx probe` has asked."""

    name = "endpoint"
    title = "a server that runs already, or a hosted one"
    distributions: tuple[str, ...] = ()
    starts = False

    def missing(self, settings: EngineSettings) -> Unavailable | None:
        """Nothing can be missing on this machine; a missing key is found when it is needed."""
        return None

    def prepare(self, settings: EngineSettings) -> EngineSettings:
        """Nothing to make."""
        return settings

    def launch(self, settings: EngineSettings, *, port: int) -> Launch:
        """Refused: there is nothing to start."""
        raise UsageError("engine endpoint: benchx starts nothing, the server runs already")

    def endpoint(self, settings: EngineSettings, *, port: int) -> Endpoint:
        """The address as given; raises UsageError when it or the model's name is missing."""
        try:
            Address.of(settings.base_url or "")
        except UsageError as error:
            raise UsageError(f"engine.base_url: {error.message}", hint=error.hint) from error
        model = settings.served_model or settings.model
        if model is None:
            raise UsageError("engine.model: missing; expected the model's name at the server")
        return Endpoint(
            base_url=str(settings.base_url),
            api=settings.api,
            model=model,
            headers=settings.headers,
            header_env=settings.header_env,
            api_key_env=settings.api_key_env,
            extra_body=settings.extra_body,
        )

    def capabilities(self, settings: EngineSettings) -> Capabilities:
        """What the OpenAI API promises; token ids where the scenario says so."""
        return Capabilities(
            usage="on_request",
            done_marker=True,
            token_ids=bool(settings.token_ids),
            health_path=None,
            metrics_url=settings.metrics_url,
            flags_show_drafts=False,
            version_paths=("/version", "/server_info", "/get_server_info"),
        )

    def exact_length(self, tokens: int) -> Mapping[str, Any]:
        """The API has no field for it; the scenario may name the server's in `extra_body`."""
        return {}


ENGINES.add("endpoint", EndpointEngine())
