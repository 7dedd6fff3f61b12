"""Parts of kind `serving`: an engine, a workload, and a sweep over loads and settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field

from benchx.core.axes import Scalar
from benchx.core.errors import ScenarioError, nearest_word
from benchx.core.point import Point
from benchx.scenario.kernel import KernelPart, check_kernel_part
from benchx.scenario.kernel_sweep import kernel_sweep
from benchx.scenario.kinds import KINDS, Kind, Sweep
from benchx.scenario.located import Located, show
from benchx.scenario.schema import Part, Value, Values, Word
from benchx.scenario.serving_axes import ENGINE_AXES, RATE_AXES, SERVING_AXES, WORKLOAD_AXES
from benchx.scenario.serving_sections import (
    EngineSection,
    LoadSection,
    SearchSection,
    SloSection,
    TimeoutSection,
    WorkloadSection,
)
from benchx.scenario.serving_workload import (
    check_rate,
    check_streams,
    check_workload,
    count_setting,
    needs_of,
    too_few_streams,
)
from benchx.scenario.vocabulary import OpWords, Vocabulary

ENDPOINT = "endpoint"
"""The engine that is not started: a server that runs already."""


class ServingPart(Part):
    """What to measure of one engine.

    Attributes:
        engine: What serves.
        workload: What is sent.
        load: How it is sent, beyond the axes.
        timeouts: When a request is given up.
        slo: What a good request is.
        search: Searches for the highest load within the objective; None sweeps.
        fixed: Axis -> its one value.
        axes: Axis -> its values; `concurrency`, `request_rate` or `session_rate` must be given (one
            of the first and a rate: an open loop with at most so many under way). The last one
            runs fastest.
        zip: Groups of axes that move together.
        exclude: Combinations to leave out.
    """

    kind: Literal["serving"]
    engine: Annotated[EngineSection, Field(description="a mapping with the engine's name")]
    workload: Annotated[WorkloadSection, Field(description="a mapping with a data set")]
    load: LoadSection = LoadSection()
    timeouts: TimeoutSection = TimeoutSection()
    slo: SloSection = SloSection()
    search: SearchSection | None = None
    fixed: dict[Word, Value] = Field(default_factory=dict)
    axes: dict[Word, Values] = Field(default_factory=dict)
    zip: tuple[Annotated[tuple[Word, ...], Field(min_length=2)], ...] = ()
    exclude: tuple[Annotated[dict[Word, Values], Field(min_length=1)], ...] = ()

    def as_kernel(self) -> KernelPart:
        """Its sweep in the form of a kernel part: data set for operator, engine for backend."""
        return KernelPart.model_construct(
            name=self.name,
            title=self.title,
            kind="kernel",
            op=self.workload.dataset,
            backends=(self.engine.name,),
            fixed=self.fixed,
            axes=self.axes,
            zip=self.zip,
            exclude=self.exclude,
            measure=self.measure,
        )

    def written(self) -> dict[str, Scalar]:
        """Values of axes that are said in the sections and not swept."""
        sections: dict[str, Any] = {
            **self.engine.model_dump(include=set(ENGINE_AXES)),
            **self.workload.model_dump(include=set(WORKLOAD_AXES)),
        }
        if self.load.arrival != "poisson" or self.swept.intersection(RATE_AXES):
            sections |= {"arrival": self.load.arrival, "burstiness": self.load.burstiness}
        return {
            name: value
            for name, value in sections.items()
            if isinstance(value, str | int | float | bool) and name not in self.swept
        }

    def values_of(self, name: str) -> tuple[Scalar, ...]:
        """Values of an axis under `axes` and `fixed`; none where it is in neither."""
        fixed = (self.fixed[name],) if name in self.fixed else ()
        return (*self.axes.get(name, ()), *fixed)

    @property
    def swept(self) -> frozenset[str]:
        """Names under `axes` and `fixed`."""
        return frozenset({*self.axes, *self.fixed})


def check_serving_part(part: ServingPart, origin: Located) -> None:
    """Contradictions between fields, and a load that says neither how many nor how fast."""
    for section in ("axes", "fixed"):
        for name in getattr(part, section):
            if name not in SERVING_AXES:
                raise ScenarioError(
                    origin.at((section, name)).where,
                    key=f"{section}.{name}",
                    problem="unknown axis",
                    expected=f"one of {', '.join(SERVING_AXES)}",
                    nearest=nearest_word(name, SERVING_AXES),
                )
    check_kernel_part(part.as_kernel(), origin)
    by_trace = part.load.arrival == "trace" or "trace" in part.axes.get("arrival", ())
    if part.search is not None:
        _check_search(part, part.search, origin)
    elif not part.swept & {"concurrency", *RATE_AXES} and not by_trace:
        raise ScenarioError(
            origin.at(("axes",)).where,
            key="axes",
            problem="neither concurrency nor request_rate nor session_rate is given",
            expected="one of them, such as `axes: {concurrency: [1, 4, 16]}`",
        )
    streams = part.swept | {part.search.axis if part.search else ""}
    if part.workload.requests_per_stream and part.workload.requests is not None:
        raise ScenarioError(
            origin.at(("workload", "requests")).where,
            key="workload.requests",
            problem="requests_per_stream already says how many",
            expected="one of both",
        )
    if part.workload.requests_per_stream and "concurrency" not in streams:
        raise ScenarioError(
            origin.at(("workload", "requests_per_stream")).where,
            key="workload.requests_per_stream",
            problem="there is no axis concurrency that it could be multiplied with",
            expected="`workload.requests`",
        )


def _check_search(part: ServingPart, search: SearchSection, origin: Located) -> None:
    place = origin.at(("search",)).where
    if search.axis in part.swept:
        problem = f"{search.axis} is swept too"
        raise ScenarioError(place, key="search.axis", problem=problem, expected="one of both")
    if not part.slo.model_fields_set:
        raise ScenarioError(
            place, key="search", problem="there is no objective", expected="`slo: {ttft: 2s}`"
        )
    if search.axis in RATE_AXES and part.load.duration_s is None:
        raise ScenarioError(
            place,
            key="load.duration",
            problem="missing: a fixed number of requests is over before a high rate shows",
            expected="how long each load of the search lasts, such as `load: {duration: 1min}`",
        )
    for bound in ("low", "high"):
        value = getattr(search, bound)
        if search.axis == "concurrency" and not value.is_integer():
            raise ScenarioError(
                origin.at(("search", bound)).where,
                key=f"search.{bound}",
                problem=f"got {value:g}",
                expected="a whole number, as it is a concurrency",
            )
    if search.low > search.high:
        problem = f"low {search.low:g} is above high {search.high:g}"
        raise ScenarioError(place, key="search.low", problem=problem, expected="low <= high")


_OF_ENDPOINT = ("base_url", "metrics_url", "token_ids")
"""Settings of a server that runs already; those of one that it starts are known to benchx."""


_FOR_ENDPOINT = {
    *("name", "model", "served_model", "architecture", "tokenizer", "gpus", "ready_timeout_s"),
    *("base_url", "metrics_url", "token_ids", "api", "api_key_env", "headers", "header_env"),
    *("extra_body", "dtype", "kv_cache_dtype"),
}
"""Fields that say how to ask a server that runs already, or of what type its cache is."""


def _without_effect(part: ServingPart) -> list[str]:
    """Settings and axes of an engine's start, where no engine is started."""
    if part.engine.name != ENDPOINT:
        return []
    given = [
        field.alias or name
        for name, field in EngineSection.model_fields.items()
        if name not in _FOR_ENDPOINT
        and getattr(part.engine, name) != field.get_default(call_default_factory=True)
    ]
    return sorted({*given, *(ENGINE_AXES & part.swept) - _FOR_ENDPOINT})


