"""Which run to continue, and whether it is still the run that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchx.core.errors import StoreError, UsageError
from benchx.runner.plan import Plan
from benchx.scenario import Scenario
from benchx.store import RunMeta, RunStatus, read_meta, read_run
from benchx.store.meta import RUN_FILE
from benchx.store.plain import plain

_SHOWN = 3


def newest_unfinished(out_dir: Path, scenario: str | None) -> Path:
    """The latest run of a scenario (None: of any) below `out_dir` that lacks records.

    Raises:
        UsageError: When there is none.
        StoreError: When the newest one can't be read.
    """
    metas = [(read_meta(folder), folder) for folder in _runs(out_dir)]
    found = [
        (meta.started_at, folder) for meta, folder in metas if scenario in (None, meta.scenario)
    ]
    for _, folder in sorted(found, reverse=True):
        if read_run(folder).status is RunStatus.PARTIAL:
            return folder
    what = "unfinished run" if scenario is None else f"unfinished run of {scenario}"
    raise UsageError(
        f"no {what} in {out_dir}",
        hint="run it without --resume" if found else "name the run folder: --resume PATH",
    )


def _runs(out_dir: Path) -> Iterator[Path]:
    if out_dir.is_dir():
        yield from (folder for folder in out_dir.iterdir() if (folder / RUN_FILE).is_file())


def check_unchanged(meta: RunMeta, scenario: Scenario, plan: Plan, path: Path) -> None:
    """Refuse to continue a run whose scenario has changed: its launches would not be replicates.

    Raises:
        UsageError: Names the first differences.
    """
    differences = list(_differences(meta.resolved, plain(scenario.to_json())))
    if not differences and meta.plan != plan.entries:
        differences = [f"the plan had {len(meta.plan)} points, now it has {len(plan.entries)}"]
        if len(meta.plan) == len(plan.entries):
            differences = ["an axis has another default value now"]
    if differences:
        more = len(differences) - _SHOWN
        tail = f" and {more} more" if more > 0 else ""
        raise UsageError(
            f"{path} was started from another scenario: {'; '.join(differences[:_SHOWN])}{tail}",
            hint="undo the change, or start a new run without --resume",
        )


def _differences(before: Any, after: Any, key: str = "") -> Iterator[str]:  # noqa: ANN401 - JSON
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            path = f"{key}.{name}" if key else str(name)
            yield from _differences(before.get(name), after.get(name), path)
    elif before != after:
        yield f"{key} was {before!r}, now {after!r}"


def require_run(path: Path) -> Path:
    """The folder itself; raises StoreError when it is no run."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    read_meta(path)
    return path
