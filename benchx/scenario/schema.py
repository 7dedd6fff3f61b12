"""The settings that scenario parts share, validated by pydantic; frozen once read."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)

from benchx.core.axes import Scalar
from benchx.core.units import UnitError, parse_duration_s, parse_share

SCHEMA: Literal[1] = 1


def _duration_s(value: object) -> float:
    seconds = parse_duration_s(value) if isinstance(value, str) else 0.0
    if seconds <= 0:
        raise UnitError(value, "a time above zero with its unit, such as 0.5s, 15s or 2min")
    return seconds


def _open_share(value: object) -> float:
    expected = "a share above 0 and below 1, such as 0.5% or 0.005"
    if not isinstance(value, str | int | float):
        raise UnitError(value, expected)
    if not 0 < (share := parse_share(value)) < 1:
        raise UnitError(value, expected)
    return share


def _scalar(value: object) -> Scalar:
    if isinstance(value, str | int | float):
        return value
    raise UnitError(value, "one value (a number, a word, true or false)")


def _as_list(value: object) -> object:
    """One bare value stands for a list of one (`--set axes.heads=64`)."""
    return (value,) if isinstance(value, str | int | float) else value


def _word(value: str) -> str:
    if not value.strip():
        raise UnitError(value, "a word")
    return value


def _slug(value: str) -> str:
    if len(value) > _LONGEST_SLUG:
        raise UnitError(value, f"at most {_LONGEST_SLUG} characters: it begins a folder's name")
    if not value or value.strip("abcdefghijklmnopqrstuvwxyz0123456789._-") or value[0] in "._-":
        raise UnitError(value, "lower-case letters, digits, '-', '_' and '.', as in kda-prefill")
    return value


_LONGEST_SLUG = 100

DurationS = Annotated[
    float,
    PlainValidator(_duration_s),
    PlainSerializer(lambda seconds: f"{Decimal(repr(seconds)):f}s", when_used="json"),
]
"""Seconds; written with a unit, and written back so that JSON of a part loads again."""

OpenShare = Annotated[float, PlainValidator(_open_share)]
"""Above 0, below 1."""

Value = Annotated[Scalar, PlainValidator(_scalar)]
"""One value of an axis, as written; its meaning is up to the axis."""

Values = Annotated[tuple[Value, ...], BeforeValidator(_as_list), Field(min_length=1)]
"""The values of an axis; a bare value is a list of one."""

Word = Annotated[str, AfterValidator(_word)]

Words = Annotated[tuple[Word, ...], BeforeValidator(_as_list), Field(min_length=1)]

Slug = Annotated[str, AfterValidator(_slug)]
"""A name that is safe as the name of a folder."""


class Settings(BaseModel):
    """Strict: unknown keys are refused and nothing is converted from one type to another."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        hide_input_in_errors=True,  # it may be a secret, and a traceback shows it
    )


class MeasureSettings(Settings):
    """How strictly to measure.

    Attributes:
        launches: Passes over the plan, each in a fresh worker process.
        cache: `cold` displaces the last-level cache before every sample.
        timer: `events_spin` (device events, the device kept busy until a call is fully queued),
            `events` (the same without), `graph` (CUDA graph), `cpu`, or `auto`: events_spin on a
            GPU, else cpu.
        target_error: Half-width of the interval of the median, as a share of it, that is enough.
        min_samples: Samples taken before sampling may end.
        max_samples: Samples after which it ends.
        max_time_s: Seconds per point and launch, cache flushes included, after which it ends with
            however many samples there are (`max_time: 15s`).
        order: Whether backends of a group take turns or follow one another.
        setup_time_limit_s: Seconds that compiling, checking and warming up may take per point.
        seed: Start of every random sequence.
    """

    launches: Annotated[int, Field(ge=1, le=1000)] = 3
    cache: Literal["cold", "warm"] = "cold"
    timer: Literal["auto", "events_spin", "events", "graph", "cpu"] = "auto"
    target_error: OpenShare = 0.005
    min_samples: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    max_samples: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    max_time_s: DurationS = Field(default=10.0, alias="max_time")
    order: Literal["interleaved", "sequential"] = "interleaved"
    setup_time_limit_s: DurationS = Field(default=300.0, alias="setup_time_limit")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0

    @model_validator(mode="after")
    def _limits_in_order(self) -> Self:
        if self.min_samples > self.max_samples:
            raise UnitError(
                f"min_samples {self.min_samples}", f"at most max_samples ({self.max_samples})"
            )
        return self


class CheckSettings(Settings):
    """When outputs count as right.

    Attributes:
        max_rms_ratio: Largest rms(output - reference) / rms(reference); None takes the operator's.
    """

    max_rms_ratio: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = None


AUTO = "auto"
"""As `cost.hardware`: the device that is found."""


class CostSettings(Settings):
    """What the report may price.

    Attributes:
        hardware: Entry of the hardware table, or `auto`: the device that is found.
        prices: Tier of the price table.
    """

    hardware: Word = AUTO
    prices: Word = "rental"


class Part(Settings):
    """What every kind of part has; each kind adds its own fields.

    Attributes:
        schema_version: Version of the scenario format (`schema: 1`).
        name: Name of the part; a scenario of one part has the same.
        title: The question that it answers, in one line.
        kind: Which kind of part.
        measure: How strictly to measure.
        cost: What may be priced; None: nothing.
    """

    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    name: Slug
    title: Word
    kind: str
    measure: MeasureSettings = MeasureSettings()
    cost: CostSettings | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data that reads back as an equal part."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Suite(Settings):
    """Several parts in one run; `measure`, `check` and `cost` hold where a part is silent.

    They reach the parts whose kind has them: a serving part has no `check`.

    Attributes:
        parts: Inline parts, already joined with what they extend.
    """

    schema_version: Literal[1] = Field(default=SCHEMA, alias="schema")
    name: Slug
    title: Word
    kind: Literal["suite"]
    parts: Annotated[
        tuple[Any, ...], Field(min_length=1, description="a list of scenario names or mappings")
    ]
    measure: Any = None
    check: Any = None
    cost: Any = None
