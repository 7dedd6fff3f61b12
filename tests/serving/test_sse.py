"""The event-stream parser: every legal stream, any cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.serving.sse import SseError, SseEvent, SseParser


def parse(*pieces: bytes) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.close()


def data_of(*pieces: bytes) -> list[bytes]:
    return [event.data for event in parse(*pieces)]


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    """The stream in pieces, cut at the places (taken modulo its length)."""
    ends = sorted({place % (len(stream) + 1) for place in places} | {0, len(stream)})
    return [stream[a:b] for a, b in pairwise(ends)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"]),
        (b": hello\n\ndata: a\n\n", [b"a"]),
        (b"data: a\n: glued\n\n", [b"a"]),
        (b"event: x\nid: 7\ndata: a\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data\n\n", [b""]),
        (b"data:\n\n", [b""]),
        (b"data:\ndata:\n\n", [b"\n"]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: b\n", [b"a", b"b"]),
        (b"data: a\n\ndata: b", [b"a", b"b"]),
        (b"retry: 10\nunknown: x\nevent: y\n\n", []),
        (b"\n\n\ndata: a\n\n\n\n", [b"a"]),
        (b"", []),
        (b"dat", []),
        (b" data: a\n\n", []),
    ],
)
def test_a_legal_stream_gives_its_events(stream: bytes, expected: list[bytes]) -> None:
    assert data_of(stream) == expected


FIELD = st.sampled_from([b"data", b"data:", b"data: ", b"event: ", b"id: ", b"retry: ", b":", b""])
TEXT = st.binary(max_size=6).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b""))
LINE = st.tuples(FIELD, TEXT, st.sampled_from([b"\n", b"\r", b"\r\n"])).map(b"".join)
BLANK = st.sampled_from([b"\n", b"\r", b"\r\n"])
USUAL = TEXT.map(lambda text: b"data: " + text + b"\n\n")
STREAM = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.one_of(LINE, BLANK, USUAL, st.just(b"\n\n")), max_size=12).map(b"".join),
    st.sampled_from([b"", b"data: end", b"\xef"]),
).map(b"".join)


@given(STREAM, st.lists(st.integers(0, 200), max_size=12))
def test_any_cut_of_any_stream_gives_equal_events(stream: bytes, places: list[int]) -> None:
    assert parse(*cut(stream, places)) == parse(stream)


@given(STREAM)
def test_single_bytes_give_equal_events(stream: bytes) -> None:
    assert parse(*(bytes([byte]) for byte in stream)) == parse(stream)


def reference_events(stream: bytes) -> list[SseEvent]:
    """The standard's algorithm, written as slowly and plainly as it reads."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[SseEvent] = []
    data, name, last_id = b"", b"", b""
    for line in [*text.split(b"\n"), b""]:
        if line == b"":
            if data:
                events.append(SseEvent(data[:-1], name, last_id))
            data = name = b""
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            data += value + b"\n"
        elif field == b"event":
            name = value
        elif field == b"id" and b"\0" not in value:
            last_id = value
    return events


@given(STREAM)
def test_events_are_those_of_the_standard(stream: bytes) -> None:
    assert parse(stream) == reference_events(stream)


def test_an_event_comes_with_the_byte_that_completes_it() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n") == []
    assert parser.feed(b"\r") == [SseEvent(b"a")]
    assert parser.feed(b"\ndata: b\n") == []
    assert parser.feed(b"\n") == [SseEvent(b"b")]


def test_name_and_id_belong_to_their_events() -> None:
    events = parse(b"event: error\nid: 3\ndata: a\n\ndata: b\n\n")
    assert events == [SseEvent(b"a", b"error", b"3"), SseEvent(b"b", b"", b"3")]


def test_comments_are_counted_and_a_time_to_retry_is_no_event() -> None:
    parser = SseParser()
    assert parser.feed(b": one\n:two\nretry: 250\n\n") == []
    assert parser.comments == 2


def feed_often(parser: SseParser, piece: bytes) -> None:
    for _ in range(20):
        parser.feed(piece)


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: " + b"x" * 100])
def test_an_endless_line_is_refused_before_it_fills_the_memory(piece: bytes) -> None:
    with pytest.raises(SseError, match="longer than 1000 bytes"):
        feed_often(SseParser(max_bytes=1000), piece)


@pytest.mark.parametrize("line", [b"data: " + b"x" * 100 + b"\n", b"data\n" * 100])
def test_an_endless_event_is_refused_too(line: bytes) -> None:
    with pytest.raises(SseError, match="an event is longer"):
        feed_often(SseParser(max_bytes=1000), line)