def _check_engine(part: ServingPart, origin: Located) -> None:
    """What an engine can't do without, and what only a server that runs already needs."""
    engine, place = part.engine, origin.at(("engine",))

    def fail(key: str, problem: str, expected: str) -> NoReturn:
        where = place.at((key,)).where
        raise ScenarioError(where, key=f"engine.{key}", problem=problem, expected=expected)

    if engine.model is None and engine.served_model is None:
        fail("model", "missing", "a model's folder, or its name at the server (`model: ./model`)")
    if engine.name == ENDPOINT and engine.base_url is None:
        address = "the server's address, such as `base_url: http://127.0.0.1:8000/v1`"
        fail("base_url", "missing", address)
    for key in _without_effect(part):
        problem = f"benchx does not start an {ENDPOINT}, so this has no effect"
        fail(key, problem, "to be set where the server is started")
    for key in _OF_ENDPOINT:
        if engine.name != ENDPOINT and getattr(engine, key) is not None:
            problem = f"{engine.name} is started by benchx, which knows this of it"
            fail(key, problem, f"`{key}` with `name: {ENDPOINT}` only")


def serving_sweep(part: ServingPart, origin: Located, vocabulary: Vocabulary, index: int) -> Sweep:
    """The points of a part, in plan order: engine settings slowest, so that starts are few.

    Raises:
        ScenarioError: For unknown engines, data sets, axes and values, and for an engine without
            what it needs.
    """
    known, counted = vocabulary.serving, None
    if known is not None:
        _check_name(origin, ("engine", "name"), part.engine.name, known.engines)
        _check_name(origin, ("workload", "dataset"), part.workload.dataset, tuple(known.datasets))
        check_rate(part, origin, chained=part.workload.dataset in known.chained)
        check_workload(part, origin, needs_of(part, known))
        counted = count_setting(known.datasets[part.workload.dataset])
        check_streams(part, origin, counted)
    _check_engine(part, origin)  # after its name: a misspelt one needs nothing
    written = part.written()
    words = OpWords(
        axes={
            name: replace(spec, default=written.get(name))
            for name, spec in SERVING_AXES.items()
            if name in part.swept or name in written
        },
        backends=(part.engine.name,),
        problem=lambda params: too_few_streams(params, counted),
    )
    swept = kernel_sweep(
        part.as_kernel(), origin, Vocabulary(ops={part.workload.dataset: words}), index
    )

    def points() -> Iterator[Point]:
        made = [
            Point(
                kind="serving",
                subject=point.subject,
                backend=point.backend,
                params=point.params,
                part=index,
            )
            for point in swept.points()
        ]
        by_start: dict[tuple[object, ...], list[Point]] = {}
        for point in made:
            by_start.setdefault(engine_key(point), []).append(point)
        yield from chain.from_iterable(by_start.values())

    return Sweep(swept.count, points)


def engine_key(point: Point) -> tuple[object, ...]:
    """Equal for points that one start of the engine serves."""
    values = (point.params.get(name) for name in sorted(ENGINE_AXES))
    return (point.part, point.backend, *values)


def _check_name(origin: Located, path: tuple[str, str], name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ScenarioError(
            origin.at(path).where,
            key=".".join(path),
            problem=f"got {show(name)}",
            expected=f"one of {', '.join(known)}",
            nearest=nearest_word(name, known),
        )


KINDS.add(
    "serving",
    Kind(name="serving", model=ServingPart, check=check_serving_part, sweep=serving_sweep),
)
