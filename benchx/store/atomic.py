"""Whole files that exist either in full or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from benchx.store.faults import storing


def write_atomic(path: Path, content: bytes) -> None:
    """Write beside `path`, sync, rename over it, sync the folder.

    Raises:
        StoreError: When the file can't be written; whatever was there before is untouched.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with storing(path, "write"):
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            sync_folder(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink()


_FOLDERS_ARE_NOT_SYNCED = frozenset({errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS})
"""What network shares and user-space file systems answer that sync files only."""


def sync_folder(folder: Path) -> None:
    """Make names created in `folder` survive a power cut, where its file system can do that.

    Raises:
        OSError: The disk failed.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _FOLDERS_ARE_NOT_SYNCED:
            raise
    finally:
        os.close(handle)
