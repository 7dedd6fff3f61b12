"""Blocks in files: through the page cache, and direct, past it (Linux)."""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchx.core.call import PreparedCall
from benchx.ops.kv_copy_backends import places

if TYPE_CHECKING:
    from torch import Tensor

    from benchx.core.call import Tensors
    from benchx.ops.kv_copy import CopyInputs


def direct_problem(folder: str) -> str | None:
    """Why files there can't be accessed directly, or None; a file system in memory can't be."""
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        return "this system has no direct file access"
    try:
        handle, path = tempfile.mkstemp(prefix="benchx-", dir=folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    os.close(handle)
    try:
        os.close(os.open(path, os.O_RDWR | flag))
    except OSError:
        return f"the file system of {folder} has no direct access"
    finally:
        Path(path).unlink()
    return None


def prepare_file(inputs: CopyInputs) -> PreparedCall:
    """A file of the blocks' size, deleted from its folder at once and gone with the call.

    Reads come from a file that was just written: through the page cache they are copies from
    memory, direct ones reach the disk. Direct writes reach the disk, others its cache.
    """
    file = _ScratchFile(inputs)
    if inputs.route.startswith("file_read"):
        return PreparedCall(run=file.read, graph_safe=False)
    return PreparedCall(run=file.write, graph_safe=False)


class _ScratchFile:
    """The file, and page-aligned memory at the other end."""

    def __init__(self, inputs: CopyInputs) -> None:
        self._size = inputs.source.nbytes
        self._block = inputs.source.shape[1] * inputs.source.element_size()
        self._places = places(inputs)
        self._memory = mmap.mmap(-1, self._size)
        self._handle = _open(inputs)
        os.ftruncate(self._handle, self._size)
        self._view = mmap.mmap(self._handle, self._size)
        shape = inputs.source.shape
        self._in_memory, self._in_file = _tensor(self._memory, shape), _tensor(self._view, shape)
        reads = inputs.route.startswith("file_read")
        (self._in_file if reads else self._in_memory).copy_(inputs.source.cpu())
        self._view.flush()
        os.fsync(self._handle)
        self._buffers = [
            memoryview(self._memory)[index * self._block : (index + 1) * self._block]
            for index in range(shape[0])
        ]

    def read(self) -> Tensors:
        """Each block from its place in the file to its place in memory."""
        for here, there in self._places:
            _whole(os.preadv(self._handle, [self._buffers[there]], here * self._block), self._block)
        return {"moved": self._in_memory}

    def write(self) -> Tensors:
        """Each block from its place in memory to its place in the file."""
        for here, there in self._places:
            done = os.pwritev(self._handle, [self._buffers[here]], there * self._block)
            _whole(done, self._block)
        return {"moved": self._in_file}

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is not None:
            os.close(handle)


def _open(inputs: CopyInputs) -> int:
    """A nameless file; direct where the route says so."""
    folder = inputs.folder or tempfile.gettempdir()
    handle, path = tempfile.mkstemp(prefix="benchx-", dir=folder)
    try:
        if not inputs.route.endswith("direct"):
            return os.dup(handle)
        return os.open(path, os.O_RDWR | os.O_DIRECT)
    finally:
        os.close(handle)
        Path(path).unlink()


def _whole(done: int, wanted: int) -> None:
    """The kernel moves at most 2 GiB at a time, and less when the disk is full."""
    if done != wanted:
        raise OSError(f"{done} of {wanted} bytes of a block were moved")


def _tensor(memory: mmap.mmap, shape: tuple[int, ...]) -> Tensor:
    import torch

    return torch.frombuffer(memory, dtype=torch.float32).view(shape)
