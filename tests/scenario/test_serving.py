"""Parts of kind serving: what they may say, and the points that follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchx.core.errors import ScenarioError
from benchx.core.point import Point
from benchx.scenario import Scenario, ServingWords, Vocabulary, expand, load, serving
from benchx.scenario.serving import engine_key

NEEDS = {
    "random": ("requests", "input_len", "output_len"),
    "mooncake": ("path",),
    "multi_turn": ("sessions", "turns", "input_len", "output_len"),
}
WORDS = Vocabulary(
    ops={},
    serving=ServingWords(
        engines=("vllm", "endpoint"),
        datasets=NEEDS,
        turn_needs={"multi_turn": ("turn_len",)},
        chained=frozenset({"multi_turn"}),
    ),
)
TEXT = """\
schema: 1
name: s
kind: serving
engine: {name: vllm, model: m}
workload: {dataset: random, input_len: 1k, output_len: 128, requests: 10}
axes: {concurrency: [1, 4]}
"""


@pytest.fixture
def points(tmp_path: Path) -> object:
    def build(text: str) -> tuple[Point, ...]:
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return expand(load(path), WORDS)

    return build


def test_points_carry_the_load_and_what_the_workload_says(points) -> None:  # noqa: ANN001
    found = points(TEXT)
    assert [point.params["concurrency"] for point in found] == [1, 4]
    assert {(p.kind, p.subject, p.backend, p.params["input_len"]) for p in found} == {
        ("serving", "random", "vllm", 1024)
    }


SUITE = """\
schema: 1
name: suite
title: Which is faster?
kind: suite
parts:
  - {{name: a, title: A, kind: serving, engine: {{name: vllm, model: m}}, {rest}}}
  - {{name: b, title: B, kind: serving, engine: {{name: vllm, {other}}}, {rest}}}
"""
REST = (
    "workload: {dataset: random, input_len: 1k, output_len: 128, requests: 10}, "
    "axes: {concurrency: 1}"
)


@pytest.mark.parametrize(
    "other",
    [
        "model: n",
        "model: m, trust_remote_code: true",
        "model: m, args: {x: 1}",
        "model: m, env: {X: '1'}",
    ],
)
def test_parts_that_differ_in_model_or_engine_only_are_two_points(points, other: str) -> None:  # noqa: ANN001
    first, second = points(SUITE.format(rest=REST, other=other))
    assert first.params == second.params
    assert first.point_id != second.point_id
    assert first.group_id != second.group_id


def test_parts_that_differ_in_the_workload_only_are_two_points(points) -> None:  # noqa: ANN001
    text = SUITE.format(rest=REST, other="model: m")
    first, second = points(text.replace("requests: 10", "requests: 10, salted: false", 1))
    assert first.point_id != second.point_id


def test_parts_that_differ_in_nothing_but_name_and_price_are_refused(points) -> None:  # noqa: ANN001
    text = SUITE.format(rest=REST, other="model: m").replace("title: B?", "title: B, cost: {}")
    with pytest.raises(ScenarioError, match="is in part 0 too, measured the same way"):
        points(text)


def test_lengths_can_be_swept_together(points) -> None:  # noqa: ANN001
    text = TEXT.replace("input_len: 1k, output_len: 128, ", "") + "zip: [[input_len, output_len]]\n"
    text = text.replace(
        "concurrency: [1, 4]", "concurrency: 1, input_len: [1k, 8k], output_len: [1k, 128]"
    )
    found = [(p.params["input_len"], p.params["output_len"]) for p in points(text)]
    assert found == [(1024, 1024), (8192, 128)]


def test_points_of_one_engine_start_are_neighbours(points) -> None:  # noqa: ANN001
    found = points(TEXT.replace("concurrency: [1, 4]", "concurrency: [1, 4], eager: [true, false]"))
    keys = [engine_key(point) for point in found]
    assert len(set(keys)) == 2
    assert keys == sorted(keys, key=keys.index)


def test_ordering_points_by_starts_compares_each_with_few_others(
    points,  # noqa: ANN001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plan may have 100 000 points: comparing each with each start takes minutes."""
    compared = 0

    class Key(tuple[object, ...]):
        def __hash__(self) -> int:
            return tuple.__hash__(self)

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return tuple.__eq__(self, other)

    monkeypatch.setattr(serving, "engine_key", lambda point: Key(engine_key(point)))
    seqs = ", ".join(map(str, range(1, 301)))
    found = points(TEXT.replace("[1, 4]", f"[1, 4], max_num_seqs: [{seqs}]"))
    assert len(found) == 600
    assert compared < 10 * 600


