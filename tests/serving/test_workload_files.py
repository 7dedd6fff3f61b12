"""Data files as they are found: odd encodings, odd values, and a place for every complaint."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchx.core.errors import UsageError
from benchx.serving.workloads.base import Workload
from benchx.serving.workloads.build import build_workload
from benchx.serving.workloads.prompter import IdPrompter, WordPrompter

BURST = "Timestamp,Request tokens,Response tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
SAID = {"messages": [{"role": "user", "content": "x"}], "output_tokens": 3}


def read(tmp_path: Path, dataset: str, content: str | bytes, **settings: Any) -> Workload:  # noqa: ANN401
    """The workload of a file with this content; `chat` among the settings is the API."""
    path = tmp_path / "data"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return build_workload(
        {"dataset": dataset, "path": str(path), **settings},
        seed=0,
        salt="a",
        api="chat" if "turns" in str(content) else "completions",
        exact=lambda _: {},
        prompter=WordPrompter() if dataset == "sharegpt" else IdPrompter(),
    )


def line(**fields: object) -> str:
    return json.dumps(fields) + "\n"


def agent(**fields: object) -> str:
    return line(requests=[{"in": 5, "out": 3, **fields}])


@pytest.mark.parametrize(
    ("dataset", "content", "words"),
    [
        ("custom", "é".encode("latin-1"), ":1: not JSON"),
        ("custom", line(prompt="x").encode("utf-16"), ":1: not JSON"),
        ("custom", b"\x1f\x8b\x08\x00", ":1: not JSON"),
        ("custom", "[" * 100_000, ":1: not JSON"),
        ("custom", r'{"prompt": "\ud83d x"}', ":1: not JSON: no low surrogate"),
        ("custom", line(prompt="x", output_tokens=0), ":1: output_tokens: got 0; .*at least 1"),
        ("custom", line(prompt="x", output_tokens="1e400"), ":1: output_tokens: got '1e400'"),
        ("burstgpt", BURST + "1,inf,3\n", ":2: Request tokens: got 'inf'"),
        ("burstgpt", BURST + "1,5.9,3\n", ":2: Request tokens: got '5.9'"),
        ("burstgpt", BURST + "1,5,3\nnan,5,3\n", ":3: Timestamp: got 'nan'"),
        ("burstgpt", BURST + "1,5,3\n2,5\n", ":3: Response tokens: the row is too short"),
        ("burstgpt", BURST + f'1,"{"5" * 200_000}",3\n', "not CSV: field larger"),
        ("burstgpt", BURST.encode() + b"1,5,3\n\xff,5,3\n", ":3: not UTF-8"),
        ("azure", "ContextTokens,GeneratedTokens,TIMESTAMP\n5,3\n", ":2: TIMESTAMP: the row"),
        ("azure", AZURE + "noon,5,3\n", ":2: got 'noon'; expected a date and time"),
        ("mooncake", line(timestamp="x", input_length=5, output_length=3), ":1: timestamp: got"),
        ("mooncake", line(timestamp=1, input_length=5, output_length=3, hash_ids=4), "hash_ids"),
        ("agentic", line(requests=[3]), ":1: requests: it holds 3; expected objects"),
        ("agentic", line(requests=[None]), ":1: requests: it holds None; expected objects"),
        ("agentic", agent(t="x"), ":1: t: got 'x'; expected a number"),
        ("agentic", agent(t=None), ":1: t: got None; expected a number"),
        ("agentic", agent(hash_ids=5), ":1: hash_ids: got 5; expected a list"),
        ("agentic", line(turns=[3]), ":1: turns: it holds 3; expected objects"),
        ("agentic", line(turns=[SAID | {"messages": [3]}]), ":1: messages: it holds 3"),
        ("agentic", line(turns=[SAID | {"output_tokens": 0}]), ":1: output_tokens: got 0"),
        ("agentic", line(turns=[SAID | {"delay_s": "soon"}]), ":1: delay_s: got 'soon'"),
        ("agentic", 2 * line(id="a", requests=[{"in": 5, "out": 3}]), ":2: id: 'a' is that of"),
        ("sharegpt", '[{"conversations": [3, 4]}]', "entry 0: expected objects"),
        ("sharegpt", "[" * 100_000, "not JSON"),
    ],
)
def test_what_can_not_be_read_is_named_with_its_place(
    tmp_path: Path, dataset: str, content: str | bytes, words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read(tmp_path, dataset, content, output_len=3)
    assert str(tmp_path / "data") in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "content"), [("custom", line(prompt="x")), ("burstgpt", BURST + "1,5,3\n")]
)
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, dataset: str, content: str) -> None:
    assert len(read(tmp_path, dataset, content.encode("utf-8-sig"), output_len=3).requests) == 1


def test_lines_are_numbered_through_all_blocks_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchx.serving.workloads.files._BLOCK_BYTES", 50)
    rows = [f"{n},5,3\n" for n in range(99)]
    assert len(read(tmp_path, "burstgpt", BURST + "".join(rows)).requests) == 99
    with pytest.raises(UsageError, match=":101: Timestamp"):
        read(tmp_path, "burstgpt", BURST + "".join(rows) + "x,5,3\n")


def test_a_text_with_half_a_character_is_left_out_of_conversations(tmp_path: Path) -> None:
    pairs = [("\ud83d a b c d", "a b c d"), ("a b c d e", "a b c d")]
    content = json.dumps([{"conversations": [{"value": q}, {"value": a}]} for q, a in pairs])
    (only,) = read(tmp_path, "sharegpt", content).requests
    assert str(only.prompt).endswith("a b c d e")


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
@pytest.mark.parametrize("zone", ["", "+00:00", "Z", "-05:00"])
def test_times_of_one_trace_are_on_one_clock_with_and_without_a_fraction(
    tmp_path: Path, zone: str
) -> None:
    day = "2024-05-10 00:00:"
    rows = [f"{day}{second}{zone},5,3\n" for second in ("00.5", "01", "01.0099301", "02.6")]
    made = read(tmp_path, "azure", AZURE + "".join(rows)).requests
    times = [one.intended_at_s for one in made]
    assert times == pytest.approx([0.0, 0.5, 0.50993, 2.1], abs=1e-5)
