"""What things cost. A missing price is refused by name when a cost is asked for."""

from __future__ import annotations

from typing import Annotated, Any

from kvmodel.quantity import Quantity, Record
from kvmodel.system.prompt_cache import PromptCachePlan

PerByte = Annotated[Any, Quantity("USD/B", ge=0, le=1e-3)]
PerTime = Annotated[Any, Quantity("USD/s", ge=0, le=1e3)]


class PriceRange(Record):
    """Low and high ends of a price."""

    low: Any
    high: Any


class Prices(Record):
    """A price list."""

    preset: str | None = None
    """Preset it comes from, with what was changed."""
    gpu: PerTime | None = None
    """Price of one GPU per time; before the list by GPU name."""
    gpus: dict[str, PerTime] = {}
    """Price of one GPU per time, by GPU preset."""
    dram: PerByte | None = None
    """Host memory, bought."""
    cxl: PerByte | None = None
    """CXL memory, bought."""
    nvme: PerByte | None = None
    """Flash drives, bought."""
    remote: PerByte | None = None
    """Memory or flash of other hosts, bought."""
    object_store: Annotated[Any, Quantity("USD/B/s", ge=0)] | None = None
    """Object store, rented by byte and time."""
    prompt_cache: dict[str, PromptCachePlan] = {}
    """A provider's prompt-cache plans by name, to compare with keeping the KV oneself."""
    electricity: Annotated[Any, Quantity("USD/J", ge=0)] = 0.0
    """Electricity for the tiers; a rented GPU's price includes its own."""
    power_usage_effectiveness: Annotated[Any, Quantity("", ge=1, le=5)] = 1.0
    """Facility power over equipment power."""
    amortization: Annotated[Any, Quantity("s", gt=0)] = 4 * 31_536_000.0
    """Time over which bought memory is paid off."""
    ranges: dict[str, PriceRange] = {}
    """Low and high ends of the prices, for uncertainty; no result uses them by itself."""