def test_what_a_data_set_needs_may_be_swept_or_follow_from_the_load(points) -> None:  # noqa: ANN001
    swept = TEXT.replace("input_len: 1k, ", "").replace("[1, 4]", "[1, 4], input_len: [1k, 2k]")
    assert len(points(swept)) == 4
    assert len(points(TEXT.replace("requests: 10", "requests_per_stream: 2"))) == 2


def test_an_open_loop_says_its_arrivals(points) -> None:  # noqa: ANN001
    text = TEXT.replace("concurrency: [1, 4]", "request_rate: [0.5, 2.5]")
    found = points(text + "load: {arrival: gamma, burstiness: 0.5}\n")
    assert [(p.params["request_rate"], p.params["arrival"]) for p in found] == [
        (0.5, "gamma"),
        (2.5, "gamma"),
    ]


def test_a_uniform_range_is_written_out(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT.replace("input_len: 1k", "input_len: {kind: uniform, low: 1, high: 2k}"))
    part = load(path).parts[0]
    assert part.to_json()["workload"]["input_len"] == {"kind": "uniform", "low": 1, "high": 2048}


def test_a_part_reads_back_from_its_own_json(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT + "slo: {ttft: 2s}\ntimeouts: {idle: 5s}\nload: {duration: 1min}\n")
    scenario = load(path)
    assert Scenario.from_json(scenario.to_json(), source=path).parts == scenario.parts


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("name: vllm", "name: vlm"), ("s.yaml:4", "engine.name", "did you mean 'vllm'")),
        (("dataset: random", "dataset: rnd"), ("s.yaml:5", "workload.dataset", "mooncake")),
        (("concurrency:", "concurency:"), ("s.yaml:6", "axes.concurency", "'concurrency'")),
        (("concurrency: [1, 4]", "eager: [true]"), ("neither concurrency nor request_rate",)),
        (("concurrency: [1, 4]", "concurrency: [0]"), ("s.yaml:6", "at least 1")),
        (("concurrency: [1, 4]", "concurrency: [4, 4]"), ("listed twice",)),
        (("input_len: 1k", "input_len: 0"), ("workload.input_len", "a number of tokens")),
        (
            ("input_len: 1k, ", ""),
            ("s.yaml:5: workload.input_len: missing", "or in axes: data set random needs it"),
        ),
        ((", requests: 10", ""), ("workload.requests: missing", "data set random needs it")),
        (
            ("random, input_len: 1k, output_len: 128, requests: 10", "mooncake"),
            ("s.yaml:5: workload.path: missing", "a value here: data set mooncake needs it"),
        ),
        (("input_len: 1k", "input_lne: 1k"), ("s.yaml:5", "'input_len'")),
        (("model: m", "model: m, port: 70000"), ("engine.port", "65535")),
        (("model: m", "model: m, ready_timeout: 30"), ("engine.ready_timeout", "with its unit")),
        (("engine: {name: vllm, model: m}\n", ""), ("engine", "missing")),
        (("model: m", "model: m, env: {HF_TOKEN: pw}"), ("engine.env", "export the variable")),
        (("model: m", "model: m, headers: {Authorization: pw}"), ("engine.headers", "header_env")),
        (("model: m", "model: m, args: {api-key: pw}"), ("engine.args", "export the variable")),
        (("model: m", "model: m, args: {hf_token: pw}"), ("engine.args", "export the variable")),
        (("model: m", "model: m, extra_body: {api_key: pw}"), ("engine.extra_body", "header_env")),
        (("model: m", "model: m, metrics_url: 'http://h/metrics'"), ("`name: endpoint` only",)),
        (("model: m", "model: m, metrics_url: 'h:8000/metrics'"), ("s.yaml:4", "an address such")),
        (("model: m", "model: m, metrics_url: 'http://a:pw@h/m'"), ("api_key_env",)),
        (("model: m", "model: m, metrics_url: 'http://h/m?api_key=pw'"), ("api_key_env",)),
        (("model: m", "base_url: 'http://h/v1'"), ("s.yaml:4: engine.model: missing",)),
        (
            ("name: vllm", "name: endpoint"),
            ("s.yaml:4: engine.base_url: missing", "base_url: http://"),
        ),
        (
            ("model: m", "model: m, base_url: 'http://h/v1'"),
            ("s.yaml:4: engine.base_url: vllm is started by benchx", "`name: endpoint` only"),
        ),
        (("model: m", "model: m, token_ids: true"), ("engine.token_ids", "`name: endpoint` only")),
        (
            ("name: vllm", "name: endpont, base_url: 'http://h/v1'"),
            ("engine.name", "did you mean 'endpoint'"),
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    change: tuple[str, str],
    words: tuple[str, ...],
    points,  # noqa: ANN001
) -> None:
    with pytest.raises(ScenarioError) as refused:
        points(TEXT.replace(*change))
    for word in words:
        assert word in str(refused.value)
    assert "pw" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://h/v1?api_key=pw",
        "https://h/v1?api-version=1&apikey=pw",
        "https://h/v1?subscription-Key=pw",
        "https://h/v1?access_token=pw",
        "https://h/v1?%6bey=pw",
        "https://h/v1?sv=1&sig=pw",
        "https://h/v1#token=pw",
        "https://a:pw@h/v1",
        "https://pw@h/v1",
        "h:8000/v1?api_key=pw",
    ],
)
@pytest.mark.parametrize("key", ["base_url", "metrics_url"])
def test_an_address_with_a_secret_is_refused(
    points,  # noqa: ANN001
    key: str,
    address: str,
) -> None:
    told = f"{key}: '{address}'" + ("" if key == "base_url" else ", base_url: 'http://h/v1'")
    text = TEXT.replace("name: vllm", f"name: endpoint, {told}")
    with pytest.raises(ScenarioError) as refused:
        points(text)
    told = str(refused.value)
    assert f"s.yaml:4: engine.{key}: " in told
    assert "api_key_env or header_env" in told
    assert "pw" not in told


