"""Operating-system errors, told as what happened to the run folder and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchx.core.errors import StoreError

_FREE_SPACE = "free some space (what was measured until now is kept)"
_ELSEWHERE = "choose a folder that you may write to with --out"

_HINTS = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: "the limit on file sizes (ulimit -f) is too small; raise it",
    errno.EROFS: _ELSEWHERE,
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.EEXIST: "a file of this name is in the way; choose another folder with --out",
    errno.ENOTDIR: "a part of this path is a file; choose another folder with --out",
    errno.ENAMETOOLONG: "choose a shorter folder with --out",
    errno.ENOENT: "check the path; was the folder removed or unmounted meanwhile?",
    errno.EIO: "the disk reports an error; copy the run folder elsewhere before anything else",
}


@contextmanager
def storing(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError inside the block into a StoreError.

    Args:
        path: What is read or written.
        doing: Verb of the message: `write`, `create`, `read`.
    """
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        raise StoreError(
            f"can't {doing} {path}: {what}", hint=_HINTS.get(error.errno or 0)
        ) from error
