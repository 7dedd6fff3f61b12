"""What is recorded of a machine, and what must never be."""

from __future__ import annotations

import getpass
import json
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import benchx
from benchx.core.device import Device
from benchx.core.method import METHOD_VERSIONS
from benchx.core.sources import digests
from benchx.measure.control import ControlKernel
from benchx.measure.environment import (
    WITHHELD,
    driver_version,
    git_state,
    package_version,
    snapshot,
    variables,
)
from benchx.measure.memory import peak_extra_bytes


def test_the_snapshot_is_plain_data_with_the_versions_that_matter() -> None:
    found = json.loads(json.dumps(snapshot()))
    assert found["torch"] == torch.__version__
    assert found["python"] == platform.python_version()
    assert {"cuda", "hip", "driver", "triton", "numpy", "git_commit"} <= set(found)


def test_the_snapshot_says_which_code_and_which_method_measured() -> None:
    found = snapshot()
    assert found["benchx"] == benchx.__version__
    assert found["code"] == digests()
    assert found["method"] == METHOD_VERSIONS
    assert set(METHOD_VERSIONS) == {"kernel", "model", "serving"}


def test_the_snapshot_names_no_host_no_user_and_no_path() -> None:
    values = [str(value) for value in snapshot().values()]
    assert platform.node() not in values
    assert getpass.getuser() not in values
    assert str(Path.home()) not in " ".join(values)
    assert not any(str(Path.cwd()) in value for value in values)


def test_an_absent_package_has_no_version() -> None:
    assert package_version("no-such-package-anywhere") is None


@pytest.mark.parametrize(
    ("hip", "expected"), [("7.0.1", "6.14.14"), (None, "580.65.06")], ids=["rocm", "cuda"]
)
def test_of_two_drivers_the_one_of_torch_s_gpus_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hip: str | None, expected: str
) -> None:
    """An AMD processor has graphics of its own beside an NVIDIA card."""
    (tmp_path / "version").write_text("6.14.14\n")
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=lambda: b"580.65.06",
        NVMLError=RuntimeError,
    )
    monkeypatch.setattr("benchx.measure.environment._AMD_VERSION", tmp_path / "version")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert driver_version() == expected
    (tmp_path / "version").unlink()
    assert driver_version() == (expected if hip is None else None)


def test_triton_is_found_under_each_name_that_its_wheels_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {"triton-rocm": "3.6.0"}
    monkeypatch.setattr("benchx.measure.environment.package_version", found.get)
    assert snapshot()["triton"] == "3.6.0"
    found.clear()
    assert snapshot()["triton"] is None


def test_variables_that_change_what_runs_are_recorded_and_others_are_not() -> None:
    environ = {
        "NCCL_P2P_DISABLE": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "VLLM_USE_V1": "0",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HOME": "/srv/somebody",
        "PATH": "/usr/bin",
    }
    assert variables(environ) == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_P2P_DISABLE": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "VLLM_USE_V1": "0",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_API_KEY", "short"),
        ("SGLANG_ADMIN_TOKEN", "1"),
        ("VLLM_SOMETHING", "0123456789abcdef0123456789"),
        ("TRITON_CACHE_DIR", "/srv/somebody/.triton"),
        ("VLLM_HOST_IP", "box"),
        ("NCCL_SOMEWHERE", "10.0.0.7:5000"),
        ("NCCL_SOCKET_ADDR", "box"),
        ("CUDA_VISIBLE_DEVICES", "GPU-5f0d71c1-aaaa"),
        ("VLLM_SENTENCE", "Somebody's own words"),
    ],
)
def test_of_a_secret_a_place_an_address_or_a_person_only_the_name_is_recorded(
    name: str, value: str
) -> None:
    assert variables({name: value}) == {name: WITHHELD}


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
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "run.json").touch()
    assert git_state(tmp_path)[1] is False
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "new.py").touch()
    assert git_state(tmp_path)[1] is True
    (tmp_path / "kernels" / "new.py").unlink()
    (tmp_path / "file").write_text("2")
    assert git_state(tmp_path)[1] is True


def test_peak_memory_is_not_measured_on_a_cpu(cpu: Device) -> None:
    assert peak_extra_bytes(dict, cpu) is None


def test_the_control_kernel_times_both_its_halves(cpu: Device) -> None:
    control = ControlKernel(cpu)
    times = control.times_ms()
    assert times.copy_ms > 0
    assert times.product_ms > 0
