"""Chunks read by their mould, in windows, give what one byte after the other gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.serving.client_mould import Mould
from benchx.serving.client_mould_usage import UsageMould, mould_of
from benchx.serving.client_stream import StreamReader
from benchx.serving.client_window import WINDOW_BYTES, Window, windows_of


class ExactReader(StreamReader):
    """A reader that parses every event."""

    def _run(self, window: Window, start: int) -> int:
        return 0


class CountingReader(StreamReader):
    """A reader that counts the chunks that it did not parse."""

    known = 0

    def _run(self, window: Window, start: int) -> int:
        before = len(self.arrivals_ns)
        end = super()._run(window, start)
        self.known += len(self.arrivals_ns) - before
        return end


def state(reader: StreamReader) -> dict[str, object]:
    """Everything that a reader found; comments after a fault are nobody's business."""
    names = ("first_ns", "first_reasoning_ns", "first_visible_ns", "arrivals_ns", "chunk_tokens")
    more = (
        "tokens_known",
        "finish_reason",
        "done",
        "usage",
        "fault",
        "text",
        "reasoning",
        "events",
    )
    comments = reader.comments if reader.fault is None else None
    return {name: getattr(reader, name) for name in (*names, *more)} | {"comments": comments}


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % (len(stream) + 1) for place in places} | {0, len(stream)})
    return [stream[a:b] for a, b in pairwise(ends)]


def read(reader: StreamReader, pieces: Sequence[bytes]) -> dict[str, object]:
    """What a reader finds in pieces that arrive at 1, 2, 3, ..."""
    for window in windows_of(range(1, len(pieces) + 1), pieces):
        reader.feed(window)
    reader.close(len(pieces))
    return state(reader)


def read_one_by_one(pieces: Sequence[bytes]) -> dict[str, object]:
    """The same without windows and moulds: each piece by itself, each event parsed."""
    reader = ExactReader()
    for stamp_ns, piece in enumerate(pieces, 1):
        reader.feed(Window([stamp_ns], [piece]))
    reader.close(len(pieces))
    return state(reader)


