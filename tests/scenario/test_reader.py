"""What the reader takes from YAML and what it refuses, with the line of each refusal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchx.core.errors import Location, ScenarioError
from benchx.scenario.reader import MAX_BYTES, MAX_DEPTH, MAX_VALUES, read_yaml

Refusal = Callable[..., str]
FILE = Location(Path("f.yaml"))

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
DEEP_BY_ALIASES = f"a0: &a0 {'[' * 15}{']' * 15}\n" + "".join(
    f"a{n}: &a{n} {'[' * 15}*a{n - 1}{']' * 15}\n" for n in range(1, 40)
)


def plain(text: str) -> object:
    return read_yaml(text, FILE).plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-3", -3), ("1.5", 1.5), ("1e-3", 0.001), (".5", 0.5),
        ("true", True), ("False", False), ("~", None), ("", None),
        # Words, each of which YAML 1.1 turns into something else.
        ("yes", "yes"), ("off", "off"), ("1:30", "1:30"), ("0x10", "0x10"), ("1_000", "1_000"),
        ("2026-01-02", "2026-01-02"), ("0o17", "0o17"),
        ("128k", "128k"), ("0.5%", "0.5%"), ("8x1024", "8x1024"), ("'12'", "12"), ('"~"', "~"),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    found = plain(f"a: {text}\n")
    assert found == {"a": value}
    assert type(found["a"]) is type(value)


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert plain("\ufeffa: 1") == {"a": 1}


def test_an_alias_repeats_its_value_at_its_own_line() -> None:
    read = read_yaml("a: &x [1, 2]\nb: 3\nc: *x\n", FILE)
    assert read.plain() == {"a": (1, 2), "b": 3, "c": (1, 2)}
    assert read.at(("c",)).where == Location(FILE.path, 3)


def test_every_value_knows_its_line() -> None:
    read = read_yaml("a:\n  b: 1\n  c:\n  - 2\n  - d: 3\n", FILE)
    paths = [("a",), ("a", "b"), ("a", "c"), ("a", "c", 0), ("a", "c", 1, "d")]
    assert [read.at(path).where.line for path in paths] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml: the file is empty; expected a mapping (key: value lines)"),
        ("# nothing\n", "f.yaml: the file is empty; expected a mapping (key: value lines)"),
        ("a: 1\nb: 2\na: 3\n", "f.yaml:3: a: written twice (first on line 1); expected each"),
        ("a:\n\tb: 1\n", "f.yaml:2: a tab indents this line; expected spaces"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2: a second document begins; expected one document"),
        (
            "a: !!python/object:os.system x",
            "f.yaml:1: a: tag '!!python/object:os.system'; expected",
        ),
        ("a: !!str 1", "f.yaml:1: a: tag '!!str'; expected plain values without tags"),
        ("a:\n  b: .nan\n", "f.yaml:2: a.b: got '.nan'; expected a finite number"),
        ("a: -.inf\n", "f.yaml:1: a: got '-.inf'; expected a finite number"),
        ("a: 1e999\n", "f.yaml:1: a: got '1e999'; expected a finite number"),
        (f"a: {'9' * 5000}\n", "expected a number of at most 20 digits"),
        ("a: *nowhere\n", "f.yaml:1: a: alias *nowhere points at nothing; expected"),
        ("a: &a [1, *a]\n", "f.yaml:1: a: alias *a points at nothing; expected"),
        ("<<: {a: 1}\n", "f.yaml:1: merge keys (<<) are not read; expected `extends:"),
        ("[1]: 2\n", "f.yaml:1: a key that is a list, mapping or alias; expected a word"),
        ("!!int 1: 2\n", "f.yaml:1: a key with a tag or anchor; expected a plain word"),
        ("a: b: c\n", "f.yaml:1: not YAML: mapping values are not allowed here"),
        ("a: [1, 2\n", "not YAML: while parsing a flow sequence expected ',' or ']'"),
        ("b: 1\na: \x01\n", "f.yaml:2: character U+0001 is not allowed in YAML"),
        ('a: "\\ud800"\n', "f.yaml:1: a: half of a surrogate pair; expected whole characters"),
        ('a: "\\UFFFFFFFF"\n', "f.yaml: not YAML: "),
        (f"%YAML {'1' * 5000}.1\n--- a\n", "f.yaml: not YAML: "),
        ("[" * 100_000, f"values nest too deep; expected at most {MAX_DEPTH} levels"),
        (DEEP_BY_ALIASES, f"f.yaml:2: a1: values nest too deep; expected at most {MAX_DEPTH}"),
        (BOMB, f"f.yaml:5: a4: more than {MAX_VALUES} values, aliases followed; expected"),
        ("a" * (MAX_BYTES + 1), f"{MAX_BYTES + 1} characters; expected at most {MAX_BYTES}"),
    ],
    ids=lambda value: value[:24],
)
def test_what_is_no_plain_document_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        plain(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_utf_8_name_byte_and_line(refusal: Refusal) -> None:
    assert refusal(b"schema: 1\ntitle: caf\xe9\n") == (
        "mine.yaml:2: byte 0xe9 is not UTF-8; expected UTF-8"
    )


def test_a_huge_file_is_refused_before_it_is_read_whole(refusal: Refusal) -> None:
    assert refusal(b"#" * 10_000_000) == "mine.yaml: 9.54 MiB; expected at most 256 KiB"


YAMLISH = st.text(alphabet="abk1280.:-[]{}&*!|>'\"%#,? \n\t~<\\xu\u20ac\ud7ff", max_size=120)


@given(st.text(max_size=200) | YAMLISH)
@example("? a\n? b")
@example("a: |\n  x\n\n  y")
@example("%TAG ! !\n--- !x y")
def test_no_text_makes_the_reader_fail_otherwise(text: str) -> None:
    with suppress(ScenarioError):
        read_yaml(text, FILE).plain()
