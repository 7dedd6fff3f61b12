"""Which code runs, and that another process runs the same."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchx
from benchx.core.errors import UsageError
from benchx.core.sources import NOT_MEASURING, check_one_checkout, digest, digests, folders

PACKAGE = Path(benchx.__file__).parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "part").mkdir(parents=True)
    (folder / "__init__.py").write_text("A = 1\n")
    (folder / "part" / "code.py").write_text("B = 2\n")
    (folder / "part" / "table.yaml").write_text("c: 3\n")
    return folder


def test_a_process_started_from_a_checkout_starts_others_from_the_same_checkout(
    tmp_path: Path,
) -> None:
    """Where another benchx is installed, `python -m` would run that one."""
    copy = tmp_path / "benchx"
    copy.mkdir()
    shutil.copy(PACKAGE / "__init__.py", copy)
    shutil.copytree(PACKAGE / "core", copy / "core")
    (copy / "core" / "told.py").write_text(
        "import sys, benchx\nprint(__name__, benchx.__file__, *sys.argv)\n"
    )
    parent = (
        f"import subprocess, sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from benchx.core.sources import python_command\n"
        "subprocess.run(python_command('benchx.core.told', 'x', '--y'), check=True)\n"
    )
    command = [sys.executable, "-P", "-c", parent]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    name, found, _, *arguments = done.stdout.split()
    assert (name, arguments) == ("__main__", ["x", "--y"])
    assert Path(found) == copy / "__init__.py"


def test_a_copy_has_the_digest_of_its_original(tree: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tree, tmp_path / "copy")
    assert digest(copy) == digest(tree)


@pytest.mark.parametrize("name", ["__init__.py", "part/code.py", "part/table.yaml", "part/new.py"])
def test_a_change_of_any_source_changes_the_digest(tree: Path, name: str) -> None:
    before = digest(tree)
    (tree / name).write_text("D = 4\n")
    assert digest(tree) != before


def test_a_moved_source_changes_the_digest(tree: Path) -> None:
    before = digest(tree)
    (tree / "part" / "code.py").rename(tree / "code.py")
    assert digest(tree) != before


def test_what_is_no_source_leaves_the_digest(tree: Path) -> None:
    before = digest(tree)
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "code.pyc").write_bytes(b"\0")
    (tree / "README.md").write_text("words")
    (tree / "reporting").mkdir()
    (tree / "reporting" / "chart.py").write_text("E = 5\n")
    assert digest(tree) == before


def test_what_measures_imports_nothing_of_what_has_no_share_in_it() -> None:
    """Else a change there would change figures, and no digest."""
    outside = re.compile(rf"^\s*(from|import) benchx\.({'|'.join(NOT_MEASURING)})\b", re.MULTILINE)
    inside = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in (*NOT_MEASURING, "__main__.py")
    ]
    assert len(inside) > 100
    assert [path for path in inside if outside.search(path.read_text(encoding="utf-8"))] == []


def test_this_process_knows_its_own_sources() -> None:
    assert folders()["benchx"] == PACKAGE.resolve()
    assert set(digests()) == {"benchx", "benchx_kernels"}
    assert digests()["benchx"] == digest(PACKAGE)


def test_kernels_of_another_checkout_are_refused_with_both_places(tmp_path: Path) -> None:
    for name in ("benchx", "kernels"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "pyproject.toml").touch()
    own = {"benchx": tmp_path / "benchx", "benchx_kernels": tmp_path / "kernels"}
    check_one_checkout(own)
    with pytest.raises(UsageError, match=r"benchx, but its kernels from .*elsewhere.*pip install"):
        check_one_checkout(own | {"benchx_kernels": Path("/elsewhere/kernels")})


def test_an_installed_benchx_has_its_kernels_beside_it(tmp_path: Path) -> None:
    check_one_checkout(
        {"benchx": tmp_path / "benchx", "benchx_kernels": tmp_path / "benchx_kernels"}
    )
