"""Ceilings are measured once per machine and software, and a bad cache costs only time."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchx.core.device import Device
from benchx.measure import ceilings as module
from benchx.measure.ceilings import (
    Ceilings,
    ceilings,
    device_key,
    higher_of,
    measure_ceilings,
    user_cache_dir,
)
from benchx.measure.control import WorkSize

FOUND = Ceilings(
    copy_gb_s=10.0,
    matmul_tflop_s=0.1,
    matmul_dtype="float32",
    measured_at="2026-01-01T00:00:00+00:00",
    device_name="Test CPU",
)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """Replaces the measurement; holds the devices it was asked for."""
    asked: list[Device] = []

    def measure(device: Device, size: WorkSize) -> Ceilings:
        asked.append(device)
        return FOUND

    monkeypatch.setattr(module, "measure_ceilings", measure)
    return asked


def test_a_second_look_comes_from_the_cache(
    measured: list[Device], cpu: Device, tmp_path: Path
) -> None:
    assert ceilings(cpu, tmp_path) == ceilings(cpu, tmp_path) == FOUND
    assert len(measured) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.parametrize(
    ("known", "expected"), [((9.0, 0.2), (10.0, 0.2)), ((11.0, 0.2), (11.0, 0.2))]
)
def test_measuring_again_raises_each_roof_and_lowers_none(
    measured: list[Device],
    cpu: Device,
    tmp_path: Path,
    known: tuple[float, float],
    expected: tuple[float, float],
) -> None:
    ceilings(cpu, tmp_path)
    path = next(tmp_path.iterdir())
    old = {"copy_gb_s": known[0], "matmul_tflop_s": known[1]}
    path.write_text(json.dumps(json.loads(path.read_text()) | old))
    found = ceilings(cpu, tmp_path, again=True)
    assert (found.copy_gb_s, found.matmul_tflop_s) == expected
    assert ceilings(cpu, tmp_path) == found
    assert len(measured) == 2


def test_the_date_of_ceilings_is_that_of_the_last_rise() -> None:
    later = replace(FOUND, measured_at="2026-02-02T00:00:00+00:00")
    assert higher_of(FOUND, replace(later, copy_gb_s=1.0)) is FOUND
    assert higher_of(FOUND, replace(later, copy_gb_s=11.0)).measured_at == later.measured_at


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"copy_gb_s": 1}', b"\xff\xfe", "nan", "zero", "text"],
)
def test_a_corrupt_cache_file_is_measured_anew(
    measured: list[Device], cpu: Device, tmp_path: Path, content: str | bytes
) -> None:
    ceilings(cpu, tmp_path)
    path = next(tmp_path.iterdir())
    bad = {"nan": float("nan"), "zero": 0.0, "text": "10"}
    if content in bad:
        content = json.dumps(json.loads(path.read_text()) | {"copy_gb_s": bad[content]})
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert ceilings(cpu, tmp_path) == FOUND
    assert len(measured) == 2
    assert json.loads(path.read_text())["copy_gb_s"] == 10.0


def test_a_folder_that_cannot_be_written_costs_only_the_time(
    measured: list[Device], cpu: Device, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert ceilings(cpu, blocked) == FOUND


def test_a_full_home_keeps_no_half_written_file(
    measured: list[Device], cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert ceilings(cpu, tmp_path) == FOUND
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", [{"name": "Other"}, {"arch": "arm64"}, {"compute_units": 64}])
def test_another_machine_has_another_key(cpu: Device, change: dict[str, object]) -> None:
    assert device_key(replace(cpu, **change)) != device_key(cpu)


def test_the_ordinal_of_a_device_is_not_part_of_its_key(cpu: Device) -> None:
    assert device_key(replace(cpu, index=3, count=8)) == device_key(cpu)


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("BENCHX_CACHE_DIR", raising=False)
    assert user_cache_dir() == tmp_path / "benchx"
    monkeypatch.setenv("BENCHX_CACHE_DIR", str(tmp_path / "own"))
    assert user_cache_dir() == tmp_path / "own"


def test_rates_follow_from_bytes_both_ways_and_two_flops_per_product(
    monkeypatch: pytest.MonkeyPatch, cpu: Device
) -> None:
    monkeypatch.setattr(module, "_median_ms", lambda device, timer, call: 2.0)
    found = measure_ceilings(cpu, WorkSize(2**20, 64, "float32"))
    assert found.copy_gb_s == pytest.approx(2 * 2**20 / 2e-3 / 1e9)
    assert found.matmul_tflop_s == pytest.approx(2 * 64**3 / 2e-3 / 1e12)


def test_a_real_measurement_yields_positive_rates(cpu: Device) -> None:
    found = measure_ceilings(cpu, WorkSize(2**20, 64, "float32"))
    assert found.copy_gb_s > 0
    assert found.matmul_tflop_s > 0
