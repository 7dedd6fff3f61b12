"""Addresses, headers and bodies: what can't be sent is refused in one sentence."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from benchx.core.errors import UsageError
from benchx.serving.engines.process import EngineFailed
from benchx.serving.engines.readiness import ReadinessCheck
from benchx.serving.exchange import Exchange, get, post
from benchx.serving.http_wire import Address, Encoder, json_body
from benchx.serving.request import Endpoint, Request
from benchx.serving.stream_facts import StreamFacts
from benchx.serving.trial import Trial

URL = "http://127.0.0.1:9/v1"


def endpoint(base_url: str = URL, **more: Any) -> Endpoint:  # noqa: ANN401
    return Endpoint(base_url=base_url, api="chat", model="m", **more)


def head(made: Endpoint) -> list[bytes]:
    """Lines of the head of a request."""
    request = Request(index=0, prompt="x", max_tokens=1)
    return Encoder(made).encode(request).partition(b"\r\n\r\n")[0].split(b"\r\n")


@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h", "http://h/chat/completions"),
        ("http://h/v1?api-version=2", "http://h/v1/chat/completions?api-version=2"),
        ("http://h/v1/?a=b/c", "http://h/v1/chat/completions?a=b/c"),
        ("http://h/v1#part", "http://h/v1/chat/completions"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1/chat/completions"),
    ],
)
def test_a_path_goes_below_the_base_url_and_before_its_query(base_url: str, expected: str) -> None:
    assert endpoint(base_url).url == expected


def test_a_name_beyond_ascii_is_sent_as_dns_has_it() -> None:
    assert Address.of("https://b\u00fccher.example/v1").host == "xn--bcher-kva.example"
    assert b"Host: xn--bcher-kva.example" in head(endpoint("https://b\u00fccher.example/v1"))


def test_an_ip6_address_has_brackets_in_its_host_header() -> None:
    assert b"Host: [::1]:8000" in head(endpoint("http://[::1]:8000/v1"))


@pytest.mark.parametrize(
    "url",
    [
        *("http://a..b/v1", f"http://{'a' * 64}.b/v1", "http://[::1/v1", "http://h:99999/v1"),
        *("http://h/v\u00e9", "http://h/v 1", "http://", "h:80/v1", "ftp://h/v1", ""),
    ],
)
def test_an_address_that_is_none_is_refused_by_all_who_use_one(url: str) -> None:
    for use in (Address.of, lambda one: get(one, timeout_s=1)):
        with pytest.raises(UsageError):
            use(url)


@pytest.mark.parametrize("url", ["http://u:pa55@h/v1", "http://u:pa55@h:x/v1", "http://u:pa55@[::"])
def test_a_password_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError, match="user name or password") as caught:
        Address.of(url)
    assert "pa55" not in str(caught.value)


def test_a_header_of_the_endpoint_takes_the_place_of_ours_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGENT", "secret")
    made = endpoint(headers={"content-type": "text/x"}, header_env={"USER-AGENT": "AGENT"})
    names = [line.partition(b":")[0].lower() for line in head(made)[1:]]
    assert len(names) == len(set(names))
    assert {b"content-type: text/x", b"USER-AGENT: secret"} <= set(head(made))


@pytest.mark.parametrize(
    "fields",
    [
        *({"headers": {"X Y": "a"}}, {"headers": {"X": "\u20ac"}}, {"headers": {"Host": "h"}}),
        *({"header_env": {"X\r\nY": "HOME"}}, {"header_env": {"Connection": "HOME"}}),
    ],
)
def test_a_header_that_can_not_be_sent_is_refused_by_all_who_send_one(
    fields: dict[str, Any],
) -> None:
    with pytest.raises(UsageError, match="header"):
        Encoder(endpoint(**fields))
    with pytest.raises(UsageError, match="header"):
        get(URL, timeout_s=1, endpoint=endpoint(**fields))


@pytest.mark.parametrize("value", [10**30, "\ud83d", {1, 2}])
def test_a_value_that_json_can_not_hold_is_refused_by_all_who_send_one(value: object) -> None:
    made = endpoint(extra_body={"x": value})
    with pytest.raises(UsageError, match="can't be written as JSON"):
        Encoder(made).encode(Request(index=0, prompt="x", max_tokens=1))
    with pytest.raises(UsageError, match="can't be written as JSON"):
        post(URL, {"x": value}, timeout_s=1)


def test_a_date_of_a_scenario_is_sent_as_text() -> None:
    assert json_body({"day": datetime.date(2026, 1, 2)}) == b'{"day":"2026-01-02"}'


@pytest.mark.parametrize(
    ("base_url", "hint"),
    [
        ("http://h:1", "up to and including /v1"),
        ("http://h:1/v1/chat/completions", "up to and including /v1"),
        ("http://h:1/v1/", None),
    ],
)
def test_a_server_without_that_path_is_met_with_how_a_base_url_ends(
    base_url: str, hint: str | None
) -> None:
    answer = Exchange(status=404)
    trial = Trial(tokens=0, status=404, problem="HTTP 404", answer=answer, facts=StreamFacts())
    check = ReadinessCheck(
        endpoint(base_url), health_path=None, generate=lambda *_: trial, timeout_s=5
    )
    with pytest.raises(EngineFailed, match="HTTP 404") as caught:
        check.wait()
    assert (caught.value.hint or "").endswith(hint or "")
    assert (hint is None) == (caught.value.hint is None)
