"""Loading: `extends`, `--set`, suites, and the round trip of what was loaded."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchx.core.errors import ScenarioError
from benchx.scenario import (
    CheckSettings,
    CostSettings,
    KernelPart,
    Scenario,
    Vocabulary,
    expand,
    load,
    shipped,
)

Loaded = Callable[..., Scenario]
Refusal = Callable[..., str]
Write = Callable[..., Path]

SUITE = """\
schema: 1
kind: suite
measure: {launches: 2, max_time: 1s}
parts:
  - kind: kernel
    op: mix
    backends: [slow]
    fixed: {heads: 4, seqlens: 64}
  - name: one-step
    title: One step
    kind: kernel
    op: step
    backends: all
    axes: {batch: [1, 2]}
    measure: {launches: 5}
"""


def only(scenario: Scenario) -> KernelPart:
    (part,) = scenario.parts
    assert isinstance(part, KernelPart)
    return part


def test_settings_have_documented_defaults(loaded: Loaded, base: str) -> None:
    part = only(loaded(base))
    assert (part.measure.launches, part.measure.cache, part.measure.timer) == (3, "cold", "auto")
    assert part.measure.order == "interleaved"
    assert part.check == CheckSettings(max_rms_ratio=None)
    assert part.cost is None


def test_settings_take_units(loaded: Loaded, base: str) -> None:
    part = only(loaded(base + "measure: {target_error: 0.5%, max_time: 2min}\ncost: {}\n"))
    assert part.measure.target_error == 0.005
    assert part.measure.max_time_s == 120.0
    assert part.cost == CostSettings(hardware="auto", prices="rental")


def test_name_and_title_default_to_the_file(write: Write, base: str) -> None:
    scenario = load(write(base, "My Test 2.yaml"))
    assert (scenario.name, scenario.title) == ("my-test-2", "my-test-2")
    named = load(write(base + "name: mine\ntitle: Which one?\n"))
    assert (named.name, named.title) == ("mine", "Which one?")
    assert only(named).name == "mine"


def test_a_shipped_scenario_loads_by_name_even_beside_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smoke").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("smoke").source == shipped()["smoke"]
    with pytest.raises(ScenarioError, match="is a folder"):
        load("./smoke")


def test_extends_joins_mappings_and_replaces_lists(write: Write, base: str) -> None:
    write(base + "name: parent\ntitle: Parent\nmeasure: {launches: 7, cache: warm}\n", "parent.yml")
    child = load(
        write("extends: parent.yml\naxes: {heads: [16]}\nmeasure: {launches: 1}\n", "child.yaml")
    )
    part = only(child)
    assert part.axes == {"heads": (16,), "seqlens": (64, "2x32")}
    assert (part.measure.launches, part.measure.cache) == (1, "warm")
    assert (child.name, child.title) == ("child", "child")


def test_extends_is_relative_to_the_file_that_says_it(write: Write, base: str) -> None:
    write(base, "folder/deep.yaml")
    write("extends: deep.yaml\nfixed: {width: 32}\n", "folder/middle.yaml")
    part = only(load(write("extends: folder/middle.yaml\n", "top.yaml")))
    assert part.fixed == {"width": 32}


def test_extends_takes_a_shipped_name(write: Write) -> None:
    path = write("extends: kda-prefill\nbackends: [chunked]\nmeasure: {launches: 1}\n")
    assert only(load(path)).op == "kda_prefill"


def test_an_error_in_what_is_extended_names_that_file(
    write: Write, base: str, refusal: Refusal
) -> None:
    write(base.replace("[4, 8]", "[4, 0]"), "parent.yaml")
    assert refusal("extends: parent.yaml\n") == (
        "parent.yaml:7: axes.heads.1: got 0; expected a whole number of at least 1"
    )


def test_a_circle_of_several_files_is_named(write: Write, refusal: Refusal) -> None:
    write("extends: b.yaml\n", "a.yaml")
    write("extends: mine.yaml\n", "b.yaml")
    assert refusal("extends: a.yaml\n") == (
        "b.yaml:1: extends: goes round in a circle: mine.yaml -> a.yaml -> b.yaml -> mine.yaml; "
        "expected an end"
    )


def test_null_takes_an_entry_of_the_parent_away(write: Write, base: str) -> None:
    write(base + "exclude: [{heads: 4}]\n", "parent.yaml")
    assert only(load(write("extends: parent.yaml\nexclude: null\n"))).exclude == ()


def test_an_axis_moves_between_fixed_and_axes_with_the_later_file(write: Write, base: str) -> None:
    write(base + "zip: [[heads, seqlens]]\n", "parent.yaml")
    part = only(load(write("extends: parent.yaml\nfixed: {heads: 4}\naxes: {width: [1, 2]}\n")))
    assert part.fixed == {"heads": 4}
    assert part.axes == {"seqlens": (64, "2x32"), "width": (1, 2)}
    assert part.zip == ()


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("axes.heads=[1,2,3]", ("axes", "heads"), (1, 2, 3)),
        ("axes.heads=64", ("axes", "heads"), (64,)),
        ("axes.heads.1=64", ("axes", "heads"), (4, 64)),
        ("axes.bound=[-1.5]", ("axes", "bound"), (-1.5,)),
        ("backends=slow", ("backends",), ("slow",)),
        ("measure.launches=9", ("measure", "launches"), 9),
        ("measure={launches: 9}", ("measure", "launches"), 9),
        ("measure.max_time=5s", ("measure", "max_time_s"), 5.0),
        ("fixed.heads=2", ("fixed",), {"width": 64, "heads": 2}),
        ("fixed.width=null", ("fixed",), {}),
        ("exclude=[{heads: 4, backend: slow}]", ("exclude",),
         ({"heads": (4,), "backend": ("slow",)},)),
    ],
)  # fmt: skip
def test_set_writes_one_value(
    loaded: Loaded, base: str, override: str, path: tuple[str, ...], value: object
) -> None:
    found: object = only(loaded(base, override))
    for step in path:
        found = found[step] if isinstance(found, dict) else getattr(found, step)
    assert found == value


def test_later_overrides_win(loaded: Loaded, base: str) -> None:
    part = only(loaded(base, "measure.launches=9", "measure.launches=2"))
    assert part.measure.launches == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("axes.headz=[1]", "axes.headz: unknown axis 'headz' of mix; expected one of heads, "
         "seqlens, width, dtype, bound, state; did you mean 'heads'?"),
        ("axs.heads=1", "axs: unknown key (value a mapping); expected one of schema, name, title, "
         "kind, measure, cost, op, backends, fixed, axes, zip, exclude, check; "
         "did you mean 'axes'?"),
        ("measure.nonsense=null", "measure.nonsense: unknown key (value null); expected one of "
         "launches, cache, timer, target_error, min_samples, max_samples, max_time, order, "
         "setup_time_limit, seed"),
        ("axes.heads.7=16", "axes.heads.7: the list has no item '7'; "
         "expected a position from 0 to 1"),
        ("axes.heads.x=16", "axes.heads.x: the list has no item 'x'; "
         "expected a position from 0 to 1"),
        ("op.name=1", "op.name: 'mix' has no entries; expected a shorter path"),
        ("axes.heads=[0]", "axes.heads.0: got 0; expected a whole number of at least 1"),
        ("axes.heads=", "axes.heads: no value; expected a value (null takes the entry away)"),
        ("axes.heads=[1", "not YAML: while parsing a flow sequence expected ',' or ']', "
         "but got '<stream end>'"),
        ("axes.heads", "not an assignment; "
         "expected path=value, such as axes.heads=[64,96] or measure.launches=1"),
        ("=1", "not an assignment; "
         "expected path=value, such as axes.heads=[64,96] or measure.launches=1"),
        ("a..b=1", "not an assignment; "
         "expected path=value, such as axes.heads=[64,96] or measure.launches=1"),
        (".".join("a" * 30) + "=1", "the path is too long; "
         "expected path=value, such as axes.heads=[64,96] or measure.launches=1"),
    ],
)  # fmt: skip
def test_an_override_that_fits_nowhere_is_refused_by_its_own_text(
    base: str, refusal: Refusal, override: str, message: str
) -> None:
    shown = override if len(override) <= 60 else f"{override[:57]!r}..."
    assert refusal(base, override) == f"--set {shown}: {message}"


def test_a_suite_has_parts_and_shares_settings_where_they_are_silent(loaded: Loaded) -> None:
    scenario = loaded(SUITE)
    assert [part.name for part in scenario.parts] == ["mix", "one-step"]
    assert [part.title for part in scenario.parts] == ["mix", "One step"]
    assert [part.measure.launches for part in scenario.parts] == [2, 5]
    assert [part.measure.max_time_s for part in scenario.parts] == [1.0, 1.0]


def test_what_a_suite_shares_and_set_says_goes_to_every_part(loaded: Loaded) -> None:
    scenario = loaded(SUITE, "measure.launches=1", "parts.1.measure.seed=3")
    assert [part.measure.launches for part in scenario.parts] == [1, 1]
    assert [part.measure.seed for part in scenario.parts] == [0, 3]


MIXED = """\
schema: 1
kind: suite
check: {max_rms_ratio: 0.01}
parts:
  - {kind: kernel, op: step, backends: all, axes: {batch: [1]}}
  - kind: suite
    parts:
      - kind: serving
        engine: {name: vllm, model: m}
        workload: {dataset: random}
        axes: {concurrency: [1]}