@pytest.mark.parametrize(
    "address",
    [
        "h:8000/v1",
        "ftp://h/v1",
        "http:///v1",
        "http://[::1/v1",
        "http://h:x/v1",
        "http://h/a b",
        "",
    ],
)
def test_what_is_no_address_is_refused_before_the_run(points, address: str) -> None:  # noqa: ANN001
    with pytest.raises(ScenarioError, match=r"s\.yaml:4: engine\.base_url: .*http://127\.0\.0\.1"):
        points(TEXT.replace("name: vllm", f"name: endpoint, base_url: '{address}'"))


@pytest.mark.parametrize(
    "address", ["http://[::1]:8000/v1", "https://h/v1?api-version=2024-10-01", "http://h/tokens/v1"]
)
def test_an_address_without_a_secret_is_kept_as_written(points, address: str) -> None:  # noqa: ANN001
    assert points(TEXT.replace("name: vllm", f"name: endpoint, base_url: '{address}'"))


def test_a_flag_about_tokens_or_without_a_value_is_no_secret(points) -> None:  # noqa: ANN001
    passed = "args: {hf-token: true, image-token: x}, extra_body: {stop_token: x, min_tokens: 3}"
    assert points(TEXT.replace("model: m", f"model: m, {passed}"))


def test_requests_per_stream_need_a_concurrency(points) -> None:  # noqa: ANN001
    text = TEXT.replace("requests: 10", "requests_per_stream: 10")
    assert len(points(text)) == 2
    with pytest.raises(ScenarioError, match="no axis concurrency"):
        points(text.replace("concurrency: [1, 4]", "request_rate: [1.0]"))


