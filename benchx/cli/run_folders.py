"""Run folders as the command line names them."""

from __future__ import annotations

from pathlib import Path

from benchx.core.errors import UsageError, nearest_word

_SHOWN = 3


def named_run(path: Path) -> Path:
    """The folder itself.

    Raises:
        UsageError: It is not there or no run; the hint names those that may have been meant.
    """
    from benchx.store.meta import RUN_FILE

    if (path / RUN_FILE).is_file():
        return path
    found = "is not a run folder: it has no run.json" if path.exists() else "does not exist"
    raise UsageError(f"{path} {found}", hint=_meant(path, RUN_FILE))


def _meant(path: Path, run_file: str) -> str:
    """Runs inside of the folder, or else the one beside it that is spelled alike."""
    inside = sorted(one.parent.name for one in path.glob(f"*/{run_file}"))
    if inside:
        more = f" and {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
        return f"runs in it: {', '.join(inside[:_SHOWN])}{more}"
    near = nearest_word(path.name, [one.parent.name for one in path.parent.glob(f"*/{run_file}")])
    return f"did you mean {path.parent / near}?" if near else "benchx run SCENARIO makes one"