TEXT = st.one_of(
    st.sampled_from(
        ["a", "the", "", ",", ":", " ", "\n", '"', "\\", "ü", "\u3000", "another text"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
FIELDS = st.sampled_from(["content", "reasoning", "reasoning_content", "text", "refusal", "name"])
VARIANTS: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    [{}, {}, {}, {"finish_reason": "stop"}, {"token_ids": [1]}, {"usage": {"completion_tokens": 2}}]
)
TOP: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    [
        {},
        {},
        {},
        {"usage": {"completion_tokens": 1}},
        {"error": "no"},
        {"error": None},
        {"usage": None},
    ]
)


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """The data of one chunk: usual in most respects, odd in some."""
    field, text = draw(FIELDS), draw(TEXT)
    inner = {"text": text} if field == "text" else {"delta": {field: text}}
    choices: list[dict[str, object]] = [{"index": 0, **inner, "logprobs": None, **draw(VARIANTS)}]
    if draw(st.integers(0, 20)) == 0:
        choices *= 2
    ident = draw(st.sampled_from(["1", "1", "2", "10", "a"]))
    chunk: dict[str, object] = {"id": ident, "choices": choices}
    spaced = draw(st.sampled_from([(",", ":"), (",", ":"), (", ", ": ")]))
    ascii_only = draw(st.booleans())
    return json.dumps(chunk | draw(TOP), ensure_ascii=ascii_only, separators=spaced).encode()


ODD = st.sampled_from(
    [
        *(
            b": hello\n\n",
            b"data: [DONE]\n\n",
            b"event: x\ndata: {}\n\n",
            b"\n",
            b"\r\n",
            b"id: 3\n",
        ),
        *(b"data: {}\r\r", b"data: nonsense\n\n", b'data: {"choices":\ndata: []}\n\n'),
        b"\xef\xbb\xbf",
    ]
)
EVENT = st.tuples(
    st.sampled_from([b"data: ", b"data: ", b"data: ", b"data:", b"data:  "]),
    chunks(),
    st.sampled_from([b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n"]),
).map(b"".join)
BLOCK = st.tuples(EVENT, st.integers(1, 5)).map(lambda pair: pair[0] * pair[1])
STREAM = st.lists(st.one_of(BLOCK, BLOCK, BLOCK, ODD), max_size=8).map(b"".join)


@given(STREAM, st.lists(st.integers(0, 5000), max_size=20))
def test_any_cut_of_any_stream_gives_what_parsing_every_event_gives(
    stream: bytes, places: list[int]
) -> None:
    pieces = cut(stream, places)
    assert read(StreamReader(), pieces) == read_one_by_one(pieces)


@given(STREAM, st.lists(st.integers(0, 5000), max_size=3), st.binary(min_size=1, max_size=3))
def test_damaged_bytes_are_found_as_they_are_by_parsing_every_event(
    stream: bytes, places: list[int], damage: bytes
) -> None:
    damaged = damage.join(cut(stream, places))
    assert read(StreamReader(), [damaged]) == read_one_by_one([damaged])


def usual(text: str, index: int = 7, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {"id": f"chat-{index}", "created": 1, "choices": [choice]} | more
    return (
        b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


@given(st.lists(TEXT, min_size=2, max_size=40), st.lists(st.integers(0, 5000), max_size=20))
def test_usual_chunks_keep_their_text_and_arrival(texts: list[str], places: list[int]) -> None:
    pieces = cut(b"".join(map(usual, texts)), places)
    assert read(StreamReader(), pieces) == read_one_by_one(pieces)


@pytest.mark.parametrize(
    "events",
    [
        [usual("a")] * 9,
        [usual(text) for text in ("x", "\n", '"', "\\", "ü", "\t", "\u3000", "{", "}")],
        [usual("a", index) for index in range(1, 10)],
        [usual("a").replace(b"content", b"reasoning")] * 9,
        [usual("a").replace(b"\n\n", b"\r\n\r\n")] * 9,
        [usual("a").replace(b"data: ", b"data:")] * 9,
    ],
)
def test_all_chunks_with_text_but_the_first_are_known(events: list[bytes]) -> None:
    reader = CountingReader()
    read(reader, [usual(""), *events])
    assert (len(reader.arrivals_ns), reader.known) == (9, 8)


def test_a_chunk_whose_blank_line_is_cut_within_its_crlf_arrived_with_the_cr() -> None:
    event = usual("a").replace(b"\n\n", b"\r\n\r\n")
    stream = 3 * event
    found = read(StreamReader(), [stream[:-1], stream[-1:]])
    assert found == read_one_by_one([stream[:-1], stream[-1:]])
    assert found["arrivals_ns"] == [1, 1, 1]


@pytest.mark.parametrize("length", [1, 100, WINDOW_BYTES, 3 * WINDOW_BYTES])
def test_a_body_longer_than_a_window_is_read_whole(length: int) -> None:
    stream = usual("a") * (5 * WINDOW_BYTES // len(usual("a")))
    pieces = [stream[place : place + length] for place in range(0, len(stream), length)]
    assert read(StreamReader(), pieces) == read_one_by_one(pieces)


@pytest.mark.parametrize(
    "event",
    [
        usual(""),
        usual("a", usage={"completion_tokens": 1}),
        usual("a", error="no"),
        usual("a", choices=[]),
        usual("a").replace(b"null", b'"stop"'),
        usual("a", other="another text"),
        usual("a", other="\n"),
        usual("a").replace(b"\n\n", b"\n"),
        usual("a").replace(b'"choices"', b'\ndata: "choices"'),
        b": a" + usual("a"),
        b"data: [DONE]\n\n",
        b"data: 1\n\n",
    ],
)
def test_what_is_more_than_a_text_has_no_mould(event: bytes) -> None:
    assert Mould.of(event) is None


@pytest.mark.parametrize("inside", [b'b","c', b'b"],["c', b"b\\", b"b\n", b"\xff", b"", b'b",\n"c'])
def test_a_chunk_that_is_no_json_string_within_its_mould_ends_the_run(inside: bytes) -> None:
    mould, good = Mould.of(usual("a")), usual("a")
    bad = good.replace(b'"a"', b'"' + inside + b'"')
    assert mould is not None
    run = mould.run(good + good + bad + good, 0)
    assert run is not None
    assert (run.text, run.complete) == ("aa", [len(good), 2 * len(good)])
    assert run.end == 2 * len(good)
    assert mould.run(bad, 0) is None


def test_a_changed_head_that_puts_the_text_elsewhere_ends_the_run() -> None:
    good = usual("a")
    mould = Mould.of(good)
    fixed = b'"content":"anoth\\u0065r text","no":{"delta":{"content":"a"},"x":1}'
    moved = good.replace(b'"content":"a"', fixed)
    assert mould is not None
    run = mould.run(good + moved, 0)
    assert run is not None
    assert run.text == "a"


def counted(text: str, total: object, index: int = 7, **more: object) -> bytes:
    """A usual chunk with a usage behind it, as vLLM and SGLang write it."""
    usage = {"prompt_tokens": 12, "total_tokens": 12, "completion_tokens": total} | more
    return usual(text, index, usage=usage)


DETAILS: st.SearchStrategy[dict[str, object]] = st.sampled_from(
    [
        *({}, {}, {}, {"details": None}, {"details": {"cached_tokens": 1}}, {"a": {"b": {"c": 1}}}),
        *({"x": "}"}, {"x": "{"}, {"x": '"usage":{'}),
    ]
)
COUNTED = st.tuples(
    TEXT,
    st.one_of(st.integers(0, 10**6), st.sampled_from([None, -1, 1.5, True, "3", 10**30])),
    st.sampled_from([7, 7, 7, 8, 10]),
    DETAILS,
).map(lambda one: counted(*one[:3], **one[3]))
COUNTED_STREAM = st.lists(
    st.one_of(COUNTED, COUNTED, COUNTED, COUNTED.map(lambda event: event * 3), ODD, EVENT),
    max_size=20,
).map(b"".join)


@given(COUNTED_STREAM, st.lists(st.integers(0, 5000), max_size=20))
def test_any_cut_of_chunks_with_usage_gives_what_parsing_every_event_gives(
    stream: bytes, places: list[int]
) -> None:
    pieces = cut(stream, places)
    assert read(StreamReader(), pieces) == read_one_by_one(pieces)


@given(
    COUNTED_STREAM, st.lists(st.integers(0, 5000), max_size=3), st.binary(min_size=1, max_size=3)
)
def test_damaged_bytes_among_usage_are_found_as_they_are_by_parsing_every_event(
    stream: bytes, places: list[int], damage: bytes
) -> None:
    damaged = damage.join(cut(stream, places))
    assert read(StreamReader(), [damaged]) == read_one_by_one([damaged])


@given(st.lists(st.tuples(TEXT, st.integers(0, 5)), min_size=2, max_size=40), st.data())
def test_usage_that_grows_tells_the_tokens_of_every_chunk(
    chunks: list[tuple[str, int]], data: st.DataObject
) -> None:
    total, events = 0, []
    for text, grown in chunks:
        total += grown
        events.append(counted(text, total))
    pieces = cut(b"".join(events), data.draw(st.lists(st.integers(0, 9000), max_size=20)))
    found = read(StreamReader(), pieces)
    assert found == read_one_by_one(pieces)
    assert sum(found["chunk_tokens"]) == total  # type: ignore[call-overload]
    assert found["usage"].completion_tokens == total  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "events",
    [
        [counted("a", total) for total in range(1, 10)],
        [counted("a", 3 * total) for total in range(1, 10)],
        [counted(text, place) for place, text in enumerate(("x", "\n", '"', "\\", "ü", "{", "}"))],
        [counted("a", index, index) for index in range(1, 10)],
        [counted("a", total).replace(b"content", b"reasoning") for total in range(1, 10)],
        [counted("a", total).replace(b"\n\n", b"\r\n\r\n") for total in range(1, 10)],
        [counted("a", total).replace(b'"usage":', b'"usage": ') for total in range(1, 10)],
        [counted("a", total, details={"cached_tokens": total}) for total in range(1, 10)],
    ],
)
def test_all_chunks_with_usage_but_the_first_are_known(events: list[bytes]) -> None:
    reader = CountingReader()
    read(reader, [usual("", usage={"completion_tokens": 0}), *events])
    assert (len(reader.arrivals_ns), reader.known) == (len(events), len(events) - 1)


def test_a_chunk_without_text_does_not_undo_the_run_before_it() -> None:
    reader = CountingReader()
    good = [counted("a", total) for total in range(1, 31)]
    found = read(reader, [b"".join(good) + counted("", 31) + b"".join(good)])
    assert found == read_one_by_one([b"".join(good) + counted("", 31) + b"".join(good)])
    assert reader.known >= 57


@pytest.mark.parametrize(
    "event",
    [
        usual("a"),
        counted("", 1),
        usual("a", usage=None),
        counted("a", 1).replace(b'"choices"', b'"usage":{},"choices"'),
        usual("a", usage={"completion_tokens": 1}, error="no"),
        usual("a", completion_tokens=3, usage={"completion_tokens": 1}),
        counted("a", 1).replace(b"null", b'"stop"'),
        counted("a", 1, x="}"),
    ],
)
def test_what_is_more_than_a_text_and_a_usage_has_no_mould(event: bytes) -> None:
    assert UsageMould.of(event) is None


def test_usage_that_begins_late_is_read_event_by_event() -> None:
    """From where it grew is not known, so no chunk's tokens are."""
    pieces = [usual("a"), *(counted("b", total) for total in range(2, 9))]
    reader = CountingReader()
    found = read(reader, pieces)
    assert found == read_one_by_one(pieces)
    assert not found["tokens_known"]
    assert isinstance(mould_of(pieces[1]), UsageMould)
