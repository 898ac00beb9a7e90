"""Numbers of records: one declaration checks scalars, text and arrays alike."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pydantic import TypeAdapter, ValidationError

from kvmodel.quantity import Bandwidth, Bytes, Fraction, Quantity, Record, Seconds


class Link(Record):
    """A link, for these tests."""

    bandwidth: Bandwidth
    """Bytes per second it moves."""
    latency: Seconds = 0.0
    share: Fraction = 1.0
    buffer: Bytes | None = None


def message(field: str, value: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        Link(**{"bandwidth": 1.0, field: value})
    (error,) = caught.value.errors()
    assert error["loc"] == (field,)
    return error["msg"]


def test_number_text_and_array_mean_the_same() -> None:
    assert Link(bandwidth=20e9).bandwidth == Link(bandwidth="20 GB/s").bandwidth == 20e9
    swept = Link(bandwidth=np.array([1, 2, 3])).bandwidth
    assert swept.dtype == float and swept.tolist() == [1.0, 2.0, 3.0]


def test_whole_numbers_and_zero_dimensional_arrays_become_floats() -> None:
    for value in (3, np.int64(3), np.float32(3), np.array(3)):
        assert type(Link(bandwidth=value).bandwidth) is float


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        np.bool_(True),
        np.array([True, False]),
        [True],
        None,
        {},
        {"a": 1},
        object(),
        1j,
        [[1], [1, 2]],
        ["x"],
        10**400,
    ],
)
def test_what_is_not_a_number_is_refused_with_an_example(value: Any) -> None:
    assert "expected a bandwidth, for example '20 GiB/s'" in message("bandwidth", value)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("bandwidth", 0, "must be more than 0 B/s, got 0 B/s"),
        ("bandwidth", "-1 GB/s", "must be more than 0 B/s, got -1.00 GB/s"),
        ("bandwidth", 1e30, "must be at most 10,000 TB/s"),
        ("latency", -1, "must be at least 0 s, got -1.00 s"),
        ("share", "120%", "must be at most 1.00, got 1.20"),
        ("share", np.array([0.5, 1.5, 0.2]), "must be at most 1.00, got 1.50"),
        ("bandwidth", np.nan, "not a number"),
        ("bandwidth", np.array([1.0, np.nan]), "not a number"),
        ("bandwidth", "20 GiB", "is a size in bytes; expected a bandwidth"),
    ],
)
def test_bounds_are_told_in_units(field: str, value: Any, says: str) -> None:
    assert says in message(field, value)


def test_optional_numbers_may_be_absent() -> None:
    assert Link(bandwidth=1, buffer=None).buffer is None


@given(arrays.arrays(float, arrays.array_shapes(max_dims=3, max_side=4), elements=st.floats(-2, 2)))
def test_an_array_passes_exactly_when_all_its_elements_do(value: np.ndarray) -> None:
    quantity = Quantity("", ge=-1, lt=1)

    def passes(number: Any) -> bool:
        try:
            quantity(number)
        except ValueError:
            return False
        return True

    assert passes(value) == all(passes(float(element)) for element in value.flat)


def test_records_are_frozen_and_refuse_unknown_keys() -> None:
    with pytest.raises(ValidationError):
        Link(bandwidth=1).bandwidth = 2
    with pytest.raises(ValidationError):
        Link(bandwidth=1, bandwith=2)


def test_schema_states_number_or_text_with_bounds_and_unit() -> None:
    schema = Link.model_json_schema()["properties"]
    assert schema["bandwidth"]["unit"] == "B/s"
    assert schema["bandwidth"]["description"] == "Bytes per second it moves."
    number, text = schema["share"]["anyOf"]
    assert (number["minimum"], number["maximum"], text["type"]) == (0, 1, "string")
    exclusive = TypeAdapter(Annotated[Any, Quantity("s", gt=0, lt=9)]).json_schema()["anyOf"][0]
    assert (exclusive["exclusiveMinimum"], exclusive["exclusiveMaximum"]) == (0, 9)


def test_arrays_serialise_as_lists() -> None:
    assert Link(bandwidth=np.array([1.0, 2.0])).model_dump(mode="json")["bandwidth"] == [1.0, 2.0]
