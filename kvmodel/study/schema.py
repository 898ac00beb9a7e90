"""The study file as a record: one case and the questions asked of it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from kvmodel.quantity import Record
from kvmodel.system.case import Case

# Where `preset:` may stand, and the family of presets it names.
PRESET_PLACES = {
    "model": "llms",
    "deployment.gpu": "gpus",
    "tiers.*": "tiers",
    "tiers.*.path.*": "paths",
    "prices": "prices",
}
# Keys of a study that are not part of a case.
QUESTION_KEYS = ("kvmodel", "include", "name", "compare", "scenarios", "sweep", "uncertain", "monte_carlo", "targets")

Arm = Literal["no_reuse", "local_reuse", "all_tiers"]


class MonteCarlo(Record):
    """How often uncertain numbers are drawn."""

    draws: int = Field(1000, ge=2, le=1_000_000)
    """Draws."""
    seed: int = Field(0, ge=0)
    """Seed; every uncertain number has a stream of its own, keyed by seed and path."""


class Study(Case):
    """One case, and what is asked of it."""

    kvmodel: Literal[1] = 1
    """Version of the study format."""
    include: str | tuple[str, ...] = ()
    """YAML files whose content lies below the study's own, relative to it: measured terms, a shared workload."""
    name: str = "study"
    """The question in words."""
    compare: tuple[Arm, ...] = ("no_reuse", "local_reuse", "all_tiers")
    """Arms to compare on the same GPUs and limits; the last one is the one the tables describe."""
    scenarios: dict[str, dict[str, Any]] = {}
    """Named changes: dotted path to value; `extends` names another scenario."""
    sweep: dict[str, Any] = {}
    """Dotted path to a list, {linspace: [from, to, count]} or {geomspace: [from, to, count]}: one axis each."""
    uncertain: dict[str, Any] = {}
    """Dotted path to a law: drawn together along one axis."""
    monte_carlo: MonteCarlo = MonteCarlo()
    """Draws and seed."""
    targets: dict[str, str] = {}
    """Quantity to ">= value" or "<= value": what would be good enough."""

    @field_validator("compare")
    @classmethod
    def _some_arms(cls, arms: tuple[Arm, ...]) -> tuple[Arm, ...]:
        if not arms or len(set(arms)) != len(arms):
            raise ValueError("needs at least one arm, each once")
        return arms
