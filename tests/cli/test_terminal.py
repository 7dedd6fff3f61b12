"""A table is ruled on a terminal and plain columns in a pipe."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from benchx.cli.terminal import print_json, print_rows, stdout

ROWS = [
    {"op": "kda_prefill", "backends": ["recurrent", "chunked"], "points": 2, "note": None},
    {"op": "mla", "backends": [], "points": 12, "note": "[1] see below"},
]


def _text(*, is_terminal: bool, width: int = 80) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream, force_terminal=is_terminal, width=width, markup=False, color_system=None
    )
    print_rows(console, ROWS)
    return stream.getvalue()


def test_a_piped_table_is_columns_without_rules_and_without_trailing_blanks() -> None:
    assert _text(is_terminal=False) == (
        "op           backends            points  note\n"
        "kda_prefill  recurrent, chunked       2\n"
        "mla                                  12  [1] see below\n"
    )


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_table_without_rows_says_that_there_are_none(is_terminal: bool) -> None:
    stream = io.StringIO()
    print_rows(Console(file=stream, force_terminal=is_terminal, color_system=None), [])
    assert stream.getvalue() == "none\n"


def test_a_piped_table_is_never_folded() -> None:
    assert len(_text(is_terminal=False, width=20).splitlines()) == 1 + len(ROWS)


def test_a_table_on_a_terminal_fits_its_width() -> None:
    for width in (40, 80, 120):
        assert max(map(len, _text(is_terminal=True, width=width).splitlines())) <= width


def test_on_a_terminal_too_narrow_for_its_numbers_a_table_is_blocks_of_lines() -> None:
    numbers = {"layers": "61 mla", "total": 671026419200, "active": 36618432000, "bytes": 70272}
    rows = [{"architecture": name} | numbers | {"note": None} for name in ("deepseek-v3", "k2")]
    stream = io.StringIO()
    print_rows(Console(file=stream, force_terminal=True, width=50, color_system=None), rows)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines[:5] == [
        "deepseek-v3",
        "  layers  61 mla",
        "  total   671026419200",
        "  active  36618432000",
        "  bytes   70272",
    ]
    assert lines[5] == "k2"
    assert not any("note" in line for line in lines)


def test_a_name_is_not_broken_where_the_rest_of_the_row_can_be() -> None:
    question = "From which length on does 3:1 KDA to MLA beat MLA in every layer?"
    levels = {"level": ["kernel", "model", "serving"], "points": 5, "question": question}
    stream = io.StringIO()
    rows = [{"scenario": name} | levels for name in ("smoke", "serving-k3-nvidia-offload")]
    print_rows(Console(file=stream, force_terminal=True, width=60, color_system=None), rows)
    assert "serving-k3-nvidia-offload " in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= 60


def test_a_table_on_a_terminal_keeps_brackets_as_they_are() -> None:
    assert "[1] see below" in _text(is_terminal=True)


def test_json_refuses_what_json_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": 1.5})
    assert json.loads(capsys.readouterr().out) == {"a": 1.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"a": float("nan")})


def test_no_color_takes_the_colour_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert stdout().no_color
