"""Sections of a serving part: engine, workload, load, time-outs, service-level objective.

Names and meanings are those of `EngineSettings` and `WorkloadSettings` in `benchx.serving`, which
receive them as plain data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator

from benchx.core.units import SHARE_EXPECTED, UnitError, parse_count, parse_share
from benchx.scenario.schema import DurationS, OpenShare, Settings, Word
from benchx.scenario.secret_words import (
    HIDDEN,
    SECRET_FIELD,
    SECRET_NAME,
    SECRET_QUERY,
    SecretGiven,
)

_OWN_FIELDS = {
    "model": "use engine.served_model",
    "prompt": "use workload",
    "messages": "use workload",
    "max_tokens": "use workload.output_len",
    "max_completion_tokens": "use workload.output_len",
    "stream": "answers are streamed",
}
"""Fields of a request's body -> where a scenario says them."""

LENGTHS_EXPECTED = "a number of tokens such as 1024 or 8k, or {kind: uniform, low: .., high: ..}"


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise UnitError(value, "a whole number of at least 1, such as 1024 or 8k")
    count = parse_count(value)
    if count < 1:
        raise UnitError(value, "a whole number of at least 1, such as 1024 or 8k")
    return count


def _lengths(value: object) -> int | dict[str, Any]:
    if not isinstance(value, Mapping):
        try:
            return _count(value)
        except UnitError as error:
            raise UnitError(value, LENGTHS_EXPECTED) from error
    if set(value) != {"kind", "low", "high"} or value["kind"] != "uniform":
        raise UnitError(dict(value), LENGTHS_EXPECTED)
    low, high = _count(value["low"]), _count(value["high"])
    if low > high:
        raise UnitError(f"low {low}, high {high}", "low not above high")
    return {"kind": "uniform", "low": low, "high": high}


def _address(example: str) -> Callable[[object], str]:
    """Reads an address that may be stored: results hold the scenario, so it holds no secret."""

    def read(value: object) -> str:
        try:
            parts = urlsplit(value) if isinstance(value, str) else urlsplit("")
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
            is_address = is_address and parts.port != 0
        except ValueError as error:  # brackets that don't close, a port that is no number
            raise UnitError(value, f"an address such as {example}") from error
        if _holds_secret(parts):
            raise SecretGiven(
                "an address with a secret in it",
                "no secret in a scenario: export a variable in the shell and name it in "
                "api_key_env or header_env",
            )
        is_plain = str(value).isprintable() and " " not in str(value)
        if not (is_address and is_plain and (parts.path + parts.query).isascii()):
            raise UnitError(value, f"an address such as {example}")
        return str(value)

    return read


def _holds_secret(parts: SplitResult) -> bool:
    """Whether an address names a user, or has a parameter that is called like a secret."""
    written = [*parse_qsl(parts.query), *parse_qsl(parts.fragment)]
    return "@" in parts.netloc or any(SECRET_QUERY.search(name) for name, _ in written)


def _no_secrets(names: re.Pattern[str]) -> Callable[[object], object]:
    """What is stored with the results holds no secret: that is named, not written."""

    def read(value: object) -> object:
        for name, item in value.items() if isinstance(value, Mapping) else ():
            if names.search(str(name)) and not isinstance(item, bool):
                raise SecretGiven(
                    f"{name} with a value",
                    "no secret in a scenario: export the variable in the shell (the engine "
                    "inherits it), or name it in header_env or api_key_env",
                )
        return value

    return read


def _no_own_fields(value: object) -> object:
    """What benchx writes into a request itself: other values would make its figures untrue."""
    for name in value if isinstance(value, Mapping) else ():
        if name in _OWN_FIELDS:
            raise UnitError(name, f"no field that benchx sets itself: {_OWN_FIELDS[name]}")
    return value


def _share(value: object) -> float:
    if not isinstance(value, str | int | float):
        raise UnitError(value, SHARE_EXPECTED)
    return parse_share(value)


def _variable(value: str) -> str:
    """A variable's name is stored with the results: a key in its place would be, too."""
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", value):
        raise UnitError(HIDDEN, "the name of an environment variable that holds the secret")
    return value


def _words(value: object) -> object:
    return tuple(str(value).split()) if isinstance(value, str) else value


