"""What the tiers that wear must absorb, and how long they last.

Question answered: how many bytes a day go into each wearing tier, and does it live as long as it should?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kvmodel.analyses.serving import Load
from kvmodel.errors import MissingNumberError
from kvmodel.formulas import endurance, write_amplification
from kvmodel.system.case import Case
from kvmodel.tiers.nvme import Nvme
from kvmodel.units import YEAR

DEFAULT_TARGET = 5 * YEAR  # the usual warranty of an enterprise drive


@dataclass(frozen=True)
class Wear:
    """Writes into one wearing tier and what they do to it; arrays over the study's axes."""

    write_rate: Any
    """Host bytes written per second, all drives [B/s]."""
    amplification: Any
    """Flash bytes per host byte of our writes."""
    rated_amplification: Any
    """Amplification already inside the drive's rating."""
    lifetime: Any
    """Until the rated wear is used up [s]."""
    budget: Any
    """Host bytes per second, all drives, that reach the target lifetime [B/s]."""
    drive_writes_per_day: Any
    flags: tuple[str, ...]


def wearing_tiers(case: Case) -> dict[str, Nvme]:
    """The tiers that wear with what is written."""
    return {name: tier for name, tier in case.storage_tiers.items() if isinstance(tier, Nvme)}


def written_tokens(case: Case, load: Load, tier: str) -> Any:
    """Tokens written into a storage tier per second [tokens/s].

    inclusive chain: what is created, and what was lost from here and computed again. exclusive chain: all that falls
    out of the tiers above: what is created, and what was not found above. With second-use admission: created context
    when it is first read back from anywhere.
    """
    index = load.tiers.index(tier)
    rule = case.policy.admission
    upto = index + 1 if case.policy.chain == "inclusive" else index
    created = sum(t.arrivals * t.computed_tokens for t in load.traffic)
    found = sum(load.resident[name][:upto].sum(axis=0) for name in load.resident)
    missing = np.maximum(sum(load.opportunity.values()) - found, 0.0)
    if rule.second_use:
        first_reads = sum(
            t.arrivals * t.private_opportunity * (1 - t.reused_again) * load.residency.private[t.name][:upto].sum(axis=0)
            for t in load.traffic)
        return first_reads * rule.probability
    return (created + missing) * rule.probability


def wear_of(case: Case, load: Load, tier: str, target_lifetime: Any = None) -> Wear:
    """Writes, amplification, lifetime and budget of one wearing tier."""
    record = wearing_tiers(case)[tier]
    layout = np.asarray(record.storage_amplification, float)
    states = load.turn_rate * case.model.fixed_bytes_per_sequence()  # windows and states are stored anew every turn
    rate = (written_tokens(case, load, tier) * case.model.growing_bytes_per_token + states) * layout
    ours, rated, flags = _amplifications(record)
    rating, wanted = _rating(record, tier), DEFAULT_TARGET if target_lifetime is None else target_lifetime
    each = rate / record.count
    if record.capacity is None:
        raise MissingNumberError(f"tiers.{tier}.capacity is not given; it is needed for drive writes per day")
    return Wear(
        write_rate=rate, amplification=ours, rated_amplification=rated,
        lifetime=endurance.lifetime(each, rating, rated, ours),
        budget=record.count * endurance.write_budget(wanted, rating, rated, ours),
        drive_writes_per_day=endurance.drive_writes_per_day(each, record.capacity, 1.0),
        flags=flags,
    )


def _rating(record: Nvme, tier: str) -> Any:
    """Rated host writes of one drive [B]."""
    if record.rated_writes is not None:
        return np.asarray(record.rated_writes, float)
    if record.rated_dwpd is not None and record.warranty is not None and record.capacity is not None:
        return endurance.rated_writes(record.capacity, record.rated_dwpd, record.warranty)
    raise MissingNumberError(f"tiers.{tier}.rated_writes is not given (nor rated_dwpd with warranty); it is needed for "
                             "the lifetime")


def _amplifications(record: Nvme) -> tuple[Any, Any, tuple[str, ...]]:
    """Our amplification and the one inside the rating, with what had to be assumed."""
    flags: list[str] = []
    random = None
    if record.rated_writes is not None and record.rated_writes_sequential is not None:
        random = endurance.rated_amplification(record.rated_writes, record.rated_writes_sequential)
    elif record.spare is not None:
        random = write_amplification.fifo_amplification(1 + np.asarray(record.spare, float))
        flags.append("amplification inside the rating taken from the spare: uniform random writes, FIFO reclaim")
    if record.amplification is not None:
        ours = np.asarray(record.amplification, float)
    elif record.fdp:
        ours = np.ones(())
        flags.append("FDP: whole reclaim units die together, amplification 1 assumed (1.03 measured elsewhere)")
    elif record.spare is not None:
        ours = write_amplification.fifo_amplification(1 + np.asarray(record.spare, float))
    elif random is not None:
        ours = random
        flags.append("our writes taken to amplify as the rated random pattern does")
    else:
        return np.ones(()), np.ones(()), ("amplification unknown: our writes taken to wear as the rated pattern does",)
    if random is None:
        random = np.ones(())
        flags.append("amplification inside the rating unknown, taken as 1: the lifetime is a lower bound")
    return ours, random, tuple(flags)
