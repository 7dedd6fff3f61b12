"""Copies of cached blocks: every route that a CPU has, in every layout, against the blocks."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchx.core.axes import Params, Scalar
from benchx.core.device import Device
from benchx.core.outcome import Outcome
from benchx.measure import gpu as streams
from benchx.measure.correctness import judge
from benchx.measure.device import probe_device
from benchx.ops import kv_files
from benchx.ops.base import OPERATORS, backends_of
from benchx.ops.kv_copy import KvCopy

CPU = torch.device("cpu")
HERE = replace(probe_device(), torch_type="cpu", vendor="cpu")
ROUTES = ["memory", "file_read", "file_write", "loopback"]
DIRECT = ["file_read_direct", "file_write_direct"]
LAYOUTS = ["contiguous", "gather", "scatter"]


def params_of(**change: Scalar) -> Params:
    return {
        "route": "memory", "block_bytes": 8192, "total_bytes": 8 * 8192, "layout": "contiguous",
        "pinned": True, "folder": "", **change,
    }  # fmt: skip


def check(backend: str, params: Params) -> None:
    operator = KvCopy()
    inputs = operator.make_inputs(params, seed=0, device=CPU)
    truth, specs = operator.reference(inputs), operator.output_specs(inputs)
    call = backends_of("kv_copy").get(backend).prepare(inputs.clone())
    for _ in range(2):
        verdict = judge(call.run(), specs, truth, operator.max_rms_ratio)
        assert verdict.reason is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("route", ROUTES)
def test_blocks_arrive_where_the_layout_says(route: str, layout: str) -> None:
    check("blocks", params_of(route=route, layout=layout))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("route", DIRECT)
def test_direct_files_hold_the_same_blocks(route: str, layout: str, tmp_path: Path) -> None:
    folder = next(
        (f for f in (str(tmp_path), str(Path.cwd())) if not kv_files.direct_problem(f)), ""
    )
    if not folder:
        pytest.skip("no file system here has direct access")
    check("blocks", params_of(route=route, layout=layout, folder=folder))


@pytest.mark.parametrize("layout", ["gather", "scatter"])
def test_packed_blocks_arrive_in_the_same_places(layout: str) -> None:
    check("packed", params_of(layout=layout))


def test_places_are_random_and_equal_for_equal_seeds() -> None:
    params = params_of(layout="gather", block_bytes=4, total_bytes=400)
    one, two = (KvCopy().make_inputs(params, seed=1, device=CPU) for _ in range(2))
    assert torch.equal(one.order, two.order)
    assert not torch.equal(one.order, torch.arange(100))
    assert torch.equal(one.order.sort().values, torch.arange(100))


def test_a_wrong_order_is_found() -> None:
    operator = KvCopy()
    inputs = operator.make_inputs(params_of(layout="gather"), seed=0, device=CPU)
    truth = operator.reference(replace(inputs, layout="scatter"))
    call = backends_of("kv_copy").get("blocks").prepare(inputs)
    assert judge(call.run(), operator.output_specs(inputs), truth, 1e-12).reason


def test_no_file_is_left_behind(tmp_path: Path) -> None:
    inputs = KvCopy().make_inputs(
        params_of(route="file_write", folder=str(tmp_path)), seed=0, device=CPU
    )
    call = backends_of("kv_copy").get("blocks").prepare(inputs)
    call.run()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_closed_with_its_call() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        check("blocks", params_of(route="file_read"))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"block_bytes": 10}, "a multiple of 4"),
        ({"block_bytes": 512, "route": "file_read_direct"}, "a multiple of 4096"),
        ({"block_bytes": 12288}, "no whole number of blocks"),
    ],
)
def test_blocks_that_can_not_be_are_refused(change: dict[str, Scalar], told: str) -> None:
    assert told in str(KvCopy().problem(params_of(**change)))


@pytest.mark.parametrize("route", ["host_to_device", "both_ways", "device_to_device"])
def test_routes_of_a_device_are_skipped_without_one(route: str) -> None:
    refusal = backends_of("kv_copy").get("blocks").unavailable(params_of(route=route), HERE)
    assert refusal is not None
    assert refusal.outcome is Outcome.SKIPPED


def test_packing_what_is_in_order_is_unsupported() -> None:
    refusal = backends_of("kv_copy").get("packed").unavailable(params_of(), HERE)
    assert refusal is not None
    assert refusal.outcome is Outcome.UNSUPPORTED


def test_a_folder_without_direct_access_is_unsupported(tmp_path: Path) -> None:
    params = params_of(route="file_read_direct", folder=str(tmp_path / "nowhere"))
    refusal = backends_of("kv_copy").get("blocks").unavailable(params, HERE)
    assert refusal is not None
    assert refusal.outcome is Outcome.UNSUPPORTED


class _Stream:
    """A stream that notes what it is behind: what it waited for, and what those were behind."""

    def __init__(self, name: str) -> None:
        self.behind = {name}

    def wait_stream(self, other: _Stream) -> None:
        self.behind |= other.behind


def test_neither_direction_waits_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    main, sides = _Stream("caller"), [_Stream("there"), _Stream("back")]
    waiting = list(sides)
    monkeypatch.setattr(streams, "side_stream", lambda: waiting.pop(0))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    inputs = KvCopy().make_inputs(params_of(route="both_ways"), seed=0, device=CPU)
    call = backends_of("kv_copy").get("blocks").prepare(inputs)
    call.run()
    assert [side.behind for side in sides] == [{"there", "caller"}, {"back", "caller"}]
    assert main.behind == {"caller", "there", "back"}


@pytest.mark.parametrize(
    ("route", "layout", "safe"),
    [
        ("host_to_device", "gather", False),
        ("host_to_device", "scatter", True),
        ("device_to_host", "gather", True),
        ("device_to_host", "scatter", False),
        ("memory", "gather", False),
    ],
)
def test_a_graph_would_not_hold_what_the_host_packs(route: str, layout: str, safe: bool) -> None:
    inputs = KvCopy().make_inputs(params_of(route=route, layout=layout), seed=0, device=CPU)
    assert backends_of("kv_copy").get("packed").prepare(inputs).graph_safe is safe


def test_both_directions_are_counted() -> None:
    one, two = (KvCopy().work(params_of(route=r)).min_bytes for r in ("memory", "both_ways"))
    assert (one, two) == (8 * 8192, 2 * 8 * 8192)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("route", ["host_to_device", "device_to_host", "both_ways"])
@pytest.mark.parametrize("backend", ["blocks", "packed"])
def test_blocks_cross_to_the_device_and_back(backend: str, route: str, layout: str) -> None:
    params, device = params_of(route=route, layout=layout), probe_device()
    found = backends_of("kv_copy").get(backend)
    if found.unavailable(params, device) is not None:
        pytest.skip("not a combination of this backend")
    operator = OPERATORS.get("kv_copy")
    inputs = operator.make_inputs(params, seed=0, device=torch.device(device.torch_device))
    truth, specs = operator.reference(inputs), operator.output_specs(inputs)
    outputs = found.prepare(inputs.clone()).run()
    torch.cuda.synchronize()
    assert judge(outputs, specs, truth, operator.max_rms_ratio).reason is None


@pytest.mark.gpu
def test_the_host_scatters_blocks_only_when_they_have_arrived(gpu: Device) -> None:
    params = params_of(route="device_to_host", layout="scatter", total_bytes=2**26)
    operator = KvCopy()
    inputs = operator.make_inputs(params, seed=0, device=torch.device(gpu.torch_device))
    truth, specs = operator.reference(inputs), operator.output_specs(inputs)
    call = backends_of("kv_copy").get("packed").prepare(inputs)
    torch.cuda.synchronize()
    streams.spin(10_000_000)  # what is queued behind it begins some milliseconds later
    outputs = {name: tensor.clone() for name, tensor in call.run().items()}
    assert judge(outputs, specs, truth, operator.max_rms_ratio).reason is None