SEARCH = "search: {axis: concurrency, high: 64}\n"
RATED = (
    TEXT.replace("axes: {concurrency: [1, 4]}\n", "slo: {ttft: 1s}\nload: {duration: 1min}\n")
).replace(", requests: 10", "")
SEARCHED = TEXT.replace("requests: 10", "requests_per_stream: 2").replace(
    "axes: {concurrency: [1, 4]}\n", "slo: {ttft: 1s}\n"
)


def test_a_search_takes_the_place_of_the_axis(points) -> None:  # noqa: ANN001
    (point,) = points(SEARCHED + SEARCH)
    assert "concurrency" not in point.params


def test_a_searched_rate_need_not_be_whole(points) -> None:  # noqa: ANN001
    assert points(RATED + "search: {axis: request_rate, low: 0.5, high: 1.5}\n")


def test_every_load_of_a_searched_rate_has_the_same_time(points) -> None:  # noqa: ANN001
    """A fixed number of requests at a high rate is a burst that any queue takes in."""
    with pytest.raises(ScenarioError, match=r"load\.duration: missing"):
        points(SEARCHED + "search: {axis: request_rate, high: 64}\n")


def test_how_many_start_follows_from_a_rate_and_a_duration_or_is_said_but_not_both(
    points,  # noqa: ANN001
) -> None:
    text = TEXT.replace("concurrency: [1, 4]", "request_rate: [2.0]")
    timed = "load: {duration: 1min}\n"
    (point,) = points(text.replace(", requests: 10", "") + timed)
    assert "requests" not in point.params
    with pytest.raises(ScenarioError, match=r"workload\.requests: load\.duration and request_rate"):
        points(text + timed)
    with pytest.raises(ScenarioError, match=r"workload\.requests: missing"):
        points(text.replace(", requests: 10", ""))


TURNS = TEXT.replace("random", "multi_turn").replace("requests: 10", "sessions: 4, turns: 2")


@pytest.mark.parametrize("turns", ["2", "{kind: uniform, low: 1, high: 3}"])
def test_more_than_one_turn_needs_the_length_of_the_later_ones(points, turns: str) -> None:  # noqa: ANN001
    text = TURNS.replace("turns: 2", f"turns: {turns}")
    with pytest.raises(ScenarioError, match=r"workload\.turn_len: missing"):
        points(text)
    swept = TURNS.replace(", turns: 2", "").replace("[1, 4]", "[1, 4], turns: [1, 2]")
    with pytest.raises(ScenarioError, match=r"workload\.turn_len: missing"):
        points(swept)
    assert points(text.replace("sessions: 4", "sessions: 4, turn_len: 8"))
    assert points(TURNS.replace("turns: 2", "turns: 1"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (TEXT.replace("[1, 4]", "[1, 64]"), "at most 10 are under way of concurrency 64"),
        (
            TURNS.replace("turns: 2", "turns: 1").replace("[1, 4]", "[8]"),
            "at most 4 are under way of concurrency 8: sessions is 4",
        ),
        (
            TEXT.replace("axes: {concurrency: [1, 4]}\n", "slo: {ttft: 1s}\n")
            + "search: {axis: concurrency, high: 64}\n",
            r"search\.high: at most 10 are under way",
        ),
    ],
)
def test_a_concurrency_that_the_data_can_not_reach_is_refused(
    points,  # noqa: ANN001
    text: str,
    told: str,
) -> None:
    with pytest.raises(ScenarioError, match=told):
        points(text)


def test_a_limit_of_an_open_loop_may_be_out_of_reach(points) -> None:  # noqa: ANN001
    assert points(TEXT.replace("concurrency: [1, 4]", "concurrency: [64], request_rate: [2.0]"))