"""


@pytest.mark.parametrize("overrides", [(), ("check.max_rms_ratio=0.02",)])
def test_what_a_suite_shares_reaches_the_parts_whose_kind_has_it(
    loaded: Loaded, overrides: tuple[str, ...]
) -> None:
    kernel, serving = loaded(MIXED, *overrides).parts
    assert isinstance(kernel, KernelPart)
    assert kernel.check.max_rms_ratio == (0.02 if overrides else 0.01)
    assert "check" not in serving.to_json()


def test_what_no_part_of_a_suite_has_is_refused(refusal: Refusal) -> None:
    served = "\n".join(line for line in MIXED.splitlines() if "kernel" not in line) + "\n"
    told = "check: none of the parts has a setting `check`; expected one of measure, cost"
    assert refusal(served) == f"mine.yaml:3: {told}"
    unshared = served.replace("check: {max_rms_ratio: 0.01}\n", "")
    assert (
        refusal(unshared, "check.max_rms_ratio=0.02") == f"--set check.max_rms_ratio=0.02: {told}"
    )


def test_a_misspelt_shared_setting_is_refused_with_the_nearest_one(refusal: Refusal) -> None:
    assert refusal(MIXED.replace("check:", "chekc:")).endswith("did you mean 'check'?")
    assert "max_rms_ratio" in refusal(MIXED.replace("max_rms_ratio", "max_rms_ration"))
    own = MIXED.replace("workload:", "check: {}\n        workload:")
    assert "check: unknown key" in refusal(own)


def test_a_suite_names_other_scenarios_and_nested_suites(write: Write, base: str) -> None:
    write(SUITE, "inner.yaml")
    write(base, "single.yaml")
    outer = load(write("schema: 1\nkind: suite\nparts: [inner.yaml, single.yaml, smoke]\n"))
    assert [part.name for part in outer.parts][:3] == ["mix", "one-step", "single"]
    assert len(outer.parts) == 3 + len(load("smoke").parts)
    assert outer.parts[1].measure.launches == 5


def test_a_part_may_extend_a_scenario(write: Write, base: str) -> None:
    write(base, "single.yaml")
    text = "schema: 1\nkind: suite\nparts: [{extends: single.yaml, measure: {cache: warm}}]\n"
    assert load(write(text)).parts[0].measure.cache == "warm"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("[]", "parts: got an empty list; expected at least 1 in it"),
        ("{}", "parts: got an empty mapping; expected a list"),
        ("[absent]", "parts.0: 'absent': no such file; expected a scenario file or the name of a "
         "shipped scenario (benchx list scenarios)"),
        ("[mine.yaml]", "parts.0: goes round in a circle: mine.yaml -> mine.yaml; expected an end"),
        ("[7]", "parts.0: got 7; expected the name of a scenario, or a mapping"),
        ("[{kind: kernel, op: mix, backend: slow}]", "backend: unknown key (value 'slow'); "
         "expected one of schema, name, title, kind, measure, cost, op, backends, fixed, axes, "
         "zip, exclude, check; did you mean 'backends'?"),
    ],
)  # fmt: skip
def test_a_bad_part_is_refused(refusal: Refusal, parts: str, message: str) -> None:
    assert refusal(f"schema: 1\nkind: suite\nparts: {parts}\n") == f"mine.yaml:3: {message}"


def test_a_suite_of_very_many_parts_is_refused(refusal: Refusal) -> None:
    part = "- {kind: kernel, op: step, backends: all}\n"
    assert refusal("schema: 1\nkind: suite\nparts:\n" + part * 1001) == (
        "mine.yaml:3: parts: too many parts; expected at most 1000"
    )


def test_suites_of_suites_can_not_ask_for_millions_of_files(write: Write, refusal: Refusal) -> None:
    for depth in range(8):
        names = ", ".join([f"s{depth + 1}.yaml"] * 10)
        write(f"schema: 1\nkind: suite\nparts: [{names}]\n", f"s{depth}.yaml")
    write("schema: 1\nkind: kernel\nop: step\n", "s8.yaml")
    message = refusal("extends: s0.yaml\n")
    assert message.endswith("one file too many; expected at most 100 files in all")


def test_parts_of_a_suite_may_not_measure_a_point_twice(loaded: Loaded, refusal: Refusal) -> None:
    part = "{kind: kernel, op: step, backends: all, fixed: {batch: 1}}"
    text = f"schema: 1\nkind: suite\nparts:\n- {part}\n- {part}\n"
    assert refusal(text) == (
        "mine.yaml:5: parts.1: step/slow batch=1 is in part 0 too, measured the same way; "
        "expected different points or different settings"
    )


def test_parts_of_a_suite_may_measure_a_point_in_two_ways(
    loaded: Loaded, vocabulary: Vocabulary
) -> None:
    part = "  kind: kernel\n  op: step\n  backends: all\n  fixed: {batch: 1}\n"
    cold, warm = (f"- measure: {{cache: {cache}}}\n{part}" for cache in ("cold", "warm"))
    text = f"schema: 1\nkind: suite\nparts:\n{cold}{warm}"
    points = expand(loaded(text), vocabulary)
    assert len({point.point_id for point in points}) == 2


@pytest.mark.parametrize("name", sorted(shipped()))
def test_what_was_loaded_survives_json(name: str) -> None:
    scenario = load(name)
    data = json.loads(json.dumps(scenario.to_json()))
    assert Scenario.from_json(data, source=scenario.source) == scenario


def test_the_json_of_a_scenario_is_a_scenario_file(loaded: Loaded, base: str) -> None:
    first = loaded(base + "zip: [[heads, seqlens]]\nmeasure: {max_time: 0.3s}\nname: a\n")
    again = loaded(yaml.safe_dump(first.to_json()))
    assert again.to_json() == first.to_json()


def test_a_damaged_resolved_scenario_names_the_file_that_holds_it() -> None:
    with pytest.raises(ScenarioError, match=r"^run\.json: kind: missing"):
        Scenario.from_json({"schema": 1, "name": "x"}, source=Path("run.json"))


LINES = st.lists(
    st.sampled_from(
        [
            "schema: 1", "schema: {}", "kind: kernel", "kind: suite", "kind: [x]",
            "kind: {a: b}", "op: mix",
            "op: 3", "op: ''", "backends: all", "backends: [slow, 3]", "backends: {a: b}",
            "axes: {heads: [4], seqlens: [8]}", "axes: {'': [1]}", "axes: [1]", "fixed:",
            "fixed: {heads: 1}", "zip: [[heads, seqlens]]", "zip: 3", "exclude: [{heads: 4}]",
            "exclude: [{backend: [slow]}]", "parts: [smoke]", "parts: [{}]", "parts: [{a: 1}]",
            "parts: {a: 1}", "extends: smoke", "extends: kda-prefill", "extends: ''",
            "measure: {launches: 1}", "measure: []", "check: 1", "cost: {hardware: 1}",
            "name: x", "name: []", "title: ''", "title: 3", "a: &a 1", "b: *a",
        ]
    ),
    unique=True,
    max_size=12,
)  # fmt: skip
SETS = st.lists(
    st.sampled_from(
        [
            "axes.heads=1", "parts.0.kind=suite", "parts.0=smoke", "parts=3", "kind=suite", "a=b",
            "measure=1", "schema=null", "fixed=[1]", "axes=null", "zip.0.0=x", "name=null",
        ]
    )
    | st.text(max_size=20),
    max_size=2,
)  # fmt: skip


@given(lines=LINES, overrides=SETS)
def test_no_scenario_makes_the_loader_fail_otherwise(
    vocabulary: Vocabulary, lines: list[str], overrides: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder, suppress(ScenarioError):
        path = Path(folder) / "mine.yaml"
        path.write_text("\n".join(lines))
        expand(load(path, overrides=overrides), vocabulary)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_loader_fail_otherwise(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.yaml"
        path.write_bytes(content)
        with pytest.raises(ScenarioError):
            load(path)


@given(st.text(max_size=60))
def test_no_name_makes_the_loader_fail_otherwise(name: str) -> None:
    with suppress(ScenarioError):
        load(name)
