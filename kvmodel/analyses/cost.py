"""What the GPUs and the tiers cost per time. A price that is needed and not given is refused by name.

Question answered: what does an arm cost per hour, whoever uses it?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvmodel.analyses.capacity import bought_bytes
from kvmodel.errors import MissingNumberError
from kvmodel.formulas import cost
from kvmodel.system.case import Case


def gpu_cost_rate(case: Case) -> Any:
    """Price of all GPUs per time [USD/s]."""
    prices, gpu = case.prices, case.deployment.gpu
    name = (gpu.preset or "").split(" ")[0]
    price = prices.gpu if prices.gpu is not None else prices.gpus.get(name)
    if price is None:
        listed = f"; the price list has {', '.join(prices.gpus)}" if prices.gpus else ""
        raise MissingNumberError(f"prices.gpu is not given and no list price is known for {name or 'this GPU'}{listed}")
    return np.asarray(price, float) * gpu.count


def tier_cost_rate(case: Case, tier: str) -> Any:
    """Price of a storage tier per time: its bytes paid off over the amortization time (or rented), and its power
    [USD/s]."""
    record, prices = case.tiers[tier], case.prices
    nbytes = bought_bytes(case, tier)
    if record.kind == "object_store":
        if prices.object_store is None:
            raise MissingNumberError("prices.object_store is not given; it is needed to price " + tier)
        return cost.rented_rate(nbytes, rent=prices.object_store)
    price = record.price if record.price is not None else getattr(prices, record.kind, None)
    if price is None:
        raise MissingNumberError(f"prices.{record.kind} is not given; it is needed to price tier {tier!r}")
    bought = cost.amortized_rate(nbytes, price=price, service_life=prices.amortization)
    if record.power is not None:
        power = np.asarray(record.power, float) * record.count
    else:
        power = nbytes * (0.0 if record.power_per_byte is None else np.asarray(record.power_per_byte, float))
    return bought + cost.power_rate(
        power, electricity=prices.electricity, power_usage_effectiveness=prices.power_usage_effectiveness
    )


def cost_rate(case: Case, tiers: Sequence[str]) -> Any:
    """GPUs and the storage tiers in use [USD/s]; the GPUs' own memory is in their price."""
    return gpu_cost_rate(case) + sum(tier_cost_rate(case, tier) for tier in tiers if tier in case.storage_tiers)
