"""What goes over the wire comes out as it went in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.outcome import Outcome
from benchx.core.point import Point
from benchx.core.record import SCHEMA, LaunchRecord
from benchx.runner.events import (
    Ceilings,
    Control,
    Ended,
    Event,
    Phase,
    Ready,
    Recorded,
    decode,
    encode,
)
from benchx.runner.spec import Group, LaunchSpec

finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(max_size=10)
maps = st.dictionaries(words, finite | words | st.none(), max_size=3)
scalars = st.booleans() | st.integers() | finite | words
points = st.builds(
    Point,
    kind=st.just("kernel"),
    params=st.dictionaries(words, scalars, max_size=3),
    part=st.integers(0, 3),
)
specs = st.builds(
    LaunchSpec,
    groups=st.lists(
        st.builds(Group, st.lists(points, min_size=1, max_size=3).map(tuple)), max_size=3
    ).map(tuple),
    settings=st.dictionaries(st.integers(0, 3), maps, max_size=2),
    plugins=st.lists(words, max_size=2).map(tuple),
)
records = st.builds(
    LaunchRecord,
    outcome=st.just(Outcome.OK),
    values=st.dictionaries(words, finite, min_size=1, max_size=3),
    samples=st.dictionaries(words, st.lists(finite).map(tuple), max_size=2),
    check=st.none(),
    work=st.none(),
    timing=st.none(),
    telemetry=maps,
    provenance=maps,
    schema=st.just(SCHEMA),
)
events = (
    st.builds(Ready, device=maps, environment=maps, ceilings=maps)
    | st.builds(Phase, points=st.lists(words).map(tuple), limit_s=finite)
    | st.builds(Recorded, records)
    | st.builds(Control, finite)
    | st.builds(Ceilings, maps)
    | st.builds(Ended, words)
)


@given(event=events)
def test_an_event_survives_the_pipe(event: Event) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == event


@given(spec=specs)
def test_a_spec_survives_the_pipe(spec: LaunchSpec) -> None:
    assert LaunchSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"event": "no", "body": {}}',
        b'{"event": "phase", "body": {}}',
        b'{"event": "recorded", "body": {"schema": 1}}',
        b"\xff\xfe",
    ],
)
def test_anything_else_is_no_event(line: bytes) -> None:
    with pytest.raises(ValueError, match="not an event"):
        decode(line)
