"""What capacity costs per time, and what one qualified session costs.

Failed sessions cost as much as qualified ones, so the divisor is what qualifies, not what is offered. Compare designs
at equal attainment: one that sheds load looks cheap per session it serves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["amortized_rate", "cost_per_qualified_session", "power_rate", "rented_rate"]


def amortized_rate(nbytes: ArrayLike, *, price: ArrayLike, service_life: ArrayLike) -> NDArray:
    """Cost per time of bytes that were bought: bytes * price / life, in equal parts and without interest [USD/s].

    nbytes [B]; price [USD/B]; service_life: time over which it is paid off, above zero [s]. Zero for no bytes or a free
    price; endless life costs nothing. Source: bookkeeping.
    """
    return np.asarray(nbytes, float) * price / service_life


def rented_rate(nbytes: ArrayLike, *, rent: ArrayLike) -> NDArray:
    """Cost per time of bytes that are rented: bytes * rent [USD/s]; nbytes [B], rent [USD/B/s]."""
    return np.asarray(nbytes, float) * rent


def power_rate(power: ArrayLike, *, electricity: ArrayLike, power_usage_effectiveness: ArrayLike = 1.0) -> NDArray:
    """Cost per time of a load: power * facility overhead * price of electricity [USD/s].

    power: of the equipment [W]; electricity [USD/J]; power_usage_effectiveness: facility over equipment power, one or
    more [-]. Source: definition of PUE (ISO/IEC 30134-2).
    """
    return np.asarray(power, float) * power_usage_effectiveness * electricity


def cost_per_qualified_session(
    cost_rate: ArrayLike, *, session_rate: ArrayLike, attainment: ArrayLike = 1.0
) -> NDArray:
    """Cost of one session that kept all its limits: cost rate / (sessions per second * share that qualifies) [USD].

    cost_rate: of the whole fleet [USD/s]; session_rate: offered [1/s]; attainment: share that qualifies [0-1].
    Infinite where nothing qualifies, also of a free fleet. Source: cost over goodput, derived here.
    """
    qualified = np.asarray(session_rate, float) * attainment
    some = qualified > 0
    return np.where(some, cost_rate / np.where(some, qualified, 1.0), np.inf)
