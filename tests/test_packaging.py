"""The wheel, the pinned versions and the README are what they promise to be."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import benchx
from benchx.cli.app import BROKEN_PIPE
from benchx.cli.words import vocabulary
from benchx.core.errors import ExitCode
from benchx.scenario import expand, load

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def fenced(mark: str) -> str:
    """The content of the README's fenced block after `<!-- mark -->`."""
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.*?)\n```", README, re.DOTALL)
    assert found, f"README.md has no block {mark!r}"
    return found[1]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", text)[0].lower() for text in requirements}


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("benchx", "kernels", "scenarios"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source" / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    done = run(*pip, "--no-index", "-w", str(folder), str(folder / "source"), cwd=folder)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def pins() -> dict[str, Version]:
    """Package (normalised) -> its version in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(one.name): Version(str(one.specifier)[2:]) for one in wanted}


def clashes(package: str, requirements: list[str]) -> list[str]:
    """What a pinned package requires of another and its pin does not meet."""
    known, found = pins(), []
    for one in map(Requirement, requirements):
        pin = known.get(canonicalize_name(one.name))
        applies = one.marker is None or one.marker.evaluate({"extra": ""})
        if pin is not None and applies and not one.specifier.contains(pin, prereleases=True):
            found.append(f"{package} requires {one}, constraints.txt pins {pin}")
    return found


def test_no_pinned_package_requires_another_version_of_a_pinned_one() -> None:
    """Else pip can't install them together where each comes from PyPI.

    Another version than the pinned one, as a machine may have of torch, may require what it likes.
    """
    found = [
        line
        for one in metadata.distributions()
        if pins().get(canonicalize_name(one.name)) == Version(one.version)
        for line in clashes(one.name, one.requires or [])
    ]
    # What the CUDA build of this torch on PyPI requires; the build for CPUs requires no Triton.
    found += clashes("torch 2.13.0", ['triton==3.7.1; platform_system == "Linux"'])
    assert found == []
    assert str(pins()["torch"]) == "2.13.0", "say above which Triton the new torch requires"


def test_a_pin_that_another_package_refuses_is_found() -> None:
    assert clashes("x", ["triton<2", "numpy>=1; extra == 'more'"]) == [
        f"x requires triton<2, constraints.txt pins {pins()['triton']}"
    ]


def test_the_wheel_holds_every_module_and_every_scenario(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    renamed = {"benchx": "benchx", "kernels": "benchx_kernels", "scenarios": "benchx_scenarios"}
    for folder, package in renamed.items():
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.yaml")]:
            name = f"{package}/{path.relative_to(ROOT / folder)}"
            assert name in held, f"{name} is not in the wheel"


def test_the_wheel_is_typed_and_holds_neither_tests_nor_a_package_called_kernels(
    wheel: Path,
) -> None:
    held = zipfile.ZipFile(wheel).namelist()
    assert "benchx/py.typed" in held
    tops = {Path(name).parts[0] for name in held if ".dist-info" not in name}
    assert tops == {"benchx", "benchx_kernels", "benchx_scenarios"}


def test_an_installed_wheel_plans_a_shipped_scenario_outside_the_checkout(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    probe = "import benchx, sys; print(benchx.__file__); from benchx.cli.app import main; main()"
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    done = run(sys.executable, "-c", probe, "plan", "smoke", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site))
    assert "smoke" in done.stdout


def test_every_dependency_is_pinned() -> None:
    pinned = names((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())
    project = PROJECT["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    assert set().union(*map(names, groups)) - pinned == set()


def test_package_project_and_changelog_agree_on_the_version() -> None:
    versions = re.findall(
        r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert benchx.__version__ == PROJECT["project"]["version"] == versions[0]


@pytest.mark.parametrize("name", ["quickstart", "tests"])
def test_each_command_of_the_readme_is_one_line_with_an_environment_of_its_own(name: str) -> None:
    line = fenced(f"command: {name}")
    assert "\n" not in line
    assert line.startswith("python3 -m venv .venv && .venv/bin/pip install ")
    assert "-c constraints.txt" in line


def test_the_script_for_every_change_takes_its_commands_from_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^step .* as_in_readme (\w+) ", script, re.MULTILINE) == [
        "quickstart",
        "tests",
    ]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_the_readme_explains_every_exit_code() -> None:
    section = README.split("## Exit codes")[1].split("\n## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)} == {
        *(code.value for code in ExitCode),
        BROKEN_PIPE,
    }


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    for readme in [ROOT / "README.md", *ROOT.glob("*/README.md")]:
        for link in re.findall(r"\]\((?!https?://|#)([^)#]+)", readme.read_text(encoding="utf-8")):
            assert (readme.parent / link).exists(), f"{readme.relative_to(ROOT)}: {link}"


def test_the_scenario_of_the_readme_is_accepted(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(schema: 1\n.*?)\n```", README, re.DOTALL)
    assert found
    path = tmp_path / "my-shapes.yaml"
    path.write_text(found[1], encoding="utf-8")
    points = expand(load(path), vocabulary())
    assert len(points) == 2 * 2 * 3


