"""Which run to continue, and whether it is still the run that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import benchx
from benchx.core.errors import StoreError, UsageError
from benchx.core.point import Point
from benchx.runner.plan import Plan
from benchx.runner.session import now
from benchx.scenario import Scenario
from benchx.store import PlanEntry, RunMeta, read_meta, read_run
from benchx.store.extension import Extension
from benchx.store.meta import RUN_FILE
from benchx.store.plain import plain

_SHOWN = 3
_LAUNCHES = "measure.launches"

Change = tuple[str, object, object]
"""Dotted path, former value, present value."""


def newest_unfinished(out_dir: Path, scenario: str | None) -> Path:
    """The latest run of a scenario (None: of any) below `out_dir` that is not finished.

    Raises:
        UsageError: When there is none.
        StoreError: When the newest one can't be read, or one that might be it.
    """
    found = [
        (meta.started_at, folder)
        for meta, folder in _metas(out_dir, scenario)
        if scenario in (None, meta.scenario)
    ]
    for _, folder in sorted(found, reverse=True):
        if read_run(folder).is_unfinished:
            return folder
    what = "unfinished run" if scenario is None else f"unfinished run of {scenario}"
    raise UsageError(
        f"no {what} in {out_dir}",
        hint="start a new run: benchx run SCENARIO"
        if found
        else "name the run folder: --resume PATH",
    )


def _metas(out_dir: Path, scenario: str | None) -> Iterator[tuple[RunMeta, Path]]:
    """Run folders that can be read; one that can't is passed over if its name is of another."""
    for folder in _runs(out_dir):
        try:
            yield read_meta(folder), folder
        except StoreError as error:
            if scenario in (None, folder.name.rsplit("-", 2)[0]):
                raise StoreError(
                    error.message, hint="name the run folder to continue: --resume PATH"
                ) from error


def _runs(out_dir: Path) -> Iterator[Path]:
    if out_dir.is_dir():
        yield from (folder for folder in out_dir.iterdir() if (folder / RUN_FILE).is_file())


def extension_of(meta: RunMeta, scenario: Scenario, command: Sequence[str]) -> Extension | None:
    """The launches that a scenario adds to a stored run; None when it changes anything else.

    More launches are more replicates of the same points, so they leave what is there as it is.
    """
    resolved = plain(scenario.to_json())
    changes = list(_changes(meta.resolved, resolved))
    if not changes or not all(_adds_launches(*change) for change in changes):
        return None
    assert isinstance(resolved, dict)
    return Extension(
        launches=tuple(part.measure.launches for part in scenario.parts),
        resolved=resolved,
        command=tuple(command),
        added_at=now(),
        benchx_version=benchx.__version__,
    )


def _adds_launches(key: str, before: object, after: object) -> bool:
    is_launches = key == _LAUNCHES or key.endswith(f".{_LAUNCHES}")
    return is_launches and isinstance(before, int) and isinstance(after, int) and after > before


def resumed_plan(meta: RunMeta, scenario: Scenario, plan: Plan, path: Path) -> Plan:
    """The plan of a stored run in its own order, with the settings of the one made now.

    The order is no part of what was asked for: it may come from a sorted run.json.

    Raises:
        UsageError: The scenario or what follows from it has changed, so that further launches
            would not be replicates; names the first differences.
    """
    differences = list(_differences(meta.resolved, plain(scenario.to_json())))
    differences = differences or list(_plan_differences(meta.plan, plan.entries))
    if differences:
        more = len(differences) - _SHOWN
        tail = f" and {more} more" if more > 0 else ""
        raise UsageError(
            f"{path} was started from another scenario: {'; '.join(differences[:_SHOWN])}{tail}",
            hint="undo the change, or start a new run without --resume",
        )
    return replace(plan, entries=meta.plan)


def _plan_differences(before: Sequence[PlanEntry], after: Sequence[PlanEntry]) -> Iterator[str]:
    """What benchx or a plugin makes otherwise than before of the same scenario."""
    old, new = ({e.point.point_id: e for e in entries} for entries in (before, after))
    gone = [entry.point for name, entry in old.items() if name not in new]
    added = [entry.point for name, entry in new.items() if name not in old]
    if gone and added:
        yield from _axes_apart(gone[0], added)
        return
    for what, points in (("gone", gone), ("new", added)):
        if points:
            told = "1 point is" if len(points) == 1 else f"{len(points)} points are"
            yield f"{told} {what}, such as {points[0].label()}"
    for name in old.keys() & new.keys():
        if old[name].launches != new[name].launches:
            told = f"launches of {old[name].point.label()} were {old[name].launches}"
            yield f"{told}, now {new[name].launches}"


def _axes_apart(gone: Point, added: Sequence[Point]) -> Iterator[str]:
    """How a point differs from the nearest of those that are there instead: in its defaults."""
    apart = min((list(_differences(_said(gone), _said(point))) for point in added), key=len)
    for difference in apart:
        yield f"{difference} (the scenario leaves it to the default)"


def _said(point: Point) -> dict[str, Any]:
    return {**point.params, "subject": point.subject, "backend": point.backend}


def _differences(before: object, after: object) -> Iterator[str]:
    for key, old, new in _changes(before, after):
        yield f"{key} was {old!r}, now {new!r}"


def _changes(before: Any, after: Any, key: str = "") -> Iterator[Change]:  # noqa: ANN401 - JSON
    """Path, former and present value of all that differs; the parts of a suite one by one."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            path = f"{key}.{name}" if key else str(name)
            yield from _changes(before.get(name), after.get(name), path)
    elif key == "parts" and len(before or ()) == len(after or ()):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes(old, new, f"{key}.{index}")
    elif before != after:
        yield key, before, after


def require_run(path: Path) -> Path:
    """The folder itself; raises StoreError when it is no run."""
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    read_meta(path)
    return path
