"""Telemetry is summarised honestly and never fails a measurement."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from benchx.core.device import Device
from benchx.measure.telemetry import Telemetry, card_settings, summarise, telemetry_notes
from benchx.measure.telemetry_amd import AmdSmiSource, amd_reading
from benchx.measure.telemetry_cpu import PsutilSource
from benchx.measure.telemetry_nvidia import NvmlSource, card_id, nvml_reasons
from benchx.measure.telemetry_reading import Reading, TelemetryLost, pci_address


class Scripted:
    """A source that yields its readings, then is lost."""

    name, interval_s = "scripted", 0.0

    def __init__(self, *readings: Reading) -> None:
        self._left = list(readings)

    def begin(self) -> None:
        pass

    def read(self) -> Reading:
        if not self._left:
            raise TelemetryLost("the card fell off the bus")
        return self._left.pop(0)


def _summary(*readings: Reading) -> dict[str, object]:
    return summarise(readings, source="x", absent=None)


def test_a_series_is_summarised_by_quantity() -> None:
    found = _summary(
        Reading(sm_clock_mhz=1980, power_w=300, temperature_c=40, throttle=frozenset()),
        Reading(sm_clock_mhz=1700, power_w=700, temperature_c=60, throttle=frozenset()),
        Reading(sm_clock_mhz=1980, power_w=500, temperature_c=50, throttle=frozenset()),
    )
    assert (found["sm_clock_mhz_p50"], found["sm_clock_mhz_min"]) == (1980, 1700)
    assert (found["power_w_mean"], found["temperature_c_max"]) == (500, 60)
    assert (found["throttle_reasons"], found["hw_throttled"]) == ([], False)


@pytest.mark.parametrize(
    "reason", ["hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"]
)
def test_one_reading_under_hardware_slowdown_marks_the_series(reason: str) -> None:
    found = _summary(Reading(throttle=frozenset()), Reading(throttle=frozenset({reason})))
    assert found["hw_throttled"] is True
    assert found["hw_throttled_share"] == 0.5


def test_a_power_cap_is_a_note_and_not_a_mark() -> None:
    found = _summary(Reading(throttle=frozenset({"sw_power_cap"})))
    assert found["hw_throttled"] is False
    assert telemetry_notes(found) == ("sw_power_cap",)


def test_what_was_not_read_is_none() -> None:
    found = _summary(Reading())
    told = {key for key, value in found.items() if value is not None}
    assert told == {"source", "readings"}
    assert telemetry_notes(found) == ()


def test_a_source_lost_on_the_way_keeps_what_was_read_and_says_so(cpu: Device) -> None:
    telemetry = Telemetry(cpu, source=Scripted(Reading(power_w=5.0)))
    telemetry.start()
    telemetry._thread.join(timeout=10)  # ends by itself when the source is lost
    found = telemetry.stop()
    assert (found["source"], found["power_w_mean"]) == ("scripted", 5.0)
    assert found["absent"] == "the card fell off the bus"


def test_a_missing_library_is_told_and_nothing_raises(
    gpu_like: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    telemetry = Telemetry(gpu_like)
    telemetry.start()
    found = telemetry.stop()
    assert (found["source"], found["readings"]) == ("none", 0)
    assert "nvidia-ml-py" in found["absent"]


def test_stop_without_start_is_an_empty_series(cpu: Device) -> None:
    assert Telemetry(cpu, source=Scripted()).stop()["readings"] == 0


def test_a_second_series_does_not_hold_readings_of_the_first(cpu: Device) -> None:
    telemetry = Telemetry(cpu, source=Scripted(Reading(power_w=1.0)))
    telemetry.start()
    telemetry.stop()
    telemetry.start()
    found = telemetry.stop()
    assert found["power_w_mean"] is None
    assert "fell off" in found["absent"]


def test_the_cpu_tells_how_busy_the_machine_is(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PsutilSource, "interval_s", 0.1)
    telemetry = Telemetry(cpu)
    for _ in range(2):  # threads may bear the same number one after the other
        telemetry.start()
        until_s = time.monotonic() + 60
        while len(telemetry._readings) < 3 and time.monotonic() < until_s:
            sum(range(1000))
        found = telemetry.stop()
        assert found["source"] == "psutil"
        assert 0 < found["cpu_busy_percent_mean"] <= 100
        assert telemetry._readings[0].cpu_busy_percent is None


def test_a_series_with_one_reading_does_not_tell_how_busy_the_machine_was(cpu: Device) -> None:
    """What passed between the mark and the first reading is less than a tick of the kernel."""
    source = PsutilSource(cpu)
    source.begin()
    assert _summary(source.read())["cpu_busy_percent_mean"] is None
    source.read()
    source.begin()
    assert source.read().cpu_busy_percent is None


class Broken(Scripted):
    def read(self) -> Reading:
        raise RuntimeError("a library that was never tried")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_nobody_foresaw_cuts_the_series_short_and_is_told(cpu: Device) -> None:
    telemetry = Telemetry(cpu, source=Broken())
    telemetry.start()
    found = telemetry.stop()
    assert "stopped with an error" in found["absent"]


class FakeAmdSmi(ModuleType):
    """AMD's library as far as it is used: two cards, messages over several lines."""

    class AmdSmiException(Exception):
        pass

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__("amdsmi")
        self.broken = broken

    def amdsmi_init(self) -> None:
        if self.broken:
            raise self.AmdSmiException("Error code:\n\t34 | AMDSMI_STATUS_DRIVER_NOT_LOADED")

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["first", "second"]

    def amdsmi_get_gpu_device_bdf(self, handle: str) -> str:
        return {"first": "0000:0C:00.0", "second": "0000:22:00.0"}[handle]

    def amdsmi_get_gpu_metrics_info(self, handle: str) -> dict[str, object]:
        return {"current_socket_power": {"first": 100, "second": 200}[handle]}


