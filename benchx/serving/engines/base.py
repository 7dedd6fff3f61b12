"""The seam of the serving level: what benchx must know of an engine to start and question it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from benchx.core.outcome import Outcome, Unavailable
from benchx.core.registry import Registry
from benchx.serving.engines.process import Launch
from benchx.serving.request import Api, Endpoint

UsageRule = Literal["always", "on_request", "never"]

ArgValue = str | int | float | bool | list[Any] | tuple[Any, ...] | dict[str, Any]
"""Value of a passed-through flag: `true` is the bare flag, a list several words, a mapping JSON."""


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What a scenario says of its engine. None: the engine's own default holds.

    Attributes:
        name: Which engine.
        model: Path or name of the model; `tiny` is the one that benchx builds on the spot.
        served_model: Name under which the server knows it, when that differs.
        tokenizer: Path of the tokenizer, when it is not in the model's folder.
        python: Program and first arguments that run the engine's Python (`[/opt/vllm/bin/python]`);
            empty: the Python that runs benchx.
        host, port: Where it listens; port None takes a free one.
        api: Which API to load.
        architecture: Descriptor of the model (a name or a file), for the bytes of its cache; None:
            by the model's own name or config.json.
        base_url: Of a server that runs already (`endpoint`), up to and including `/v1`.
        metrics_url: Page of that server's metrics, in Prometheus' text format.
        api_key_env: Variable that holds its key.
        headers: Further request headers, no secrets.
        header_env: Header -> variable that holds its value.
        extra_body: Further fields of every request.
        token_ids: Whether a server that runs already (`endpoint`) takes prompts as token ids.
        gpus: GPUs that the deployment has, where benchx can't observe them.
        load_format: `dummy` serves random weights: valid speed, no valid text.
        dtype, kv_cache_dtype: Types of weights and of the cache.
        max_model_len: Longest context in tokens.
        max_num_seqs: Most sequences in one batch.
        max_batched_tokens: Most tokens in one step.
        tensor_parallel, pipeline_parallel, data_parallel: GPUs per kind of split.
        expert_parallel: Whether experts are split over the GPUs.
        gpu_memory_share: Share of GPU memory that the engine may take.
        prefix_caching: Whether it may reuse the cache of equal prefixes.
        eager: Whether CUDA graphs and compilation are off.
        trust_remote_code: Whether code in the model's folder may run.
        max_context_pages: Blocks of the paged cache (`transformers` needs it said).
        args: Flags passed through as they are, without the dashes.
        env: Environment of the engine.
        ready_timeout_s: From the start until a generation returned tokens.
    """

    name: str
    model: str | None = None
    served_model: str | None = None
    tokenizer: str | None = None
    python: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int | None = None
    api: Api = "completions"
    architecture: str | None = None
    base_url: str | None = None
    metrics_url: str | None = None
    api_key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    header_env: Mapping[str, str] = field(default_factory=dict)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    token_ids: bool | None = None
    gpus: int | None = None
    load_format: str | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    expert_parallel: bool | None = None
    gpu_memory_share: float | None = None
    prefix_caching: bool | None = None
    eager: bool | None = None
    trust_remote_code: bool | None = None
    max_context_pages: int | None = None
    args: Mapping[str, ArgValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    ready_timeout_s: float = 1800.0

    @property
    def gpus_asked(self) -> int:
        """GPUs that one deployment with these splits occupies: tensor x pipeline x data."""
        splits = (self.tensor_parallel, self.pipeline_parallel, self.data_parallel)
        return (splits[0] or 1) * (splits[1] or 1) * (splits[2] or 1)


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What an engine can do and tell; what differs decides request fields and definitions.

    Attributes:
        usage: When the stream ends with the server's token counts.
        done_marker: Whether a stream ends with `[DONE]`.
        token_ids: Whether prompts may be token ids.
        text: Whether prompts may be text.
        chunk_usage: Whether it can give usage with every chunk.
        batches: Whether it computes several requests at once; if not, TTFT under load is queueing.
        health_path: What to poll, from the root of the server.
        metrics_path: Where Prometheus text is, from the root; None: it tells nothing.
        metrics_url: The same where it is another address.
        tokenize_path: Where text becomes ids, from the root; None: nowhere.
        flags_show_drafts: Whether speculative decoding would show in the flags that it is given.
        version_paths: Where a running server tells its version as JSON, from the root; the first
            that answers counts.
    """

    usage: UsageRule
    done_marker: bool
    token_ids: bool
    text: bool = True
    chunk_usage: bool = False
    batches: bool = True
    health_path: str | None = "/health"
    metrics_path: str | None = None
    metrics_url: str | None = None
    tokenize_path: str | None = None
    flags_show_drafts: bool = True
    version_paths: tuple[str, ...] = ()


class Engine(Protocol):
    """One engine. All methods but `prepare` are pure: nothing is started or imported.

    Attributes:
        name: As in scenarios.
        title: As in `benchx list engines`.
        distributions: Python packages of which one is the engine; empty when it is none.
        starts: Whether benchx starts it; if not, `launch` is never called.
    """

    name: str
    title: str
    distributions: tuple[str, ...]
    starts: bool

    def missing(self, settings: EngineSettings) -> Unavailable | None:
        """Why it can't run on this machine with these settings, or None."""

    def prepare(self, settings: EngineSettings) -> EngineSettings:
        """Make what must exist before the start (a model built on the spot), and name it."""

    def launch(self, settings: EngineSettings, *, port: int) -> Launch:
        """How to start it."""

    def endpoint(self, settings: EngineSettings, *, port: int) -> Endpoint:
        """Where it will answer."""

    def capabilities(self, settings: EngineSettings) -> Capabilities:
        """What it can do and tell with these settings."""

    def exact_length(self, tokens: int) -> Mapping[str, Any]:
        """Request fields that make it generate exactly so many tokens."""


def own_endpoint(settings: EngineSettings, *, port: int) -> Endpoint:
    """That of an engine which benchx starts, with all that the scenario says of its requests."""
    return Endpoint(
        base_url=f"http://{settings.host}:{port}/v1",
        api=settings.api,
        model=settings.served_model or str(settings.model),
        headers=settings.headers,
        header_env=settings.header_env,
        api_key_env=settings.api_key_env,
        extra_body=settings.extra_body,
    )


NO_MODEL = Unavailable(outcome=Outcome.UNSUPPORTED, reason="the scenario names no engine.model")

ENGINES: Registry[Engine] = Registry("engine", group="benchx.engines")
