"""Versions of the measuring method, one per level."""

from __future__ import annotations

from collections.abc import Mapping

from benchx.core.metric import Level

METHOD_VERSIONS: Mapping[Level, int] = {"kernel": 1, "model": 1, "serving": 1}
"""Level -> version of how it measures; recorded with every launch.

Raise a level's version, and say so in the changelog, whenever the same software on the same machine
would give another figure than before: another timer or cache displacement, another stopping rule or
warm-up, other inputs, prompts or arrival times from the same seed, another definition or formula of
a metric, other bytes or FLOPs of the same work. Figures of two versions are never judged against
each other. What only adds a metric, or changes text, rows or charts, leaves the version as it is.
"""