def test_a_rate_is_named_after_what_starts(points) -> None:  # noqa: ANN001
    turns = TEXT.replace("random", "multi_turn").replace(
        "requests: 10", "sessions: 4, turns: 2, turn_len: 8"
    )
    rated = turns.replace("concurrency: [1, 4]", "session_rate: [2.0]")
    (point,) = points(rated)
    assert (point.params["session_rate"], point.params["arrival"]) == (2.0, "poisson")
    with pytest.raises(ScenarioError, match=r"axes\.request_rate: .*sends sessions.*session_rate"):
        points(rated.replace("session_rate", "request_rate"))
    with pytest.raises(ScenarioError, match=r"axes\.session_rate: .*no sessions.*request_rate"):
        points(TEXT.replace("concurrency: [1, 4]", "session_rate: [2.0]"))


@pytest.mark.parametrize("written", ["0", "0.2", "20%", "1"])
def test_a_share_of_failures_may_be_allowed(tmp_path: Path, written: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT + f"load: {{max_error_rate: {written}}}\n")
    share = load(path).parts[0].to_json()["load"]["max_error_rate"]
    assert share == pytest.approx({"20%": 0.2}.get(written) or float(written))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TEXT + "slo: {ttft: 1s}\n" + SEARCH, "swept too"),
        (TEXT.replace("concurrency: [1, 4]", "eager: true") + SEARCH, "no objective"),
        (
            TEXT.replace("concurrency: [1, 4]", "eager: true")
            + "slo: {ttft: 1s}\n"
            + SEARCH.replace("high: 64", "low: 65, high: 64"),
            "low 65 is above high 64",
        ),
        (
            SEARCHED + SEARCH.replace("64", "1.5"),
            r"s\.yaml:7: search\.high: got 1\.5; .* whole number",
        ),
        (
            SEARCHED + SEARCH.replace("high", "low: 0.5, high"),
            r"s\.yaml:7: search\.low: got 0\.5; .* whole number",
        ),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(points, text: str, words: str) -> None:  # noqa: ANN001
    with pytest.raises(ScenarioError, match=words):
        points(text)


ENDPOINT_TEXT = TEXT.replace(
    "{name: vllm, model: m}", "{name: endpoint, base_url: 'http://h:1/v1', model: m}"
)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("model: m}", "model: m, tensor_parallel: 8}", "s.yaml:4: engine.tensor_parallel: benchx"),
        ("model: m}", "model: m, env: {A: b}}", "engine.env: benchx does not start an endpoint"),
        ("model: m}", "model: m, args: {a: 1}}", "engine.args: benchx does not start an endpoint"),
        ("axes: {", "axes: {eager: [true, false], ", "engine.eager: benchx does not start"),
        ("model: m}", "model: m, extra_body: {max_tokens: 5}}", "use workload.output_len"),
        ("model: m}", "model: m, extra_body: {model: x}}", "use engine.served_model"),
        ("requests: 10", "requests: 10, requests_per_stream: 2", "workload.requests: requests_per"),
    ],
)
def test_a_setting_that_would_have_no_effect_or_another_one_is_refused(
    points: object, old: str, new: str, told: str
) -> None:
    assert old in ENDPOINT_TEXT
    with pytest.raises(ScenarioError, match=told):
        points(ENDPOINT_TEXT.replace(old, new))  # type: ignore[operator]


def test_what_an_endpoint_is_asked_for_and_of_what_type_its_cache_is_may_be_said(
    points: object, tmp_path: Path
) -> None:
    text = ENDPOINT_TEXT.replace("model: m}", "model: m, kv_cache_dtype: fp8, api: chat, gpus: 8}")
    assert points(text)  # type: ignore[operator]
    path = tmp_path / "s.yaml"
    stored = Scenario.from_json(load(path).to_json(), source=path)
    assert expand(stored, WORDS)  # its defaults are written out


def test_hardware_without_an_entry_is_refused_before_the_run(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT + "cost: {hardware: h20}\n")
    words = replace(WORDS, hardware=("h100", "h200"))
    with pytest.raises(ScenarioError, match=r"s.yaml:7: cost.hardware: got 'h20'.*h100, h200"):
        expand(load(path), words)
    path.write_text(TEXT + "cost: {hardware: auto}\n")
    assert expand(load(path), words)
