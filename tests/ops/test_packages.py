"""Third-party packages are found without importing them, and named by version and hash."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.ops import packages
from benchx.ops.packages import Package, unsupported

H200 = Device(
    vendor="nvidia", torch_type="cuda", name="NVIDIA H200", index=0, count=1, arch="sm_90",
    memory_bytes=150 << 30, l2_bytes=60 << 20, compute_units=132,
)  # fmt: skip
CPU = replace(H200, vendor="cpu", torch_type="cpu", name="a processor", arch="x86_64")
TOY = Package(
    module="toy_kernels",
    distribution="toy-core",
    tested="1.2.3",
    minimum="1.2",
    archs=("sm_90", "sm_100"),
    wheels="CPython 3.12",
    hashed_files="toy_kernels/*.so",
)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`toy-core` 1.2.3 on the path, as pip would leave it; returns its folder."""
    folder = tmp_path / "toy_kernels"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "a.so").write_bytes(b"first")
    (folder / "b.so").write_bytes(b"second")
    _metadata(tmp_path, version="1.2.3")
    monkeypatch.syspath_prepend(tmp_path)
    packages._provider.cache_clear()
    return tmp_path


def _metadata(folder: Path, *, version: str) -> None:
    info = folder / "toy_core-0.dist-info"
    info.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: toy-core\nVersion: {version}\n"
    (info / "METADATA").write_text(text)
    (info / "RECORD").write_text("toy_kernels/b.so,,\ntoy_kernels/a.so,,\ntoy_kernels/x.py,,\n")


@pytest.mark.usefixtures("install")
def test_an_installed_package_is_there_without_being_imported() -> None:
    assert TOY.absent(H200) is None
    assert TOY.provenance()["version"] == "1.2.3"
    assert "toy_kernels" not in sys.modules


@pytest.mark.usefixtures("install")
def test_the_hash_covers_the_matching_files_in_order_of_path() -> None:
    assert TOY.provenance()["file_sha256"] == hashlib.sha256(b"firstsecond").hexdigest()


def test_another_build_has_another_hash(install: Path) -> None:
    before = TOY.provenance()["file_sha256"]
    (install / "toy_kernels" / "a.so").write_bytes(b"other")
    assert TOY.provenance()["file_sha256"] != before


@pytest.mark.usefixtures("install")
def test_no_matching_file_gives_no_hash() -> None:
    assert replace(TOY, hashed_files="*.cubin").provenance()["file_sha256"] is None


@pytest.mark.usefixtures("install")
def test_a_fork_under_another_name_is_found_by_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"toy_kernels": ["toy-core"]}
    monkeypatch.setattr(packages, "distributions_of_modules", lambda: names)
    fork = replace(TOY, distribution="toy-of-somebody-else")
    assert fork.provenance()["package"] == "toy-core"


def test_an_older_version_than_the_adapter_knows_is_skipped(install: Path) -> None:
    _metadata(install, version="1.1.9")
    found = TOY.absent(H200)
    assert found is not None
    assert found.reason == "toy-core 1.1.9 is installed; this adapter needs 1.2 or later"
    assert found.install == "pip install toy-core==1.2.3"


def test_a_later_patch_and_a_post_release_are_new_enough(install: Path) -> None:
    for version in ("1.2", "1.2.0.post1", "1.10"):
        _metadata(install, version=version)
        packages._provider.cache_clear()
        assert TOY.absent(H200) is None


def test_a_missing_package_is_skipped_with_the_command_that_installs_it() -> None:
    found = replace(TOY, module="toy_kernels_missing").absent(H200)
    assert found is not None
    assert found.outcome is Outcome.SKIPPED
    assert found.reason == "toy-core is not installed (wheels: CPython 3.12)"
    assert str(found).endswith("; install: pip install toy-core==1.2.3")


def test_a_missing_package_has_no_version() -> None:
    absent = replace(TOY, module="toy_kernels_missing").provenance()
    assert absent == {"package": "toy-core", "version": None, "file_sha256": None}


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (CPU, "toy-core needs a GPU; this is a processor"),
        (
            replace(H200, arch="sm_80"),
            "toy-core has kernels for sm_90, sm_100; this GPU is sm_80",
        ),
    ],
)
def test_a_missing_gpu_is_named_before_a_missing_package(device: Device, reason: str) -> None:
    found = replace(TOY, module="toy_kernels_missing").absent(device)
    assert found is not None
    assert (found.outcome, found.reason) == (Outcome.SKIPPED, reason)
    assert found.install == "pip install toy-core==1.2.3"


@pytest.mark.usefixtures("install")
def test_an_installed_package_without_its_gpu_suggests_no_command() -> None:
    found = TOY.absent(CPU)
    assert found is not None
    assert found.install is None


@pytest.mark.usefixtures("install")
def test_a_package_without_a_list_of_gpus_runs_on_any() -> None:
    amd = replace(H200, vendor="amd", arch="gfx942")
    assert replace(TOY, archs=()).absent(amd) is None


def test_the_first_broken_limit_is_the_reason() -> None:
    found = unsupported((True, "holds"), (False, "first"), (False, "second"))
    assert found is not None
    assert (found.outcome, found.reason) == (Outcome.UNSUPPORTED, "first")


def test_no_broken_limit_means_supported() -> None:
    assert unsupported((True, "holds")) is None


def test_the_tested_versions_are_those_of_the_constraints() -> None:
    text = (Path(__file__).parents[2] / "constraints.txt").read_text()
    pins = dict(line.split("==") for line in text.split() if "==" in line)
    for backend in ("fla", "flashkda", "cudnn", "flashmla", "flashinfer"):
        package = import_module(f"benchx.ops.backends_{backend}").PACKAGE
        assert pins[package.distribution] == package.tested
