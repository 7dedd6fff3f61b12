"""Whether a worker may continue a run: launches are replicates, so all else must be equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchx.core.errors import NotComparable, RunFailed
from benchx.runner.events import Ready, Sources
from benchx.store import LaunchInfo
from benchx.store.launches import ABSENT, conditions_of

_DEVICE = ("name", "vendor", "arch", "count")
"""Of the device; its index and free memory may differ."""


def check_same_code(worker: Sources, here: Sources) -> None:
    """A worker must run the code that this process was started with.

    Raises:
        RunFailed: Its sources differ; names both places and what to do.
    """
    names = dict.fromkeys((*here.digests, *worker.digests))
    for name in names:
        theirs, ours = worker.digests.get(name), here.digests.get(name)
        if theirs == ours:
            continue
        there, place = worker.folders.get(name), here.folders.get(name)
        if there == place:
            raise RunFailed(
                f"the sources of {name} in {place} have changed since this run began "
                f"({ours}, now {theirs})",
                hint="start a new run, and leave the sources alone until it has ended",
            )
        raise RunFailed(
            f"the worker runs another {name} than this process: "
            f"{_place(there, theirs)}, here {_place(place, ours)}",
            hint="install the same benchx in the workers' environment and in this one "
            "(pip install -e CHECKOUT)",
        )


def _place(folder: str | None, digest: str | None) -> str:
    return "none" if folder is None else f"{folder} ({digest})"


def check_replicate(ready: Ready, earlier: Sequence[LaunchInfo]) -> None:
    """A worker must have the same kind of device, software and settings as those before it.

    What an older run did not record is not compared.

    Raises:
        NotComparable: Names the fields that differ, with both values.
    """
    for info in earlier:
        before, here = info.device, ready.device
        if any(before.get(key) != here.get(key) for key in _DEVICE):
            raise NotComparable(
                f"this run was measured on {_told(before)}, but here is {_told(here)}",
                hint="continue it on the same kind of device, or start a new run",
            )
        differences = list(_differences(info.environment, ready.environment))
        if differences:
            raise NotComparable(
                f"this run was measured under other conditions: {'; '.join(differences)}",
                hint="restore them, or start a new run without --resume",
            )


def _differences(before: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    now = conditions_of(here)
    for name, old in conditions_of(before).items():
        new = now.get(name, ABSENT)
        if old != new:
            yield f"{name} was {old}, now {new}"


def _told(device: Mapping[str, Any]) -> str:
    """`2 x NVIDIA H200 (nvidia, sm_90)`; what is not known of it is left out."""
    name, vendor, arch, count = (device.get(key) for key in _DEVICE)
    whole = str(name or "a device without a name")
    kind = ", ".join(str(word) for word in (vendor, arch) if word is not None)
    return (f"{count} x {whole}" if count is not None else whole) + (f" ({kind})" if kind else "")
