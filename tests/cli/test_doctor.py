"""`benchx doctor` says what the machine is, what works on it and what would help."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchx.cli.adapters import Adapter, adapters
from benchx.cli.backends import Finding, refusal_of
from benchx.cli.doctor import backend_rows, remarks
from benchx.core.axes import AxisSpec, Params
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.ops.base import Unavailable
from benchx.ops.vocabulary import kernel_words

Command = Callable[..., Any]

CPU = Device(
    vendor="cpu", torch_type="cpu", name="a CPU", index=0, count=1, arch="x86_64",
    memory_bytes=2**34, l2_bytes=2**25, compute_units=8,
)  # fmt: skip
GPU = Device(
    vendor="nvidia", torch_type="cuda", name="a GPU", index=0, count=1, arch="sm_90",
    memory_bytes=2**37, l2_bytes=2**26, compute_units=132,
)  # fmt: skip
AXES = {
    "heads": AxisSpec(type="int", doc="heads"),
    "seqlens": AxisSpec(type="lengths", doc="lengths"),
    "gate": AxisSpec(type="str", doc="gate", default="bounded", choices=("bounded", "log")),
}


def test_the_report_names_machine_torch_and_every_backend(benchx: Command) -> None:
    text, data = benchx("doctor"), benchx("doctor", "--json")
    assert (text.code, data.code) == (0, 0)
    report = json.loads(data.out)
    asked = {(entry["backend"], entry["op"]) for entry in report["backends"]}
    words = kernel_words()
    assert asked == {(backend, op) for op in words for backend in words[op].backends}
    assert report["environment"]["torch"] in text.out
    assert report["devices"][-1]["vendor"] == "cpu"
    assert report["devices"][-1]["name"] in text.out


def test_a_backend_that_works_has_a_version_and_one_that_does_not_has_a_reason(
    benchx: Command,
) -> None:
    for entry in json.loads(benchx("doctor", "--json").out)["backends"]:
        assert (entry["version"] is None) != (entry["reason"] is None), entry


def test_backends_with_the_same_answer_share_a_row() -> None:
    rows = backend_rows(
        [
            Finding(backend="x", op="a", version="x 1"),
            Finding(backend="x", op="b", version="x 1"),
            Finding(backend="x", op="c", reason="not installed", install="pip install x==1"),
        ]
    )
    assert [(row["backend"], row["works"], row["for"]) for row in rows] == [
        ("x", "yes", ["a", "b"]),
        ("x", "no", ["c"]),
    ]
    assert rows[1]["version, or why not"] == "not installed; install: pip install x==1"


def _backend(answer: Callable[[Params], Unavailable | None]) -> Any:  # noqa: ANN401
    return SimpleNamespace(name="x", unavailable=lambda params, device: answer(params))


OPERATOR: Any = SimpleNamespace(name="op", axes=AXES)
UNSUPPORTED = Unavailable(outcome=Outcome.UNSUPPORTED, reason="needs gate log")
SKIPPED = Unavailable(outcome=Outcome.SKIPPED, reason="not installed", install="pip install x")


def test_a_backend_that_lacks_only_the_default_combination_works() -> None:
    backend = _backend(lambda params: None if params["gate"] == "log" else UNSUPPORTED)
    assert refusal_of(OPERATOR, backend, GPU) is None


def test_a_backend_that_lacks_a_device_for_the_default_combination_only_works() -> None:
    backend = _backend(lambda params: None if params["gate"] == "log" else SKIPPED)
    assert refusal_of(OPERATOR, backend, GPU) is None


def test_a_missing_package_is_named_even_if_the_default_combination_is_unsupported() -> None:
    backend = _backend(lambda params: SKIPPED if params["gate"] == "log" else UNSUPPORTED)
    assert refusal_of(OPERATOR, backend, GPU) is SKIPPED


def test_a_backend_that_supports_nothing_says_so() -> None:
    assert refusal_of(OPERATOR, _backend(lambda params: UNSUPPORTED), GPU) is UNSUPPORTED


def test_every_axis_has_a_value_when_a_backend_is_asked() -> None:
    asked: list[Params] = []
    refusal_of(OPERATOR, _backend(asked.append), GPU)
    assert set(asked[0]) == set(AXES)


@pytest.mark.parametrize(
    ("devices", "vendors", "said"),
    [
        ((CPU,), [], "no GPU here"),
        ((CPU,), ["NVIDIA"], "1 GPUs on the bus (NVIDIA), but torch 2.0+cpu can use 0"),
        ((GPU, CPU), ["NVIDIA", "AMD"], "2 GPUs on the bus (AMD, NVIDIA)"),
        ((GPU, CPU), ["NVIDIA"], ""),
        ((GPU, CPU), [], ""),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_pointed_out(
    devices: tuple[Device, ...], vendors: list[str], said: str
) -> None:
    notes = remarks(devices, vendors, {"torch": "2.0+cpu"})
    assert said in " ".join(notes)
    assert bool(notes) == bool(said)


def _pci(folder: Path, **devices: Mapping[str, str]) -> Path:
    for name, files in devices.items():
        (folder / name).mkdir()
        for file, content in files.items():
            (folder / name / file).write_text(content + "\n")
    return folder


def test_gpus_of_three_vendors_are_seen_on_the_bus_and_nothing_else(tmp_path: Path) -> None:
    bus = _pci(
        tmp_path,
        a={"vendor": "0x10de", "class": "0x030200", "device": "0x2335"},
        b={"vendor": "0x1002", "class": "0x120000", "device": "0x74a1"},
        c={"vendor": "0x8086", "class": "0x030000", "device": "0x56a0"},
        d={"vendor": "0x8086", "class": "0x020000", "device": "0x1563"},
        e={"vendor": "0x1a03", "class": "0x030000", "device": "0x2000"},
        f={"vendor": "0x10de"},
    )
    assert adapters(bus) == (
        Adapter("NVIDIA", "10de:2335"),
        Adapter("AMD", "1002:74a1"),
        Adapter("Intel", "8086:56a0"),
    )


def test_a_system_without_a_pci_bus_has_no_adapters(tmp_path: Path) -> None:
    assert adapters(tmp_path / "nowhere") == ()
