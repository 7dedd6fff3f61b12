from __future__ import annotations

import errno

import pytest

from benchx.core.errors import UsageError
from benchx.core.outcome import Outcome
from benchx.measure.interleave import EntryFailed
from benchx.measure.timers import TimerUnsupported
from benchx.runner.faults import Guard, fault_of


class OutOfMemoryError(RuntimeError):
    """Named like torch's."""


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (MemoryError(), None),
        (MemoryError("Unable to allocate 7.45 GiB for an array"), "7.45 GiB"),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0"), "20.00 GiB"),
        (
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                "4000000000000 bytes. Error code 12 (Cannot allocate memory)"
            ),
            "4000000000000 bytes",
        ),
        (RuntimeError("HIP out of memory. Tried to allocate 2.00 MiB"), "2.00 MiB"),
    ],
)
def test_running_out_of_memory_is_oom_with_what_was_asked_for(
    error: Exception, asked: str | None
) -> None:
    fault = fault_of(error)
    assert fault.outcome is Outcome.OOM
    assert fault.reason.startswith(f"asked for {asked}: " if asked else "MemoryError")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("HIP error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("mmap: Cannot allocate memory"),
    ],
)
def test_memory_that_the_system_or_a_library_was_refused_is_oom(error: Exception) -> None:
    assert fault_of(error).outcome is Outcome.OOM
    assert fault_of(OSError(errno.ENOSPC, "no memory of it")).outcome is Outcome.CRASHED


def test_any_other_error_is_a_crash_in_one_line() -> None:
    fault = fault_of(ValueError("first line\nsecond line"))
    assert fault.outcome is Outcome.CRASHED
    assert fault.reason == "ValueError: first line"
    assert fault_of(KeyError()).reason == "KeyError"
    assert len(fault_of(ValueError("x" * 10_000)).reason) == 300


@pytest.mark.parametrize("error", [TimerUnsupported("no graph"), UsageError("no such timer")])
def test_a_timer_that_cannot_time_the_call_is_unsupported(error: Exception) -> None:
    assert fault_of(error).outcome is Outcome.UNSUPPORTED


def test_the_cause_speaks_when_an_entry_failed_in_its_turn() -> None:
    failed = EntryFailed("x", MemoryError("no room"))
    failed.__cause__ = MemoryError("no room")
    assert fault_of(failed).outcome is Outcome.OOM


def test_a_guard_swallows_exceptions_and_exits_and_prints_the_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Guard() as guard:
        raise SystemExit(3)
    assert guard.fault is not None
    assert guard.fault.reason == "SystemExit: 3"
    assert "Traceback" in capsys.readouterr().err


def test_a_guard_lets_ctrl_c_through() -> None:
    with pytest.raises(KeyboardInterrupt), Guard():
        raise KeyboardInterrupt


def test_a_guard_of_a_good_block_has_no_fault() -> None:
    with Guard() as guard:
        pass
    assert guard.fault is None