Count = Annotated[int, PlainValidator(_count)]
Lengths = Annotated[int | dict[str, Any], PlainValidator(_lengths)]
BaseUrl = Annotated[str, PlainValidator(_address("http://127.0.0.1:8000/v1"))]
MetricsUrl = Annotated[str, PlainValidator(_address("http://127.0.0.1:8000/metrics"))]
Variable = Annotated[Word, AfterValidator(_variable)]
Texts = Annotated[dict[Word, str], BeforeValidator(_no_secrets(SECRET_NAME))]
Passed = Annotated[dict[Word, Any], BeforeValidator(_no_secrets(SECRET_FIELD))]
Share = Annotated[float, PlainValidator(_share)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class EngineSection(Settings):
    """What serves; see `benchx.serving.engines.base.EngineSettings`.

    Attributes:
        python: Program and first arguments of the engine's own Python, one word or a list.
        architecture: Descriptor of the model: a shipped name, a `.yaml` or a config.json.
        base_url: Of a server that runs already (`endpoint`), up to and including `/v1`.
        metrics_url: Where an `endpoint` tells its metrics.
        ready_timeout_s: Until a generation returned tokens (`ready_timeout: 30m`).
    """

    name: Annotated[Word, Field(description="the name of an engine (`name: vllm`)")]
    model: Word | None = None
    served_model: Word | None = None
    tokenizer: Word | None = None
    python: Annotated[tuple[Word, ...], BeforeValidator(_words)] = ()
    host: Word = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    api: Literal["completions", "chat"] = "completions"
    architecture: Word | None = None
    base_url: BaseUrl | None = None
    metrics_url: MetricsUrl | None = None
    api_key_env: Variable | None = None
    headers: Texts = Field(default_factory=dict)
    header_env: dict[Word, Variable] = Field(default_factory=dict)
    extra_body: Annotated[Passed, BeforeValidator(_no_own_fields)] = Field(default_factory=dict)
    token_ids: bool | None = None
    gpus: Annotated[int, Field(ge=1)] | None = None
    load_format: Word | None = None
    dtype: Word | None = None
    kv_cache_dtype: Word | None = None
    max_model_len: Count | None = None
    max_num_seqs: Count | None = None
    max_batched_tokens: Count | None = None
    tensor_parallel: Count | None = None
    pipeline_parallel: Count | None = None
    data_parallel: Count | None = None
    expert_parallel: bool | None = None
    gpu_memory_share: OpenShare | None = None
    prefix_caching: bool | None = None
    eager: bool | None = None
    trust_remote_code: bool | None = None
    max_context_pages: Count | None = None
    args: Passed = Field(default_factory=dict)
    env: Texts = Field(default_factory=dict)
    ready_timeout_s: DurationS = Field(default=1800.0, alias="ready_timeout")


class WorkloadSection(Settings):
    """What is sent; see `benchx.serving.workloads.base.WorkloadSettings`.

    Attributes:
        requests_per_stream: Requests for each concurrent stream instead of `requests`, so
            that every point of a sweep over concurrencies runs about equally long.
        path: File with the data; relative to the folder in which benchx is run.
    """

    dataset: Annotated[Word, Field(description="the name of a data set (`dataset: random`)")]
    requests: Count | None = None
    requests_per_stream: Count | None = None
    input_len: Lengths | None = None
    output_len: Lengths | None = None
    path: Word | None = None
    prefix_len: Count | None = None
    groups: Count | None = None
    sessions: Count | None = None
    turns: Lengths | None = None
    turn_len: Lengths | None = None
    pause_s: DurationS | None = Field(default=None, alias="pause")
    time_scale: Positive = 1.0
    max_input_len: Count | None = None
    max_output_len: Count | None = None
    exact_output: bool | None = None
    salted: bool = True


class LoadSection(Settings):
    """How it is sent.

    Attributes:
        arrival: Process of an open loop (axis `request_rate` or `session_rate`); `trace` takes
            the times of the data set.
        burstiness: Shape of `gamma` arrivals; 1 is Poisson, below is burstier.
        ramp_s: Seconds in which the load grows to its full size.
        ramp_from: Requests per second at the start of the ramp of an open loop.
        duration_s: Seconds after which nothing new is sent; None sends all requests. At a rate,
            made-up data sets send what starts within this time.
        workers: Client processes; `auto` chooses by the number of streams.
        warmup: Whether unmeasured requests come first: every class of lengths, as many at once as
            the load has under way, with answers of at most 32 tokens.
        max_error_rate: Largest share of the requests that may fail, those that were due and never
            sent included; above it the point has no figures. Raise it where overload or a rate
            limit is what you measure.
        point_limit_s: Seconds after which a point counts as hanging.
        spend_limit_usd: Charges (`usage.cost`) of this part of the run after which nothing new is
            sent: of all launches, warm-ups and resumed attempts together.
    """

    arrival: Literal["poisson", "constant", "gamma", "trace"] = "poisson"
    burstiness: Positive = 1.0
    ramp_s: DurationS | None = Field(default=None, alias="ramp")
    ramp_from: NotNegative = 0.0
    duration_s: DurationS | None = Field(default=None, alias="duration")
    workers: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = "auto"
    warmup: bool = True
    max_error_rate: Share = 0.05
    point_limit_s: DurationS = Field(default=7200.0, alias="point_limit")
    spend_limit_usd: Positive | None = None


class TimeoutSection(Settings):
    """When a request is given up; each costs that request only.

    Attributes:
        connect_s: Until a connection stands.
        first_byte_s: From sending to the first generated content; headers and a chunk that names
            the role, which engines send at once, don't count.
        idle_s: Between two reads of the body, from then on.
        total_s: From sending to the end.
    """

    connect_s: DurationS = Field(default=10.0, alias="connect")
    first_byte_s: DurationS = Field(default=600.0, alias="first_byte")
    idle_s: DurationS = Field(default=120.0, alias="idle")
    total_s: DurationS = Field(default=3600.0, alias="total")


class SloSection(Settings):
    """Limits that a good request keeps, counted from its intended start.

    Attributes:
        ttft_s: Time to first token.
        tpot_s: Time per output token.
        e2e_s: Time to the last token.
    """

    ttft_s: DurationS | None = Field(default=None, alias="ttft")
    tpot_s: DurationS | None = Field(default=None, alias="tpot")
    e2e_s: DurationS | None = Field(default=None, alias="e2e")


class SearchSection(Settings):
    """The highest load that meets the objective is searched for instead of a sweep over it.

    Attributes:
        axis: What is searched. Each load of a rate lasts `load.duration`; it passes if the server
            also keeps up: at least 95 % of the offered rate is achieved and no queue grows.
        low: Smallest value that is tried; a whole number for a concurrency.
        high: Largest one, the same.
        attainment: Share of requests that must meet the objective.
        precision: How near the answer must be, as a share of it.
        tries: Most loads that are tried.
    """

    axis: Literal["concurrency", "request_rate", "session_rate"]
    low: Positive = 1.0
    high: Positive
    attainment: OpenShare = 0.99
    precision: OpenShare = 0.05
    tries: Annotated[int, Field(ge=1, le=100)] = 16
