"""The numbers of a study's record with their paths, units and meaning, as the fields declare them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

import numpy as np

from kvmodel.quantity import Quantity, Record, field_meaning


class Parameter(NamedTuple):
    """One number of the study."""

    path: str
    value: Any
    dimension: str
    meaning: str


def parameters(record: Record, path: str = "") -> Iterator[Parameter]:
    """Every number that has a value, stated or by default, in the order in which it is declared."""
    for name, field in type(record).model_fields.items():
        place = f"{path}.{field.alias or name}".lstrip(".")
        value, quantity = getattr(record, name), _quantity(field)
        if quantity is not None and _is_number(value):
            yield Parameter(place, value, quantity.dimension, field_meaning(type(record), name))
        else:
            yield from _inside(value, place)


def _inside(value: Any, place: str) -> Iterator[Parameter]:
    if isinstance(value, Record):
        yield from parameters(value, place)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _inside(item, f"{place}.{key}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _inside(item, f"{place}.{index}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.ndarray)) and not isinstance(value, bool)


def _quantity(field: Any) -> Quantity | None:
    """The declaration of a field, also where it stands inside `... | None`."""
    declared = [*field.metadata]
    for part in get_args(field.annotation):
        declared += getattr(part, "__metadata__", ())
    return next((item for item in declared if isinstance(item, Quantity)), None)
