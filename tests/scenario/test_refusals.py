"""Bad scenarios: each ends in one line that names file, line, key, value and expectation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchx.core.errors import ScenarioError
from benchx.scenario import MAX_POINTS, Scenario, Vocabulary, expand, load

Refusal = Callable[..., str]

CHANGES = {
    "unknown key": (
        ("op: mix", "op: mix\nbackend: fast"),
        "mine.yaml:4: backend: unknown key (value 'fast'); expected one of schema, name, title, "
        "kind, measure, cost, op, backends, fixed, axes, zip, exclude, check; "
        "did you mean 'backends'?",
    ),
    "misspelt required key": (
        ("op: mix", "opp: mix"),
        "mine.yaml:3: opp: unknown key (value 'mix'); expected one of schema, name, title, kind, "
        "measure, cost, op, backends, fixed, axes, zip, exclude, check; did you mean 'op'?",
    ),
    "misspelt backend": (
        ("slow, fast", "slow, fats"),
        "mine.yaml:4: backends.1: got 'fats'; expected one of slow, fast, other; "
        "did you mean 'fast'?",
    ),
    "misspelt operator": (
        ("op: mix", "op: mxi"),
        "mine.yaml:3: op: got 'mxi'; expected one of mix, step; did you mean 'mix'?",
    ),
    "misspelt kind": (
        ("kind: kernel", "kind: kernal"),
        "mine.yaml:2: kind: got 'kernal'; expected one of kernel, model, serving, suite; "
        "did you mean 'kernel'?",
    ),
    "kind that is no word": (
        ("kind: kernel", "kind: {kernel: 1}"),
        "mine.yaml:2: kind: got a mapping; expected one of kernel, model, serving, suite",
    ),
    "missing kind": (
        ("kind: kernel\n", ""),
        "mine.yaml:1: kind: missing; expected one of kernel, model, serving, suite",
    ),
    "missing schema": (
        ("schema: 1\n", ""),
        "mine.yaml:1: schema: missing; expected `schema: 1` on top",
    ),
    "other schema": (("schema: 1", "schema: 2"), "mine.yaml:1: schema: got 2; expected 1"),
    "missing operator": (
        ("op: mix\n", ""),
        "mine.yaml:1: op: missing; expected the name of an operator (`op: kda_prefill`)",
    ),
    "misspelt axis": (
        ("heads:", "heds:"),
        "mine.yaml:7: axes.heds: unknown axis 'heds' of mix; expected one of heads, seqlens, "
        "width, dtype, bound, state; did you mean 'heads'?",
    ),
    "axis without a value": (
        ("  heads: [4, 8]\n", ""),
        "mine.yaml:6: axes.heads: missing, and mix has no default for it; "
        "expected heads per device (under `axes` or `fixed`)",
    ),
    "empty axis": (
        ("[4, 8]", "[]"),
        "mine.yaml:7: axes.heads: got an empty list; expected at least 1 in it",
    ),
    "axis of null": (("[4, 8]", ""), "mine.yaml:7: axes.heads: got null; expected a list"),
    "negative size": (
        ("[4, 8]", "[4, -8]"),
        "mine.yaml:7: axes.heads.1: got -8; expected a whole number of at least 1",
    ),
    "zero size": (
        ("[4, 8]", "\n  - 4\n  - 0"),
        "mine.yaml:9: axes.heads.1: got 0; expected a whole number of at least 1",
    ),
    "float where an integer belongs": (
        ("[4, 8]", "[4, 8.0]"),
        "mine.yaml:7: axes.heads.1: got 8.0; expected a whole number of at least 1",
    ),
    "bool where an integer belongs": (
        ("[4, 8]", "[4, true]"),
        "mine.yaml:7: axes.heads.1: got true; expected a whole number of at least 1",
    ),
    "word where an integer belongs": (
        ("[4, 8]", "[4, many]"),
        "mine.yaml:7: axes.heads.1: got 'many'; "
        "expected a whole number of at least 1, such as 8192 or 128k",
    ),
    "number that no column holds": (
        ("[4, 8]", "[9223372036854775808]"),
        "mine.yaml:7: axes.heads.0: got 9223372036854775808; expected a whole number of at least 1",
    ),
    "list within an axis": (
        ("[4, 8]", "[[4, 8]]"),
        "mine.yaml:7: axes.heads.0: got a list of 2; "
        "expected one value (a number, a word, true or false)",
    ),
    "zero length": (
        ("2x32", "2x0"),
        "mine.yaml:8: axes.seqlens.1: got '2x0'; expected lengths of at least 1 each",
    ),
    "no length": (
        ("2x32", "2x32x"),
        "mine.yaml:8: axes.seqlens.1: got '2x32x'; "
        "expected lengths of sequences such as 8192, 128k, 1300+547 or 8x1024",
    ),
    "value that is no choice": (
        ("width: 64", "dtype: bf61"),
        "mine.yaml:5: fixed.dtype: got 'bf61'; expected one of bf16, fp32; did you mean 'bf16'?",
    ),
    "yes where a bool belongs": (
        ("width: 64", "state: yes"),
        "mine.yaml:5: fixed.state: got 'yes'; expected true or false",
    ),
    "word where a number belongs": (
        ("width: 64", "bound: low"),
        "mine.yaml:5: fixed.bound: got 'low'; expected a number",
    ),
    "list under fixed": (
        ("width: 64", "width: [64]"),
        "mine.yaml:5: fixed.width: got a list of 1; "
        "expected one value (a number, a word, true or false)",
    ),
    "NaN": (
        ("width: 64", "bound: .nan"),
        "mine.yaml:5: fixed.bound: got '.nan'; expected a finite number",
    ),
    "axis given twice": (
        ("width: 64", "heads: 64"),
        "mine.yaml:5: fixed.heads: heads is under `axes` too; expected one of both",
    ),
    "list instead of a mapping": (
        ("{width: 64}", "[width, 64]"),
        "mine.yaml:5: fixed: got a list of 2; expected a mapping (key: value lines)",
    ),
    "duplicate value": (
        ("[4, 8]", "[4, 8, 4]"),
        "mine.yaml:7: axes.heads.2: heads=4 is listed twice; expected different points",
    ),
    "duplicate value, written differently": (
        ("[64, 2x32]", "[2x32, 32+32]"),
        "mine.yaml:8: axes.seqlens.1: seqlens='2x32' is listed twice; expected different points",
    ),
    "duplicate backend": (
        ("slow, fast", "slow, slow"),
        "mine.yaml:4: backends.1: backend='slow' is listed twice; expected different points",
    ),
    "all beside others": (
        ("slow, fast", "all, fast"),
        "mine.yaml:4: backends.0: got 'all'; expected one of slow, fast, other, or all alone",
    ),
    "impossible combination": (
        ("[4, 8]", "[4, 13]"),
        "mine.yaml:7: axes.heads: heads=13 seqlens='64': heads of 13 can't be split; "
        "expected other values, or an `exclude` entry",
    ),
    "tab": (("  heads", "\theads"), "mine.yaml:7: a tab indents this line; expected spaces"),
    "duplicate key": (
        ("fixed", "op"),
        "mine.yaml:5: op: written twice (first on line 3); expected each key once",
    ),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_changed_scenario_is_refused(
    change: tuple[str, str], message: str, base: str, refusal: Refusal
) -> None:
    assert change[0] in base
    assert refusal(base.replace(*change, 1)) == message


ADDITIONS = {
    "measure: {launches: 2.0}": "measure.launches: got 2.0; expected a whole number",
    "measure: {launches: true}": "measure.launches: got true; expected a whole number",
    "measure: {launches: 0}": "measure.launches: got 0; expected at least 1",
    "measure: {lanches: 1}": "measure.lanches: unknown key (value 1); expected one of launches, "
    "cache, timer, target_error, min_samples, max_samples, max_time, order, setup_time_limit, "
    "seed; did you mean 'launches'?",
    "measure: {max_time: 15}": "measure.max_time: got 15; expected a time above zero with its "
    "unit, such as 0.5s, 15s or 2min",
    "measure: {max_time: 0s}": "measure.max_time: got '0s'; expected a time above zero with its "
    "unit, such as 0.5s, 15s or 2min",
    "measure: {target_error: 5}": "measure.target_error: got 5; expected a share from 0 to 1, "
    "such as 0.5% or 0.005",
    "measure: {cache: colt}": "measure.cache: got 'colt'; expected 'cold' or 'warm'; "
    "did you mean 'cold'?",
    "measure: {min_samples: 2000}": "measure: got 'min_samples 2000'; "
    "expected at most max_samples (1000)",
    "measure: fast": "measure: got 'fast'; expected a mapping (key: value lines)",
    "check: {max_rms_ratio: -1}": "check.max_rms_ratio: got -1; expected a number above 0.0",
    "check: {max_rms_ratio: 0.5%}": "check.max_rms_ratio: got '0.5%'; expected a number",
    "name: My test": "name: got 'My test'; "
    "expected lower-case letters, digits, '-', '_' and '.', as in kda-prefill",
    "zip: [heads, seqlens]": "zip.0: got 'heads'; expected a list",
    "zip: [[heads]]": "zip.0: got a list of 1; expected at least 2 in it",
    "zip: [[heads, seqlen]]": "zip.0: got 'seqlen'; expected one of the axes heads, seqlens; "
    "did you mean 'seqlens'?",
    "zip: [[heads, seqlens], [seqlens, heads]]": "zip.1: axis 'seqlens' is zipped twice; "
    "expected each axis in one group",
    "exclude: [{heds: 4}]": "exclude.0.heds: unknown axis 'heds' of mix; expected one of heads, "
    "seqlens, width, dtype, bound, state, backend; did you mean 'heads'?",
    "exclude: [{heads: 4, backend: fsat}]": "exclude.0.backend.0: got 'fsat'; "
    "expected one of slow, fast, other; did you mean 'fast'?",
    "exclude: [{heads: 4.5}]": "exclude.0.heads.0: got 4.5; "
    "expected a whole number of at least 1",
    "exclude: [{heads: [4, 8]}]": "exclude: no point is left; "
    "expected exclusions that leave some",
    "exclude: [{}]": "exclude.0: got an empty mapping; expected at least 1 in it",
    "exclude: {heads: 4}": "exclude: got a mapping; expected a list",
    "extends: absent.yaml": "extends: 'absent.yaml': no such file; expected a scenario file or "
    "the name of a shipped scenario (benchx list scenarios)",
    "extends: kda-prefil": "extends: 'kda-prefil': no such file; expected a scenario file or "
    "the name of a shipped scenario; did you mean 'kda-prefill'? (benchx list scenarios)",
    "extends: [smoke]": "extends: got a list of 1; expected the path or name of one scenario",
    "extends: mine.yaml": "extends: goes round in a circle: mine.yaml -> mine.yaml; "
    "expected an end",
}  # fmt: skip


@pytest.mark.parametrize(("line", "message"), ADDITIONS.items(), ids=ADDITIONS)
def test_an_added_line_is_refused(line: str, message: str, base: str, refusal: Refusal) -> None:
    assert refusal(base + line + "\n") == f"mine.yaml:9: {message}"


def test_zipped_axes_must_be_of_equal_length(base: str, refusal: Refusal) -> None:
    text = base.replace("[4, 8]", "[4, 8, 16]") + "zip: [[heads, seqlens]]\n"
    assert refusal(text) == (
        "mine.yaml:9: zip.0: unequal numbers of values: heads has 3, seqlens has 2; "
        "expected axes of equal length"
    )


def test_equal_rows_of_zipped_axes_are_duplicate_points(base: str, refusal: Refusal) -> None:
    text = base.replace("[4, 8]", "[4, 4]").replace("2x32", "64") + "zip: [[heads, seqlens]]\n"
    assert refusal(text) == (
        "mine.yaml:7: axes.heads.1: heads=4 seqlens=64 is listed twice; expected different points"
    ).replace("=64", "='64'")


def test_a_list_instead_of_the_whole_mapping_is_refused(refusal: Refusal) -> None:
    assert refusal("- schema: 1\n- kind: kernel\n") == (
        "mine.yaml:1: got a list of 2; expected a mapping (key: value lines)"
    )


def test_a_sweep_of_over_a_million_points_is_refused_without_building_one(
    base: str, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def must_not_be_called(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a point was built")

    monkeypatch.setattr("benchx.scenario.kernel_sweep.Point", must_not_be_called)
    text = base.replace("[4, 8]", str(list(range(1, 1001))))
    text = text.replace("[64, 2x32]", str(list(range(1, 1001))))
    assert refusal(text) == (
        f"mine.yaml:6: axes: the sweep has 2,000,000 points; expected at most {MAX_POINTS:,} "
        "(split it, or zip axes that move together)"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.yaml", "'absent.yaml': no such file; expected a scenario file or the name of a"),
        ("kda-prefil", "'kda-prefil': no such file; expected a scenario file or the name of a "
         "shipped scenario; did you mean 'kda-prefill'? (benchx list scenarios)"),
        ("quikstart.yaml", "did you mean 'quickstart'?"),
        (".", "'.': is a folder; expected a scenario file or the name of a shipped scenario"),
        ("", "'': is a folder"),
        ("/dev/null", "'/dev/null': is not a regular file; expected a scenario file"),
        ("a\0b", "no such file"),
        ("x" * 5000, "File name too long"),
    ],
    ids=lambda value: value[:12],
)  # fmt: skip
def test_what_is_no_scenario_file_is_refused(name: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(name)
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_misspelt_neighbour_is_suggested(write: Callable[..., Path], base: str) -> None:
    path = write(base, "long-prompts.yaml")
    with pytest.raises(ScenarioError, match=r"did you mean 'long-prompts.yaml'\?"):
        load(path.with_name("long-promts.yaml"))


@pytest.mark.parametrize("key", [r"a\nb", r"a\x07b", r"a\u2028b"])
def test_a_key_that_would_break_the_line_is_shown_escaped(
    key: str, base: str, refusal: Refusal
) -> None:
    told = refusal(f'{base}"{key}": 1\n')
    assert f": {key}: unknown key" in told
    assert told.isprintable()


def test_of_very_many_backends_the_nearest_are_named_and_how_to_see_all(
    loaded: Callable[..., Scenario], base: str, vocabulary: Vocabulary
) -> None:
    pairs = tuple(f"{kda}+{mla}" for kda in ("fla", "cudnn", "triton") for mla in "abcdef")
    many = Vocabulary(ops={"mix": replace(vocabulary.ops["mix"], backends=pairs)})
    with pytest.raises(ScenarioError) as refused:
        expand(loaded(base.replace("[slow, fast]", "[fla+a, tritn+b]")), many)
    told = str(refused.value)
    assert "mine.yaml:4: backends.1: got 'tritn+b'; expected one of 18 backends, such as" in told
    assert "did you mean 'triton+b'?" in told
    assert "`benchx plan SCENARIO` with `backends: all` lists them" in told
    assert sum(pair in told for pair in pairs) == 4