@pytest.fixture
def amd(gpu_like: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The second of two AMD cards, with or without its library."""
    monkeypatch.setattr("benchx.measure.telemetry_amd.pci_of", lambda device: "0000:22:00.0")
    return replace(gpu_like, vendor="amd", arch="gfx942", index=1, count=2)


def test_of_several_amd_cards_the_one_at_torch_s_address_is_read(
    amd: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdSmi())
    telemetry = Telemetry(amd)
    telemetry.start()
    found = telemetry.stop()
    assert (found["source"], found["power_w_mean"]) == ("amdsmi", 200)
    assert found["throttle_reasons"] is None


class FakeAmdSmiOfMi300(FakeAmdSmi):
    """A library that tells violations, until a card refuses."""

    def __init__(self, violations: dict[str, object] | None) -> None:
        super().__init__()
        self.violations, self.asked = violations, 0

    def amdsmi_get_violation_status(self, handle: str) -> dict[str, object]:
        self.asked += 1
        if self.violations is None:
            raise self.AmdSmiException("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED")
        return self.violations


@pytest.mark.parametrize(
    ("violations", "reasons", "hw_throttled"),
    [
        ({"active_prochot_thrm": True}, ["hw_slowdown"], True),
        ({"active_vr_thrm": True, "active_hbm_thrm": "N/A"}, ["hw_thermal_slowdown"], True),
        ({"active_socket_thrm": True, "active_ppt_pwr": True},
         ["hw_thermal_slowdown", "sw_power_cap"], True),
        ({"active_ppt_pwr": True, "acc_prochot_thrm": 7}, ["sw_power_cap"], False),
        ({"active_prochot_thrm": False, "active_ppt_pwr": False}, [], False),
        ({"active_prochot_thrm": "N/A"}, None, None),
    ],
)  # fmt: skip
def test_violations_of_an_amd_card_are_reasons_for_lowered_clocks(
    amd: Device,
    monkeypatch: pytest.MonkeyPatch,
    violations: dict[str, object],
    reasons: list[str] | None,
    hw_throttled: bool | None,
) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdSmiOfMi300(violations))
    telemetry = Telemetry(amd)
    telemetry.start()
    found = telemetry.stop()
    assert (found["throttle_reasons"], found["hw_throttled"]) == (reasons, hw_throttled)


def test_an_amd_card_that_tells_no_violations_is_asked_once(
    amd: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = FakeAmdSmiOfMi300(None)
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    source = AmdSmiSource(amd)
    assert [source.read().throttle for _ in range(3)] == [None] * 3
    assert library.asked == 1


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0, set()),
        (1 << 0, {"sw_power_cap"}),
        (1 << 16, {"current_limit"}),
        (1 << 34 | 1 << 1, {"sw_thermal_slowdown", "sw_power_cap"}),
        (1 << 47, {"hw_slowdown"}),
        ("N/A", None),
    ],
)
def test_the_status_of_an_earlier_amd_card_is_read_by_its_groups_of_bits(
    bits: object, reasons: set[str] | None
) -> None:
    found = amd_reading({"indep_throttle_status": bits}).throttle
    assert found == reasons


def test_an_amd_driver_that_is_not_loaded_is_told_in_one_line(
    amd: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdSmi(broken=True))
    absent = Telemetry(amd).stop()["absent"]
    assert absent == "amdsmi: Error code: 34 | AMDSMI_STATUS_DRIVER_NOT_LOADED"


@pytest.mark.parametrize("raised", ["KeyError('libamd_smi.so')", "AttributeError('symbol')"])
def test_an_amd_library_that_does_not_fit_its_python_half_costs_only_telemetry(
    amd: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: str
) -> None:
    """An older library lacks functions; ctypes then raises AttributeError."""
    (tmp_path / "amdsmi.py").write_text(f"raise {raised}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    found = Telemetry(amd).stop()
    assert found["source"] == "none"
    assert "amdsmi can't be imported" in found["absent"]


def test_nvml_s_bits_are_named_and_idle_is_no_reason() -> None:
    assert nvml_reasons(0x1) == frozenset()
    assert nvml_reasons(0x4 | 0x40) == {"sw_power_cap", "hw_thermal_slowdown"}
    assert nvml_reasons(0x1000) == {"unknown_0x1000"}


def test_amd_metrics_that_are_not_available_become_none() -> None:
    reading = amd_reading(
        {
            "current_gfxclks": [2100, 2050, "N/A"],
            "current_socket_power": "N/A",
            "average_socket_power": 650,
            "temperature_hotspot": "N/A",
        }
    )
    assert (reading.sm_clock_mhz, reading.power_w) == (2075, 650)
    assert (reading.temperature_c, reading.throttle) == (None, None)


def test_pci_addresses_are_written_as_the_management_libraries_do() -> None:
    assert pci_address(0, 0x1B, 0) == "0000:1b:00.0"


class NvmlError(Exception):
    """What a question to NVML raises."""


def _refuses(*_: object) -> None:
    raise NvmlError("not supported")


def nvml(**answers: object) -> SimpleNamespace:
    """A library that gives these answers and refuses other questions about a card's settings."""
    questions = (
        "EnforcedPowerLimit", "PowerManagementDefaultLimit", "EccMode", "MigMode", "UUID",
        "ApplicationsClock", "MaxClockInfo",
    )  # fmt: skip
    found: dict[str, object] = {f"nvmlDeviceGet{name}": _refuses for name in questions}
    found |= {f"nvmlDeviceGet{name}": answer for name, answer in answers.items()}
    clocks = {"NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2}
    return SimpleNamespace(**found, **clocks, nvmlInit=lambda: None, NVMLError=NvmlError)


@pytest.fixture
def nvidia(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setattr(NvmlSource, "_find", lambda *_: "card")
    return replace(cpu, vendor="nvidia")


def test_a_card_tells_its_limits_clocks_and_modes_and_no_uuid(
    nvidia: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = nvml(
        EnforcedPowerLimit=lambda _: 500_000,
        PowerManagementDefaultLimit=lambda _: 700_000,
        EccMode=lambda _: [1, 1],
        MigMode=lambda _: [0, 1],
        UUID=lambda _: "GPU-5f0d71c1",
        ApplicationsClock=lambda _, clock: {1: 1980, 2: 3201}[clock],
        MaxClockInfo=lambda _, clock: {1: 1985}[clock],
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert card_settings(nvidia) == {
        "id": card_id("GPU-5f0d71c1"),
        "power_limit_w": 500.0,
        "power_limit_default_w": 700.0,
        "sm_clock_application_mhz": 1980,
        "memory_clock_application_mhz": 3201,
        "sm_clock_max_mhz": 1985,
        "ecc": True,
        "mig": False,
    }
    assert card_id(b"GPU-5f0d71c1") == card_id("GPU-5f0d71c1") != card_id("GPU-5f0d71c2")


def test_what_a_card_does_not_tell_is_none(nvidia: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    library = nvml(EnforcedPowerLimit=lambda _: 500_000)
    del library.nvmlDeviceGetApplicationsClock  # a version without it
    monkeypatch.setitem(sys.modules, "pynvml", library)
    told = {name: value for name, value in card_settings(nvidia).items() if value is not None}
    assert told == {"power_limit_w": 500.0}


def test_a_processor_and_a_card_without_its_library_have_no_settings(
    cpu: Device, nvidia: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert card_settings(cpu) == card_settings(nvidia) == {}


def test_readings_belong_to_what_ran_when_they_were_taken(cpu: Device) -> None:
    """Of too few of its own, a summary is that of all, and says so."""
    telemetry = Telemetry(cpu, source=Scripted())
    hot = Reading(throttle=frozenset({"hw_slowdown"}))
    telemetry._readings = [hot] * 10 + [Reading(throttle=frozenset())] * 9
    telemetry._owners = ["a"] * 10 + ["b"] * 9
    assert (telemetry.of("a")["hw_throttled_share"], telemetry.of("a")["readings"]) == (1.0, 10)
    assert telemetry.of("a")["readings_of"] == "own"
    assert telemetry.of("b")["hw_throttled_share"] == pytest.approx(10 / 19)
    assert telemetry.of("b")["readings_of"] == "all"
