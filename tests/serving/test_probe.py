"""`benchx probe` finds out how a server behaves, whatever its habits are."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchx.cli import app
from benchx.core.errors import RunFailed
from benchx.serving.probe import ask_all, choose_api, models
from benchx.serving.probe_findings import FINDINGS, ProbeReport, report
from benchx.serving.request import Endpoint

sys.path.append(str(Path(__file__).parent / "fakes"))
from habits import Habits, serving  # type: ignore[import-not-found]


@contextmanager
def endpoint_of(habits: Habits, **fields: Any) -> Iterator[Endpoint]:  # noqa: ANN401 - any field
    with serving(habits) as url:
        yield Endpoint(base_url=url, api=habits.api, model="m", **fields)


def probed(habits: Habits) -> ProbeReport:
    with endpoint_of(habits) as endpoint:
        return report(ask_all(endpoint, timeout_s=20))


TRANSFORMERS_FIELDS = (
    "model", "stream", "prompt", "max_tokens", "stream_options", "generation_config",
)  # fmt: skip


def test_a_well_behaved_server() -> None:
    found = probed(Habits(known_fields=None))
    assert {one.name: one.value for one in found.findings} == {
        "streaming": "yes",
        "role_chunk": "no",
        "tokens_per_chunk": "1",
        "usage": "on request",
        "chunk_usage": "yes",
        "reasoning": "none seen",
        "done_marker": "yes",
        "sse_form": "plain",
        "max_tokens": "honoured",
        "ignore_eos": "honoured",
        "unknown_fields": "ignored",
        "token_ids": "in and out",
        "cached_tokens": "told",
        "not_streamed": "works",
        "cost": "not told",
        "rate_limits": "no header",
        "metrics": "not found",
    }
    assert found.engine["extra_body"] == {"ignore_eos": True}
    assert found.engine["token_ids"] is True


def test_a_strict_server_without_done_marker_that_always_counts() -> None:
    habits = Habits(
        usage="always", chunk_usage=False, done=False, known_fields=TRANSFORMERS_FIELDS,
        token_ids=False, caches=None,
    )  # fmt: skip
    found = probed(habits)
    assert found.value("usage") == "always"
    assert found.value("chunk_usage") == "no"
    assert found.value("done_marker") == "no"
    assert found.value("unknown_fields") == "refused"
    assert found.value("ignore_eos") == "refused"
    assert found.value("token_ids") == "no"
    assert "token_ids" not in found.engine
    assert found.value("cached_tokens") == "not told"
    notes = {one.name: one.note for one in found.findings}
    assert "generation_config" in notes["ignore_eos"]
    assert "extra_body" not in found.engine


def test_a_hosted_server_that_thinks_charges_and_keeps_alive() -> None:
    habits = Habits(
        api="chat", reasoning="reasoning_content", role_chunk=True, cost=0.002,
        comment=b": keep-alive", newline=b"\r\n", stops_at=None, caches=False,
        headers={"X-RateLimit-Remaining": "9"},
    )  # fmt: skip
    found = probed(habits)
    assert found.value("reasoning") == "reasoning_content"
    assert found.value("role_chunk") == "yes"
    assert found.value("sse_form") == "comments, CRLF"
    assert found.value("cost") == "told"
    assert found.value("rate_limits") == "x-ratelimit-remaining"
    assert found.value("cached_tokens") == "told, none"
    assert found.value("token_ids") == "not with this API"


@pytest.mark.parametrize(
    ("habits", "name", "value"),
    [
        (Habits(tokens_per_chunk=4, stops_at=None), "tokens_per_chunk", "4"),
        (Habits(usage="never", chunk_usage=False), "usage", "never"),
        (Habits(usage="never", chunk_usage=False), "tokens_per_chunk", "unknown"),
        (Habits(space=b""), "sse_form", "no space after data:"),
        (Habits(streams=False), "streaming", "no"),
        (Habits(api="chat", limit_field="max_completion_tokens"), "max_tokens",
         "as max_completion_tokens"),
    ],
)  # fmt: skip
def test_each_odd_habit_is_found(habits: Habits, name: str, value: str) -> None:
    assert probed(habits).value(name) == value


def test_metrics_that_benchx_knows_become_a_field_of_the_scenario() -> None:
    found = probed(Habits(metrics=b"vllm:num_requests_running 1\n"))
    assert found.value("metrics") == "told"
    assert str(found.engine["metrics_url"]).endswith("/metrics")
    others = probed(Habits(metrics=b"python_gc_objects 1\n"))
    assert others.value("metrics") == "not found"
    assert "metrics_url" not in others.engine


def test_an_exact_length_is_seen_where_chunks_are_not_tokens() -> None:
    assert probed(Habits(tokens_per_chunk=3)).value("ignore_eos") == "honoured"
    assert probed(Habits(tokens_per_chunk=3)).value("max_tokens") == "honoured"


def test_the_api_that_generates_is_found() -> None:
    for api in ("completions", "chat"):
        with endpoint_of(Habits(api=api)) as endpoint:
            assert choose_api(endpoint, timeout_s=20).api == api
            assert models(endpoint) == ("m",)


def test_a_server_that_does_not_generate_is_an_error_with_both_answers() -> None:
    with (
        endpoint_of(Habits(key="right")) as endpoint,
        pytest.raises(RunFailed, match=r"completions: .*401.*; chat: .*401"),
    ):
        choose_api(endpoint, timeout_s=20)


def test_a_second_probe_does_not_meet_the_cache_of_the_first() -> None:
    habits = Habits()
    with endpoint_of(habits) as endpoint:
        for _ in range(2):
            answers = ask_all(endpoint, timeout_s=20)
            assert answers["first"].facts.cached_tokens == 0
            assert (answers["again"].facts.cached_tokens or 0) > 0


def test_every_finding_has_a_name_of_its_own() -> None:
    found = probed(Habits())
    assert len({one.name for one in found.findings}) == len(FINDINGS)


def run_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["benchx", "probe", *arguments])
    with pytest.raises(SystemExit) as end:
        app.main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


def test_the_command_prints_findings_and_the_fields_for_a_scenario(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Habits()) as url:
        code, out, err = run_command([url], monkeypatch, capsys)
        assert code == 0
        assert "tokens_per_chunk" in out
        assert "name: endpoint" in out
        assert "asking: usage" in err
        code, out, _ = run_command([url, "--json"], monkeypatch, capsys)
        assert json.loads(out)["engine"]["base_url"] == url


def test_a_key_is_sent_but_never_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROBE_KEY", "sk-very-secret")
    with serving(Habits(key="sk-very-secret")) as url:
        arguments = [url, "--model", "m", "--api-key-env", "PROBE_KEY", "--json"]
        code, out, err = run_command(arguments, monkeypatch, capsys)
    assert code == 0
    assert "sk-very-secret" not in out + err
    assert json.loads(out)["engine"]["api_key_env"] == "PROBE_KEY"


def test_a_key_that_is_missing_is_said_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PROBE_KEY", raising=False)
    habits = Habits()
    with serving(habits) as url:
        code, _, err = run_command([url, "--api-key-env", "PROBE_KEY"], monkeypatch, capsys)
    assert code == 2
    assert "PROBE_KEY" in err
    assert not habits.bodies


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["http://127.0.0.1:9/v1", "--model", "m"], 4, "does not generate"),
        (["http://127.0.0.1:9/v1"], 2, "lists no model"),
        (["nonsense", "--model", "m"], 2, "expected an address"),
        (["http://127.0.0.1:9/v1", "--model", "m", "--api", "chats"], 2, "--api"),
    ],
)
def test_what_can_not_be_probed_is_said_in_one_line(
    arguments: list[str],
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    returned, _, err = run_command(arguments, monkeypatch, capsys)
    assert returned == code
    assert words in err
