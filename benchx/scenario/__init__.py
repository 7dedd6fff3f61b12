"""Scenario files: schema, loader with file and line in every error, expansion into points.

Importing this package imports pydantic and PyYAML, but neither torch nor pandas, and no operator:
what may be said about operators comes in as a `Vocabulary`.
"""

from benchx.scenario.expansion import MAX_POINTS, expand
from benchx.scenario.files import shipped
from benchx.scenario.kernel import KernelPart
from benchx.scenario.kinds import KINDS, Kind, Sweep
from benchx.scenario.loader import Scenario, load
from benchx.scenario.model import ModelPart
from benchx.scenario.schema import CheckSettings, CostSettings, MeasureSettings, Part
from benchx.scenario.serving import ServingPart
from benchx.scenario.vocabulary import ModelWords, OpWords, ServingWords, Vocabulary

__all__ = [
    "KINDS",
    "MAX_POINTS",
    "CheckSettings",
    "CostSettings",
    "KernelPart",
    "Kind",
    "MeasureSettings",
    "ModelPart",
    "ModelWords",
    "OpWords",
    "Part",
    "Scenario",
    "ServingPart",
    "ServingWords",
    "Sweep",
    "Vocabulary",
    "expand",
    "load",
    "shipped",
]
