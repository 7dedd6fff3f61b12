"""The unit of the plan, of resume and of a result row."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from benchx.core.axes import Params
from benchx.core.metric import Level


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination of axis values with one backend (or engine).

    Attributes:
        kind: kernel, model or serving.
        subject: What is measured: operator, architecture or workload name.
        backend: Backend of the operator or model; for serving, the engine.
        params: All axes and fixed values, defaults filled in, sorted by name.
        part: Index of the scenario part that holds the settings of this point.
    """

    kind: Level
    subject: str
    backend: str
    params: Params
    part: int = 0
    point_id: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", dict(sorted(self.params.items())))
        object.__setattr__(self, "point_id", self._digest(self.backend))

    @property
    def group_id(self) -> str:
        """Equal for points that differ in the backend only (same inputs, interleaved)."""
        return self._digest("*")

    def _digest(self, backend: str) -> str:
        identity = [self.kind, self.subject, backend, dict(self.params), self.part]
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def label(self) -> str:
        """Short text for progress lines: `kda_prefill/triton heads=96 seqlens=8192`."""
        words = " ".join(f"{name}={value}" for name, value in self.params.items())
        return f"{self.subject}/{self.backend} {words}"

    def to_json(self) -> dict[str, Any]:
        """Plain data; `store.shape.restored` makes an equal point of it."""
        return {
            "kind": self.kind,
            "subject": self.subject,
            "backend": self.backend,
            "params": dict(self.params),
            "part": self.part,
        }
