"""How long does a drive last under a flow of writes, and what does each byte written cost?

A drive's rated writes hold for the vendor's own workload, whose garbage collection is already inside the
number. So the flash behind it can take `rated_writes * rated_amplification` bytes, and our workload wears it
with `host_write_rate * amplification`. Dividing a random-rated figure by our amplification alone counts
garbage collection twice. The rated amplification is one for a sequential rating, and the ratio of the two
ratings when a datasheet gives both.

Symbols: E rated host writes [B], A_r rated amplification, A our amplification, w host write rate [B/s], L
life [s]. Assumed throughout: wear is even over the flash and linear in bytes programmed; nothing else ends
the life. TBW of client and enterprise classes (JESD219) rest on different workloads and are not comparable.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from kvmodel.units import DAY

__all__ = [
    "daily_writes",
    "drive_writes_per_day",
    "drives_needed",
    "lifetime",
    "power_off_retention",
    "program_erase_cycles",
    "rated_amplification",
    "rated_amplification_valid",
    "rated_writes",
    "session_writes_appended",
    "session_writes_rewritten",
    "wear_cost_per_byte",
    "write_budget",
    "write_flow",
]

BOLTZMANN_EV_PER_K = 8.617333262e-5  # CODATA 2018
ZERO_CELSIUS_K = 273.15


def write_flow(
    new_bytes_rate: ArrayLike, copies: ArrayLike = 1.0, rewrites: ArrayLike = 1.0, layout_amplification: ArrayLike = 1.0
) -> np.ndarray:
    """Host write rate into a tier [B/s] = new KV bytes per second * copies * rewrites * layout amplification.

    new_bytes_rate        KV bytes newly computed and admitted to the tier   [B/s]
    copies                replicas written                                   [-]
    rewrites              bytes written per new byte: one when a growing session appends, and
                          `session_writes_rewritten / session_writes_appended` when it is rewritten whole  [-]
    layout_amplification  padding, metadata and host-side compaction of the store    [-]
    Zero when nothing is admitted; linear in every argument. All broadcast. Source: bookkeeping.
    """
    return np.multiply(new_bytes_rate, copies) * np.multiply(rewrites, layout_amplification)


def session_writes_appended(context_bytes: ArrayLike, block_bytes: ArrayLike) -> np.ndarray:
    """Bytes written over a session's life when only full new blocks are stored [B] = floor(S_K/B) B.

    context_bytes  KV bytes of the session after each turn, shape (turns,)+A, not falling along the turns  [B]
    block_bytes    bytes of one stored block, shape A  [B]
    The sum over turns telescopes to the last context. Zero below one block. Source: derived here.
    """
    last = np.asarray(context_bytes)[-1]
    return np.floor_divide(last, block_bytes) * block_bytes


def session_writes_rewritten(context_bytes: ArrayLike, block_bytes: ArrayLike) -> np.ndarray:
    """Bytes written over a session's life when each turn stores the whole context anew [B] = sum_k
    ceil(S_k/B) B.

    context_bytes  KV bytes of the session after each turn, shape (turns,)+A   [B]
    block_bytes    bytes of one stored block, shape A                          [B]
    Grows with the square of the number of turns. Source: derived here.
    """
    return np.sum(np.ceil(np.divide(context_bytes, block_bytes)) * block_bytes, axis=0)


def daily_writes(write_rate: ArrayLike, share_of_day: ArrayLike) -> np.ndarray:
    """Bytes written in a day whose rate changes [B/day] = 86400 s * sum_i share_i w_i.

    write_rate    host write rate in each part of the day, shape (parts,)+A   [B/s]
    share_of_day  share of the day each part takes, shape (parts,)+A or (parts,), adding up to one   [-]
    Wear follows this sum, so a burst counts by its bytes and not by its peak. Source: bookkeeping.
    """
    return DAY * np.sum(np.multiply(write_rate, share_of_day), axis=0)


def drive_writes_per_day(rated_writes: ArrayLike, capacity: ArrayLike, warranty: ArrayLike) -> np.ndarray:
    """Full-capacity writes per day [1/day] = E / (capacity * warranty in days), for the rating's own access
    pattern.

    rated_writes  host writes the vendor warrants    [B]
    capacity      usable capacity                    [B]
    warranty      warranty time                      [s]
    Infinite at zero warranty or capacity. Source: vendors' usual definition with years of 365 days, for
    example 17,520 TB over 3.2 TB and five years = 3.0 (Micron 9550 MAX table, StorageReview).
    """
    return np.divide(rated_writes, capacity) * np.divide(DAY, warranty)


def rated_writes(capacity: ArrayLike, drive_writes_per_day: ArrayLike, warranty: ArrayLike) -> np.ndarray:
    """Host writes behind a rating in drive writes per day [B]; the inverse of `drive_writes_per_day`.

    capacity [B], drive_writes_per_day [1/day], warranty [s]. Zero when any of them is. Source: as there.
    """
    return np.multiply(capacity, drive_writes_per_day) * np.divide(warranty, DAY)


def rated_amplification(random_rated_writes: ArrayLike, sequential_rated_writes: ArrayLike) -> np.ndarray:
    """The drive's own write amplification inside its random rating [-] = sequential / random rated writes.

    random_rated_writes, sequential_rated_writes   rated host writes for the two patterns   [B]
    Sequential writing is taken to have amplification one, so this is a lower bound when it has more.
    Meaningful only where `rated_amplification_valid`. Source: derived here; 2.12 for the Micron 9550 MAX 3.2
    TB, where `fifo_amplification` at 4 TiB raw gives 2.04.
    """
    return np.divide(sequential_rated_writes, random_rated_writes)


def rated_amplification_valid(random_rated_writes: ArrayLike, sequential_rated_writes: ArrayLike) -> np.ndarray:
    """True where the two ratings [B] can be read as an amplification: 0 < random <= sequential."""
    return np.greater(random_rated_writes, 0) & np.less_equal(random_rated_writes, sequential_rated_writes)


def lifetime(
    host_write_rate: ArrayLike,
    rated_writes: ArrayLike,
    rated_amplification: ArrayLike = 1.0,
    amplification: ArrayLike = 1.0,
) -> np.ndarray:
    """Time until the rated wear is used up [s]: L = E A_r / (w A).

    host_write_rate      bytes per second the host sends to this drive    [B/s]
    rated_writes         host writes the vendor warrants                  [B]
    rated_amplification  amplification already inside that figure         [-]
    amplification        amplification of our workload on this drive      [-]
    Infinite at zero flow, zero at infinite flow or amplification; falls with both. A life far beyond the
    warranty says that wear is no limit, not that the drive lasts so long. Source: derived here from the
    definition of TBW.
    """
    with np.errstate(divide="ignore"):
        return np.multiply(rated_writes, rated_amplification) / np.multiply(host_write_rate, amplification)


def write_budget(
    target_lifetime: ArrayLike,
    rated_writes: ArrayLike,
    rated_amplification: ArrayLike = 1.0,
    amplification: ArrayLike = 1.0,
) -> np.ndarray:
    """Host write rate that uses up the rated wear exactly at the target [B/s]; the inverse of `lifetime` in
    the rate.

    target_lifetime [s], rated_writes [B], rated_amplification [-], amplification [-], as in `lifetime`.
    Zero for an endless target, infinite for a target of zero.
    """
    with np.errstate(divide="ignore"):
        return np.multiply(rated_writes, rated_amplification) / np.multiply(target_lifetime, amplification)


def drives_needed(host_write_rate: ArrayLike, write_budget: ArrayLike) -> np.ndarray:
    """Whole drives that together carry a flow within their budgets [-] = ceil(w / budget of one drive).

    host_write_rate  flow to be spread evenly over the drives   [B/s]
    write_budget     what one drive may take, above zero        [B/s]
    Zero at zero flow; infinite when a drive may take nothing.
    """
    with np.errstate(divide="ignore"):
        return np.ceil(np.divide(host_write_rate, write_budget))


def wear_cost_per_byte(
    drive_price: ArrayLike,
    rated_writes: ArrayLike,
    rated_amplification: ArrayLike = 1.0,
    amplification: ArrayLike = 1.0,
) -> np.ndarray:
    """Price of the wear behind one host byte [USD/B] = price * A / (E A_r).

    drive_price [USD], rated_writes [B], rated_amplification [-], amplification [-], as in `lifetime`.
    What a write must earn on a drive whose life is ended by wear; where `lifetime` passes the time the drive
    is kept anyway the capacity rent already pays for the drive, and charging both counts it twice. Source:
    derived here.
    """
    return np.multiply(drive_price, amplification) / np.multiply(rated_writes, rated_amplification)


def program_erase_cycles(
    rated_writes: ArrayLike, raw_capacity: ArrayLike, rated_amplification: ArrayLike = 1.0
) -> np.ndarray:
    """Mean program-erase cycles of the flash at the end of the rating [-] = E A_r / raw capacity.

    rated_writes [B], raw_capacity flash fitted, hidden spare included [B], rated_amplification [-].
    Source: bookkeeping; assumes even wear.
    """
    return np.multiply(rated_writes, rated_amplification) / raw_capacity


def power_off_retention(
    rated_retention: ArrayLike, rated_temperature: ArrayLike, temperature: ArrayLike, activation_energy: ArrayLike = 1.1
) -> np.ndarray:
    """Time worn flash keeps data without power [s] = t_r exp(Ea/k (1/T - 1/T_r)), Arrhenius.

    rated_retention    retention at the rated storage temperature     [s]
    rated_temperature  that temperature                               [degC]
    temperature        storage temperature asked about                [degC]
    activation_energy  of charge loss, 1.1 eV in JESD218              [eV]
    Falls with temperature. A tier that rewrites within days must not be credited with more cycles for it
    unless the vendor says so. Source: JESD218; one year at 30 degC is printed there as about 500 h at 52 and
    96 h at 66.
    """
    inverse = 1 / np.add(temperature, ZERO_CELSIUS_K) - 1 / np.add(rated_temperature, ZERO_CELSIUS_K)
    return rated_retention * np.exp(np.divide(activation_energy, BOLTZMANN_EV_PER_K) * inverse)