def test_the_operator_of_the_readme_takes_about_twenty_lines() -> None:
    tree = ast.parse(fenced("example: operator"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    lines = ast.unparse(classes["Rows"]), ast.unparse(classes["Softmax"])
    assert sum(len([line for line in text.splitlines() if line]) for text in lines) <= 24


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The README's example, installed as any third party would: a module and its entry points."""
    toml = re.search(r"```toml\n(.*?)\n```", README, re.DOTALL)
    assert toml
    groups = tomllib.loads(toml[1])["project"]["entry-points"]
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (tmp_path / "my_module.py").write_text(fenced("example: operator"), encoding="utf-8")
    installed = tmp_path / "my_package-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def benchx_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "benchx", *arguments, cwd=folder)


def test_the_operator_of_the_readme_is_listed_once_it_is_installed(plugin: Path) -> None:
    for kind in ("ops", "backends"):
        done = benchx_in(plugin, "list", kind)
        assert done.returncode == 0, done.stderr
        assert "softmax" in done.stdout


def test_a_plugin_that_cannot_be_imported_is_named_by_doctor_and_stops_no_command(
    plugin: Path,
) -> None:
    (plugin / "my_module.py").write_text("import no_such_module\n")
    listed = benchx_in(plugin, "list", "ops")
    assert listed.returncode == 0, listed.stderr
    assert "kda_prefill" in listed.stdout
    assert listed.stderr.count("warning: plugin 'softmax' (benchx.operators)") == 1
    report = json.loads(benchx_in(plugin, "doctor", "--json").stdout)
    assert [(one["package"], one["group"], one["name"]) for one in report["broken_plugins"]] == [
        ("my-package", "benchx.operators", "softmax"),
        ("my-package", "benchx.backends", "softmax-torch"),
    ]
    assert "No module named 'no_such_module'" in report["broken_plugins"][0]["error"]
    assert "of package my-package can't be loaded" in benchx_in(plugin, "doctor").stdout


def test_doctor_loads_the_plugins_of_every_group(plugin: Path) -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "benchx").rglob("*.py")]
    asked = re.compile(r'(?:group=|load_plugins\()"(benchx\.\w+)"')
    groups = {group for source in sources for group in asked.findall(source)}
    assert {"benchx.operators", "benchx.backends", "benchx.engines", "benchx.sinks"} < groups
    entries = plugin / "my_package-1.dist-info" / "entry_points.txt"
    entries.write_text("".join(f"[{group}]\nbad = no_such_module:X\n" for group in groups))
    report = json.loads(benchx_in(plugin, "doctor", "--json").stdout)
    assert {one["group"] for one in report["broken_plugins"]} == groups


@pytest.mark.slow
def test_the_operator_of_the_readme_runs_once_it_is_installed(plugin: Path) -> None:
    (plugin / "softmax.yaml").write_text(
        "schema: 1\nname: softmax\nkind: kernel\nop: softmax\nbackends: [torch]\n"
        "axes: {rows: [8, 16], columns: [64]}\n"
        "measure: {launches: 1, max_time: 0.1s, min_samples: 1}\n"
    )
    done = benchx_in(plugin, "run", "softmax.yaml", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "softmax: device time" in done.stdout.lower()
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[2] for row in rows if row[1:2] == ["torch"]] == ["ok", "ok"]
