"""What is recorded of a machine, and what must never be."""

from __future__ import annotations

import getpass
import json
import platform
import subprocess
from pathlib import Path

import torch

from benchx.core.device import Device
from benchx.measure.control import ControlKernel
from benchx.measure.environment import git_state, package_version, snapshot
from benchx.measure.memory import peak_extra_bytes


def test_the_snapshot_is_plain_data_with_the_versions_that_matter() -> None:
    found = json.loads(json.dumps(snapshot()))
    assert found["torch"] == torch.__version__
    assert found["python"] == platform.python_version()
    assert {"cuda", "hip", "driver", "triton", "numpy", "benchx", "git_commit"} <= set(found)


def test_the_snapshot_names_no_host_no_user_and_no_path() -> None:
    values = [str(value) for value in snapshot().values()]
    assert platform.node() not in values
    assert getpass.getuser() not in values
    assert str(Path.home()) not in " ".join(values)
    assert not any(str(Path.cwd()) in value for value in values)


def test_an_absent_package_has_no_version() -> None:
    assert package_version("no-such-package-anywhere") is None


def test_a_folder_without_git_has_no_commit(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, None)


def test_a_checkout_tells_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "-qm", "One")
    assert git_state(tmp_path) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "file").write_text("2")
    assert git_state(tmp_path)[1] is True


def test_peak_memory_is_not_measured_on_a_cpu(cpu: Device) -> None:
    assert peak_extra_bytes(dict, cpu) is None


def test_the_control_kernel_times_both_its_halves(cpu: Device) -> None:
    control = ControlKernel(cpu)
    times = control.times_ms()
    assert times.copy_ms > 0
    assert times.product_ms > 0
