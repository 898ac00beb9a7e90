"""Units at the door: what a planner types, read as meant or refused with a way out."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvmodel import units

YEAR = 8760 * 3600.0


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        # The inputs other parsers misread, with the meaning a reader gives them (SI and IEC 80000-13 prefixes).
        ("2GiB", "B", 2 * 1024**3),
        ("1.5 TB", "B", 1.5e12),
        ("20 GiB/s", "B/s", 20 * 1024**3),
        ("100 Gb/s", "B/s", 12.5e9),
        ("400Gbit/s", "B/s", 50e9),
        ("$2.10/h", "USD/s", 2.10 / 3600),
        ("80%", "", 0.8),
        ("128k tokens", "token", 128_000),
        ("128K tokens", "token", 128_000),
        ("12 req/s", "/s", 12),
        ("3 DWPD", "/s", 3 / 86_400),
        ("1/min", "/s", 1 / 60),
        ("10us", "s", 10e-6),
        ("10\N{MICRO SIGN}s", "s", 10e-6),
        ("10\N{GREEK SMALL LETTER MU}s", "s", 10e-6),
        ("1e3GiB", "B", 1000 * 1024**3),
        # One of each dimension.
        ("5 yr", "s", 5 * YEAR),
        ("1 month", "s", 730 * 3600),
        ("320 KiB/token", "B/token", 327_680),
        ("5000 tokens/s", "token/s", 5000),
        ("989 TFLOP/s", "FLOP/s", 989e12),
        ("989 TFLOPS", "FLOP/s", 989e12),
        ("2e-10 s/token^2", "s/token^2", 2e-10),
        ("0.003 B/FLOP", "B/FLOP", 0.003),
        ("0.2 USD/GB", "USD/B", 0.2e-9),
        ("0.11 USD/GB/month", "USD/B/s", 0.11e-9 / (730 * 3600)),
        ("0.08 USD/kWh", "USD/J", 0.08 / 3.6e6),
        ("3 USD/Mtokens", "USD/token", 3e-6),
        ("3 USD/M tokens", "USD/token", 3e-6),
        ("0.3 W/GB", "W/B", 0.3e-9),
        ("1 GB per s", "B/s", 1e9),
        ("70B parameters", "", 70e9),
        ("-3 GiB", "B", -3 * 1024**3),  # bounds are the field's business
    ],
)
def test_reads_what_a_planner_means(text: str, dimension: str, value: float) -> None:
    assert units.parse(text, dimension) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "dimension", "says"),
    [
        ("2G", "B", "write GB (powers of 1000) or GiB (powers of 1024)"),
        ("2Gi", "B", "write GB (powers of 1000) or GiB (powers of 1024)"),
        ("2K", "B", "write kB (powers of 1000) or KiB (powers of 1024)"),
        ("20 GiB/s", "B", "is a bandwidth; expected a size in bytes"),
        ("20 GiB", "B/s", "is a size in bytes; expected a bandwidth"),
        ("50%", "s", "is a plain number; expected a time"),
        ("1 gb", "B", "did you mean GB or Gb?"),
        ("20 Gbps", "B/s", "did you mean Gb/s?"),
        ("1:30", "s", "not a unit"),
        ("0x70B", "B", "not a unit"),
        ("1_000", "B", "not a unit"),
        ("1,000 GB", "B", "not a unit"),
        ("1 s^x", "s", "not a unit"),
        ("1 h^999", "s", "not a unit"),
        ("1 s/", "s", "not a unit"),
        ("NO", "s", "is not a number with a unit"),
        ("", "s", "is not a number with a unit"),
        ("nan", "B", "is not a number with a unit"),
        ("1e400 GB", "B", "is not a finite number"),
        ("1e308 GB", "B", "is not a finite number"),
    ],
)
def test_refuses_with_what_was_read_and_an_example(text: str, dimension: str, says: str) -> None:
    with pytest.raises(ValueError) as caught:
        units.parse(text, dimension)
    assert says in str(caught.value)
    assert units.DIMENSIONS[dimension][1] in str(caught.value)


def test_bit_and_byte_decimal_and_binary_are_never_equal() -> None:
    assert units.parse("1 GB", "B") == 8 * units.parse("1 Gb", "B")
    assert units.parse("1 GiB", "B") / units.parse("1 GB", "B") == 1.073741824


@pytest.mark.parametrize("dimension", units.DIMENSIONS)
def test_every_example_is_of_its_dimension(dimension: str) -> None:
    assert units.parse(units.DIMENSIONS[dimension][1], dimension) > 0


@pytest.mark.parametrize("dimension", units.DIMENSIONS)
@given(number=st.floats(1e-12, 1e15))
def test_a_bare_number_is_in_the_base_unit(dimension: str, number: float) -> None:
    assert units.parse(repr(number), dimension) == number


@pytest.mark.parametrize("dimension", units.DIMENSIONS)
@given(exponent=st.floats(-18, 20), sign=st.sampled_from([1, -1]))
def test_text_reads_back_within_its_digits(dimension: str, exponent: float, sign: int) -> None:
    """Three digits keep half a percent. The thousands commas are for eyes: parse refuses them."""
    value = sign * 10**exponent
    shown = units.text(value, dimension)
    assert units.parse(shown.replace(",", ""), dimension) == pytest.approx(value, rel=5e-3)


def test_text_of_what_is_not_a_number() -> None:
    assert units.text(math.nan, "B") == "n/a"
    assert units.text(-math.inf, "s") == "-∞"
    assert units.text(0.0, "B") == "0 B"


@given(st.text(max_size=30), st.sampled_from(sorted(units.DIMENSIONS)))
def test_any_text_gives_a_finite_number_or_a_value_error(text: str, dimension: str) -> None:
    try:
        assert math.isfinite(units.parse(text, dimension))
    except ValueError as error:
        assert units.DIMENSIONS[dimension][1] in str(error)


@given(
    number=st.integers(0, 10**6),
    name=st.sampled_from(sorted(units.UNITS)),
    per=st.sampled_from(["", "/s", "/GB", "/token^2"]),
    dimension=st.sampled_from([*units.DIMENSIONS]),
)
def test_a_unit_scales_by_its_factor_or_is_refused(number: int, name: str, per: str, dimension: str) -> None:
    unit = name + per
    assume(unit != "B")  # of a count, "70 B" is 70 billion
    try:
        value = units.parse(f"{number} {unit}", dimension)
    except ValueError:
        return
    assert value == pytest.approx(number * units.unit_factor(unit)[1])
