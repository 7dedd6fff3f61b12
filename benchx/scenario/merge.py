"""How one document is laid over another: `extends`, `--set`, what a suite says for its parts."""

from __future__ import annotations

from collections.abc import Mapping

from benchx.scenario.located import Located

# Where an axis can be given; the later file or `--set` decides, whichever of them it used.
_AXIS_SECTIONS = ("fixed", "axes")


def join(base: Located, overlay: Located) -> Located:
    """Deep merge of two documents; an axis that the overlay gives is taken from the base.

    So `fixed: {heads: 8}` over a sweep of heads leaves the one value, in a zip group too.
    """
    entries = dict(base.entries)
    for section, other in (_AXIS_SECTIONS, _AXIS_SECTIONS[::-1]):
        given, present = overlay.entries.get(section), entries.get(other)
        if given and present:
            kept = {
                name: item for name, item in present.entries.items() if name not in given.entries
            }
            entries[other] = present.with_entries(kept) if present.entries else present
    if "fixed" in overlay.entries and "zip" in entries and "zip" not in overlay.entries:
        entries["zip"] = _unzipped(entries["zip"], set(overlay.entries["fixed"].entries))
    return merge(base.with_entries(entries), overlay)


def _unzipped(groups: Located, names: set[str]) -> Located:
    """The zip groups without some axes; a group of one is none."""
    kept = [
        Located(tuple(item for item in group.items if item.value not in names), group.where)
        for group in groups.items
    ]
    return Located(tuple(group for group in kept if len(group.items) > 1), groups.where)


def merge(base: Located, overlay: Located) -> Located:
    """Deep merge: mappings are joined, everything else is replaced, null takes an entry away."""
    if not (isinstance(base.value, Mapping) and isinstance(overlay.value, Mapping)):
        return overlay
    joined = dict(base.value)
    for key, item in overlay.value.items():
        if key not in joined:
            joined[key] = item
        elif item.value is None:
            del joined[key]
        else:
            joined[key] = merge(joined[key], item)
    return Located(joined, overlay.where)
