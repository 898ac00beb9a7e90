"""What fits where: the KV pool of the GPUs, and tokens and sessions each tier can hold.

Question answered: how much KV is there room for, and in which units does each tier count?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.errors import KvmodelError, MissingNumberError, UnsupportedModelError
from kvmodel.system.case import Case


@dataclass(frozen=True)
class Pool:
    """KV room of one engine instance in its GPUs' memory."""

    nbytes: Any
    """Bytes left for KV; negative where weights and reserve do not fit [B]."""
    derived: bool
    """False where the study states the pool itself."""

    @property
    def fits(self) -> Any:
        """Whether anything is left for KV."""
        return np.asarray(self.nbytes) > 0


def hbm_pool(case: Case) -> Pool:
    """KV pool of one instance: tp (memory x fraction - reserve) - weights, or as stated in the study [B]."""
    first = next(iter(case.tiers.values()))
    if first.capacity is not None:
        return Pool(np.asarray(first.capacity, float), derived=False)
    return Pool(_room(case, np.asarray(case.deployment.tensor_parallel, float)), derived=True)


def _room(case: Case, tp: Any) -> Any:
    gpu, engine = case.deployment.gpu, case.deployment.engine
    per_gpu = np.asarray(gpu.memory, float) * engine.memory_fraction - np.asarray(case.deployment.reserve, float)
    return tp * per_gpu - case.model.weight_bytes


def require_room(case: Case) -> None:
    """Raise KvmodelError where the model keeps no KV that grows, or leaves no room for it at any point."""
    _require_growth(case)
    if np.any(hbm_pool(case).fits):
        return
    fits = smallest_tensor_parallel(case)
    raise KvmodelError(
        f"{case.model.name} leaves no room for KV at tensor_parallel "
        f"{np.max(np.asarray(case.deployment.tensor_parallel)):g}; "
        + (f"tensor_parallel {fits} would fit" if fits else "no tensor_parallel up to 1024 fits")
    )


def smallest_tensor_parallel(case: Case) -> int | None:
    """Smallest power of two of GPUs on which the weights leave room for KV at every point; None if none of 1024."""
    return next((tp for tp in (2**k for k in range(11)) if np.all(_room(case, float(tp)) > 0)), None)


def stored_bytes_per_token(case: Case, tier: str) -> Any:
    """Bytes a tier stores for one more token of one sequence [B/token].

    In the GPUs' memory all ranks together, heads and latents that every rank copies counted each time; below it one
    logical copy times the tier's own storage amplification.
    """
    model, tp = case.model, case.deployment.tensor_parallel
    _require_growth(case)
    if tier not in case.storage_tiers:
        return np.asarray(tp, float) * model.rank_growing_bytes_per_token(tp)
    return model.growing_bytes_per_token * np.asarray(case.tiers[tier].storage_amplification, float)


def moved_bytes_per_token(case: Case, tier: str) -> Any:
    """Bytes the path of a tier carries to restore one token on every rank that needs it [B/token].

    Ranks that hold copies each get their own, so replication moves more than the logical bytes.
    """
    model, tp = case.model, case.deployment.tensor_parallel
    amplification = np.asarray(case.tiers[tier].storage_amplification, float)
    return np.asarray(tp, float) * model.rank_growing_bytes_per_token(tp) * amplification


def fixed_tokens(case: Case) -> Any:
    """Windows, states and half a block of padding of one sequence, as tokens of its growing part [tokens].

    They take room like tokens but save no more than the sequence they belong to.
    """
    _require_growth(case)
    fixed = case.model.fixed_bytes_per_sequence() / case.model.growing_bytes_per_token
    return fixed + granularity(case) / 2


def granularity(case: Case) -> Any:
    """Tokens between two points at which a cached prefix can end [tokens]."""
    return case.deployment.engine.reuse_granularity_tokens(case.model, case.deployment.tensor_parallel)


def _require_growth(case: Case) -> None:
    if not np.all(np.asarray(case.model.growing_bytes_per_token) > 0):
        raise UnsupportedModelError(
            f"{case.model.name} keeps a constant state only: no KV grows with the tokens, so "
            "there is no cache whose reuse depends on capacity"
        )


def bought_bytes(case: Case, tier: str) -> Any:
    """Bytes of a storage tier, all its devices, headroom included [B]."""
    record = case.tiers[tier]
    if record.capacity is None:
        raise MissingNumberError(f"tiers.{tier}.capacity is not given; it is needed to know what the tier keeps")
    return np.asarray(record.capacity, float) * record.count


def tier_bytes(case: Case, tier: str) -> Any:
    """Bytes of a storage tier that KV may use, all its devices, headroom taken off [B]."""
    return bought_bytes(case, tier) * (1 - np.asarray(case.tiers[tier].headroom, float))


def tier_tokens(case: Case, tier: str) -> Any:
    """Tokens a storage tier can hold, all its devices [tokens]."""
    return tier_bytes(case, tier) / stored_bytes_per_token(case, tier)
