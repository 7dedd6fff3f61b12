"""Workloads: exact lengths, equal by seed, different by salt, warm-up apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.errors import UsageError
from benchx.core.units import UnitError
from benchx.serving.request import Request
from benchx.serving.workloads.base import DATASETS, Dataset, Draw, Workload, WorkloadSettings
from benchx.serving.workloads.build import build_workload
from benchx.serving.workloads.lengths import Lengths
from benchx.serving.workloads.openings import opening
from benchx.serving.workloads.prompter import IdPrompter, Prompter, TextPrompter

PROMPTERS = {"ids": IdPrompter()}


class PairingTokenizer:
    """Counts words, but merges some neighbours and puts a token in front, as real ones do."""

    def count(self, text: str) -> int:
        words = text.split()
        merged = sum(a[-1] == b[-1] == "x" for a, b in pairwise(words))
        return 1 + len(words) - merged

    def words(self) -> Sequence[str]:
        return [" la", " mi", " fox", " box", " tu"]


def exact(tokens: int) -> Mapping[str, Any]:
    return {"ignore_eos": True, "min_tokens": tokens}


def make(
    settings: Mapping[str, Any],
    *,
    seed: int = 0,
    salt: str = "a",
    prompter: Prompter | None = PROMPTERS["ids"],
    api: Any = "completions",  # noqa: ANN401 - a literal
) -> Workload:
    return build_workload(settings, seed=seed, salt=salt, api=api, exact=exact, prompter=prompter)


RANDOM = {"dataset": "random", "requests": 6, "input_len": 40, "output_len": 8}
SHARED = RANDOM | {"dataset": "shared_prefix", "prefix_len": 100, "groups": 3}
TURNS = {
    "dataset": "multi_turn", "sessions": 3, "turns": 4, "input_len": 50, "turn_len": 10,
    "output_len": 5, "pause_s": 0.5,
}  # fmt: skip


def ids(request: Request) -> tuple[int, ...]:
    assert isinstance(request.prompt, tuple)
    return request.prompt


def common_prefix(a: Sequence[object], b: Sequence[object]) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


@given(low=st.integers(1, 300), more=st.integers(0, 200), seed=st.integers(0, 99))
def test_random_prompts_have_the_lengths_they_say_within_the_range(
    low: int, more: int, seed: int
) -> None:
    lengths = {"kind": "uniform", "low": low, "high": low + more}
    made = make(RANDOM | {"input_len": lengths, "output_len": lengths}, seed=seed)
    for request in made.requests:
        assert len(ids(request)) == request.prompt_tokens
        assert low <= len(ids(request)) <= low + more
        assert low <= request.max_tokens <= low + more
        assert request.extra["min_tokens"] == request.max_tokens


@given(tokens=st.integers(2, 200), seed=st.integers(0, 50))
def test_text_is_counted_again_until_it_is_exact(tokens: int, seed: int) -> None:
    tokenizer = PairingTokenizer()
    made = make(RANDOM | {"input_len": tokens}, seed=seed, prompter=TextPrompter(tokenizer))
    for request in made.requests:
        assert isinstance(request.prompt, str)
        assert tokenizer.count(request.prompt) == tokens == request.prompt_tokens


@pytest.mark.parametrize("settings", [RANDOM, SHARED, TURNS])
def test_equal_seeds_and_salts_give_equal_requests(settings: dict[str, Any]) -> None:
    assert make(settings) == make(settings)
    assert make(settings).requests != make(settings, seed=1).requests


@pytest.mark.parametrize("settings", [RANDOM, SHARED, TURNS])
def test_points_of_a_sweep_share_no_prefix_but_all_lengths(settings: dict[str, Any]) -> None:
    one, other = make(settings, salt="a"), make(settings, salt="b")
    assert one.digest == other.digest
    for a, b in zip(one.requests, other.requests, strict=True):
        assert (a.prompt_tokens, a.max_tokens) == (b.prompt_tokens, b.max_tokens)
        assert common_prefix(ids(a), ids(b)) < 4


@pytest.mark.parametrize("settings", [RANDOM, SHARED, TURNS])
def test_warm_up_prompts_share_no_prefix_with_measured_ones(settings: dict[str, Any]) -> None:
    made = make(settings)
    assert made.warmup
    for warm in made.warmup:
        assert all(common_prefix(ids(warm), ids(measured)) < 4 for measured in made.requests)


def test_there_is_a_warm_up_for_every_class_of_lengths() -> None:
    lengths = {"kind": "uniform", "low": 1, "high": 2000}
    made = make(RANDOM | {"input_len": lengths, "requests": 300})
    classes = {len(ids(request)).bit_length() for request in made.requests}
    assert {len(ids(request)).bit_length() for request in made.warmup} == classes


def test_a_digest_tells_loads_apart() -> None:
    base = make(RANDOM).digest
    others = [
        RANDOM | {"input_len": 41},
        RANDOM | {"requests": 7},
        RANDOM | {"exact_output": False},
    ]
    assert len({base, *(make(other).digest for other in others), make(RANDOM, seed=1).digest}) == 5


def test_prompts_of_a_group_begin_alike_and_those_of_two_groups_do_not() -> None:
    requests = make(SHARED).requests
    assert common_prefix(ids(requests[0]), ids(requests[3])) == 100
    assert common_prefix(ids(requests[0]), ids(requests[1])) < 4
    assert {len(ids(request)) for request in requests} == {140}
    assert [request.label for request in requests[::3]] == ["group 0, first", "group 0, later"]


def test_a_conversation_grows_by_the_answer_and_the_new_turn() -> None:
    turns = [request for request in make(TURNS).requests if request.session == "session 1"]
    assert [len(ids(turn)) for turn in turns] == [50, 65, 80, 95]
    for before, after in pairwise(turns):
        assert ids(after)[: len(ids(before))] == ids(before)
    assert [turn.delay_s for turn in turns] == [0.0, 0.5, 0.5, 0.5]


def test_a_conversation_for_chat_alternates_and_ends_with_the_user() -> None:
    prompter = TextPrompter(PairingTokenizer())
    made = make(TURNS, api="chat", prompter=prompter)
    last = made.requests[-1]
    assert last.messages is not None
    assert [said["role"] for said in last.messages] == ["user", "assistant"] * 3 + ["user"]


def test_token_ids_are_refused_for_chat() -> None:
    with pytest.raises(UsageError, match="chat API"):
        make(RANDOM, api="chat")


def test_indices_count_from_zero_in_sending_order() -> None:
    for settings in (RANDOM, SHARED, TURNS):
        made = make(settings)
        assert [request.index for request in made.requests] == list(range(len(made.requests)))


@pytest.mark.parametrize(
    "value",
    [0, -1, 1.5, True, "ten", {"low": 1, "high": 2}, {"kind": "uniform", "low": 9, "high": 2}],
)
def test_a_length_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(UnitError):
        Lengths.of(value)


def test_lengths_may_carry_binary_letters() -> None:
    assert Lengths.of("8k") == Lengths(8192, 8192)
    assert Lengths.of({"kind": "uniform", "low": "1k", "high": "2k"}) == Lengths(1024, 2048)


def test_settings_that_are_missing_or_misspelt_are_named() -> None:
    with pytest.raises(UsageError, match=r"workload\.input_len: missing"):
        make({"dataset": "random", "requests": 1, "output_len": 1})
    with pytest.raises(UsageError, match="did you mean 'input_len'"):
        WorkloadSettings.from_json({"dataset": "random", "inputlen": 1})
    with pytest.raises(UsageError, match="did you mean 'random'"):
        make(RANDOM | {"dataset": "randon"})


def test_without_ids_or_tokenizer_exact_lengths_are_refused_with_a_way_out() -> None:
    with pytest.raises(UsageError, match=r"engine\.tokenizer"):
        make(RANDOM, prompter=None)


# Files.


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


MOONCAKE = [
    {"timestamp": 2000, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]},
    {"timestamp": 1000, "input_length": 1030, "output_length": 4, "hash_ids": [7, 8, 3]},
    {"timestamp": 4000, "input_length": 600, "output_length": 3, "hash_ids": [5, 6]},
]


def test_mooncake_keeps_times_lengths_and_shared_blocks(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.jsonl", *MOONCAKE)
    made = make({"dataset": "mooncake", "path": str(path), "time_scale": 2})
    assert [request.intended_at_s for request in made.requests] == [0.0, 2.0, 6.0]
    assert [len(ids(request)) for request in made.requests] == [1030, 1100, 600]
    first, second, third = map(ids, made.requests)
    assert common_prefix(first, second) == 1024
    assert common_prefix(first, third) < 4


def test_burstgpt_and_azure_are_read_and_failed_requests_left_out(tmp_path: Path) -> None:
    burst = tmp_path / "burst.csv"
    burst.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,10,3,13,Conversation log\n7.5,ChatGPT,12,0,12,Conversation log\n"
        "8,GPT-4,14,2,16,API log\n"
    )
    made = make({"dataset": "burstgpt", "path": str(burst)}).requests
    assert [(one.intended_at_s, one.prompt_tokens, one.max_tokens) for one in made] == [
        (0.0, 10, 3), (3.0, 14, 2),
    ]  # fmt: skip
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,374,44\n2023-11-16 18:17:04.4799600,20,1\n"
    )
    assert [one.intended_at_s for one in make({"dataset": "azure", "path": azure}).requests] == [
        0.0, pytest.approx(0.5),
    ]  # fmt: skip


def test_sharegpt_takes_first_exchanges_of_a_fitting_length(tmp_path: Path) -> None:
    def said(question: str, answer: str) -> dict[str, Any]:
        turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
        return {"id": "x", "conversations": turns}

    entries = [
        said("la mi tu la mi tu", "tu " * 9),
        said("la", "too short a question"),
        said("la " * 1100, "tu " * 9),
        {"id": "y", "conversations": []},
    ]
    path = tmp_path / "gpt.json"
    path.write_text(json.dumps(entries))
    made = make(
        {"dataset": "sharegpt", "path": path}, prompter=TextPrompter(PairingTokenizer())
    ).requests
    assert len(made) == 1
    assert made[0].max_tokens == 10
    assert str(made[0].prompt).endswith("] la mi tu la mi tu")
    assert "ignore_eos" not in made[0].extra


def test_custom_prompts_are_salted_per_point_unless_asked_not_to(tmp_path: Path) -> None:
    path = write(
        tmp_path / "own.jsonl", {"prompt": "hello", "output_tokens": 3}, {"prompt": [1, 2]}
    )
    settings = {"dataset": "custom", "path": path, "output_len": 9}
    one, other = make(settings, salt="a"), make(settings, salt="b")
    assert one.requests[0].prompt != other.requests[0].prompt
    assert [request.max_tokens for request in one.requests] == [3, 9]
    assert ids(one.requests[1])[-2:] == (1, 2)
    assert common_prefix(ids(one.requests[1]), ids(other.requests[1])) < 4
    bare = make(settings | {"salted": False})
    assert bare.requests[0].prompt == "hello"
    assert bare.requests[1].prompt == (1, 2)


PARTS = [{"type": "image_url", "image_url": {"url": "data:,x"}}, {"type": "text", "text": "hi"}]
SAID = {"messages": [{"role": "user", "content": "hello"}], "output_tokens": 3}
SPOKEN = {"turns": [SAID]}


@pytest.mark.parametrize(
    ("dataset", "line", "api"),
    [
        ("custom", {"prompt": "hello " * 30, "output_tokens": 3}, "completions"),
        ("custom", {"prompt": [7] * 50, "output_tokens": 3}, "completions"),
        ("custom", SAID, "chat"),
        ("custom", SAID | {"messages": [{"role": "user", "content": PARTS}]}, "chat"),
        ("custom", SAID | {"messages": [{"role": "assistant", "content": None}]}, "chat"),
        ("agentic", SPOKEN, "chat"),
        ("agentic", {"turns": [SAID | {"messages": [{"role": "u", "content": PARTS}]}]}, "chat"),
    ],
)
def test_every_kind_of_prompt_from_a_file_differs_from_point_to_point(
    tmp_path: Path, dataset: str, line: dict[str, Any], api: str
) -> None:
    settings = {"dataset": dataset, "path": write(tmp_path / "own.jsonl", line)}
    one, other = (make(settings, salt=salt, api=api) for salt in ("a", "b"))
    assert opening(one.requests[0]) != opening(other.requests[0])
    assert one.salted
    assert not any("unsalted" in note for note in one.notes)
    assert one.digest == other.digest
    bare, same = (make(settings | {"salted": False}, salt=s, api=api) for s in ("a", "b"))
    assert bare.requests == same.requests
    assert not bare.salted
    assert any(note.startswith("unsalted") for note in bare.notes)


def test_an_image_stays_behind_the_salt_of_its_message(tmp_path: Path) -> None:
    said = SAID | {"messages": [{"role": "user", "content": PARTS}]}
    settings = {"dataset": "custom", "path": write(tmp_path / "own.jsonl", said)}
    (request,) = make(settings, api="chat").requests
    assert request.messages is not None
    salt, *parts = request.messages[0]["content"]
    assert salt["type"] == "text"
    assert parts == PARTS


def test_a_message_that_can_not_be_salted_is_refused_and_not_sent_as_it_is(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "own.jsonl", SAID | {"messages": [{"role": "user", "content": 5}]})
    with pytest.raises(UsageError, match="text or a list of parts"):
        make({"dataset": "custom", "path": path}, api="chat")


def test_a_data_set_that_ignores_the_salt_is_found_by_its_prompts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def same(settings: WorkloadSettings, draw: Draw) -> list[Request]:
        return [draw.request(0, (1, 2, 3), 4, exact=False)]

    monkeypatch.setitem(DATASETS._entries, "same", Dataset(same))
    made = make({"dataset": "same"})
    assert not made.salted
    assert any(note.startswith("unsalted") for note in made.notes)


def test_as_many_warm_up_as_the_load_has_under_way_with_its_lengths_and_short_answers() -> None:
    lengths = {"kind": "uniform", "low": 30, "high": 300}
    settings = RANDOM | {"input_len": lengths, "requests": 40, "output_len": 500}
    made = build_workload(
        settings, seed=0, salt="a", api="completions", exact=exact, prompter=IdPrompter(),
        at_once=16,
    )  # fmt: skip
    assert len(made.warmup) == 16
    measured = {len(ids(request)).bit_length() for request in made.requests}
    assert {len(ids(request)).bit_length() for request in made.warmup} == measured
    assert {request.max_tokens for request in made.warmup} == {32}


def test_no_more_warm_up_than_sessions_can_be_under_way() -> None:
    made = build_workload(
        TURNS, seed=0, salt="a", api="completions", exact=exact, prompter=IdPrompter(), at_once=64
    )
    assert len(made.warmup) == 3


def test_a_file_that_is_too_short_is_an_error_and_never_repeated(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", {"prompt": "hello"})
    with pytest.raises(UsageError, match="holds 1 requests that fit; expected 2"):
        make({"dataset": "custom", "path": path, "output_len": 9, "requests": 2})


def test_agent_sessions_keep_blocks_turns_and_pauses(tmp_path: Path) -> None:
    def turn(t: float, size: int, *hashes: int) -> dict[str, Any]:
        return {"t": t, "in": size, "out": 4, "hash_ids": list(hashes), "api_time": 1.0}

    path = write(
        tmp_path / "agents.jsonl",
        {
            "id": "one",
            "requests": [turn(0, 130, 1, 2, 3), turn(5, 200, 1, 2, 4, 5), turn(6, 64, 1)],
        },
        {"id": "two", "requests": [turn(0, 130, 1, 2, 3), turn(9000, 64, 1)]},
    )
    made = make({"dataset": "agentic", "path": path}).requests
    one = [request for request in made if request.session == "one"]
    two = [request for request in made if request.session == "two"]
    assert [request.session for request in made] == ["one", "two", "one", "two", "one"]
    assert common_prefix(ids(one[0]), ids(one[1])) == 128
    assert common_prefix(ids(one[0]), ids(two[0])) < 4  # a hash means a block of its own trace
    assert [request.delay_s for request in one] == [0.0, 4.0, 0.0]
    assert two[1].delay_s == 300.0


def test_recorded_messages_are_sent_to_chat_with_one_salt_per_session(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "fix it"}]
    more = [*said, {"role": "assistant", "content": "done"}, {"role": "user", "content": "no"}]
    turns = [{"messages": said, "output_tokens": 2}, {"messages": more, "output_tokens": 3}]
    path = write(tmp_path / "agents.jsonl", {"turns": turns})
    settings = {"dataset": "agentic", "path": path}
    first, second = make(settings, api="chat", prompter=None).requests
    assert first.messages is not None
    assert second.messages is not None
    assert first.messages[0] == second.messages[0]
    assert first.messages[0]["content"] != "fix it"
    with pytest.raises(UsageError, match="chat"):
        make(settings)


@pytest.mark.parametrize(
    ("dataset", "line", "words"),
    [
        ("mooncake", '{"timestamp": 1, "input_length": "x", "output_length": 1}', "input_length"),
        ("mooncake", "not json", "not JSON"),
        ("mooncake", "[1]", "expected an object"),
        ("custom", '{"prompt": 5, "output_tokens": 1}', "expected `prompt`"),
        ("agentic", '{"id": 1}', "expected `requests` or `turns`"),
    ],
)
def test_a_broken_line_is_named_with_its_place(
    tmp_path: Path, dataset: str, line: str, words: str
) -> None:
    path = tmp_path / "data"
    path.write_text(f"\n{line}\n")
    with pytest.raises(UsageError, match=words) as caught:
        make({"dataset": dataset, "path": path})
    assert f"{path}:2" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        make({"dataset": "mooncake", "path": tmp_path / "none"})
