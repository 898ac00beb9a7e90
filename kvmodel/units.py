"""Text with units to base units and back: "1.5 TiB", "20 GiB/s", "0.2 USD/GB", "700 tokens", "5 yr".

Inside the package every number is in base units (byte, second, token, FLOP, USD, watt, fraction); text stands
only at the edges. GB is 1e9 bytes, GiB is 2**30; b is a bit, B a byte; a month is 730 h and a year 8760 h.
A bare multiple ("2G") is refused because it does not say of what.
"""

from __future__ import annotations

import math
import re
from difflib import get_close_matches

HOUR = 3600.0
DAY = 24 * HOUR
MONTH = 730 * HOUR
YEAR = 8760 * HOUR
GB = 1e9
GIB = 2.0**30

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}
_COUNTED = (
    "token",
    "tokens",
    "request",
    "requests",
    "req",
    "session",
    "sessions",
    "turn",
    "turns",
    "op",
    "ops",
    "IO",
    "IOs",
    "block",
    "blocks",
    "element",
    "elements",
    "GPU",
    "GPUs",
    "drive",
    "drives",
)


def _table() -> dict[str, tuple[str, float]]:
    """Unit spelling -> (dimension symbol, factor to the base unit)."""
    table: dict[str, tuple[str, float]] = {}
    for prefix, factor in {**_DECIMAL, **_BINARY}.items():
        table[prefix + "B"] = ("B", factor)
        table[prefix + "b"] = table[prefix + "bit"] = table[prefix + "bits"] = ("B", factor / 8)
    for prefix, factor in _DECIMAL.items():
        table[prefix + "FLOP"] = table[prefix + "FLOPs"] = ("FLOP", factor)
        table[prefix + "FLOPS"] = ("FLOP/s", factor)
        table[prefix + "W"] = ("W", factor)
        table[prefix + "Wh"] = ("J", factor * HOUR)
        table[prefix + "J"] = ("J", factor)
    table["mW"] = ("W", 1e-3)
    for names, seconds in (
        ("s sec second seconds", 1.0),
        ("ms", 1e-3),
        ("us µs μs", 1e-6),
        ("ns", 1e-9),
        ("min minute minutes", 60.0),
        ("h hr hour hours", HOUR),
        ("d day days", DAY),
        ("week weeks", 7 * DAY),
        ("month months", MONTH),
        ("yr year years", YEAR),
    ):
        for name in names.split():
            table[name] = ("s", seconds)
    for name in _COUNTED:
        table[name] = ("token" if name.startswith("token") else "", 1.0)
    for prefix, factor in (("k", 1e3), ("K", 1e3), ("M", 1e6), ("B", 1e9)):
        table[prefix + "tokens"] = ("token", factor)
    table["parameters"] = table["params"] = ("", 1.0)
    table["USD"] = table["$"] = ("USD", 1.0)
    table["cycle"] = table["cycles"] = ("", 1.0)
    table["%"] = ("", 0.01)
    table["DWPD"] = ("/s", 1 / DAY)
    return table


UNITS = _table()

# dimension -> (what to call it in a message, an example a user can copy)
DIMENSIONS = {
    "B": ("a size in bytes", "64 GiB"),
    "B/s": ("a bandwidth", "20 GiB/s"),
    "s": ("a time", "150 ms"),
    "/s": ("a rate", "0.5 /s"),
    "token": ("a number of tokens", "8k tokens"),
    "B/token": ("bytes per token", "320 KiB/token"),
    "token/s": ("tokens per second", "5000 tokens/s"),
    "FLOP/s": ("a compute rate", "989 TFLOP/s"),
    "s/token": ("seconds per token", "50 us/token"),
    "s/token^2": ("seconds per token squared", "2e-10 s/token^2"),
    "s/B": ("seconds per byte", "1e-11 s/B"),
    "B/FLOP": ("bytes per FLOP", "0.003 B/FLOP"),
    "USD": ("an amount of money", "9000 USD"),
    "USD/s": ("money per time", "2.5 USD/h"),
    "USD/B": ("money per byte", "0.2 USD/GB"),
    "USD/B/s": ("money per byte and time", "0.11 USD/GB/month"),
    "USD/J": ("money per energy", "0.08 USD/kWh"),
    "USD/token": ("money per token", "3 USD/Mtokens"),
    "W": ("a power", "700 W"),
    "W/B": ("power per byte", "0.3 W/GB"),
    "": ("a plain number", "0.9"),
}

_NUMBER = re.compile(
    r"\s*(?P<currency>\$?)\s*(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>.*?)\s*$"
)
_MULTIPLE = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def _power(symbols: dict[str, int], symbol: str, exponent: int) -> None:
    top, _, bottom = symbol.partition("/")  # "/s" (DWPD) and "FLOP/s" (FLOPS) are units of their own
    for name, sign in ((top, 1), (bottom, -1)):
        if name:
            symbols[name] = symbols.get(name, 0) + sign * exponent


def _dimension(symbols: dict[str, int]) -> str:
    order = ("USD", "B", "FLOP", "J", "W", "token", "s")
    top = [n if p == 1 else f"{n}^{p}" for n in order if (p := symbols.get(n, 0)) > 0]
    bottom = [n if p == -1 else f"{n}^{-p}" for n in order if (p := symbols.get(n, 0)) < 0]
    return "".join(top) + "".join("/" + b for b in bottom)


def unit_factor(unit: str) -> tuple[str, float]:
    """Dimension and factor to base units of a unit expression such as "GB/s" or "USD/GB/month".

    Raises ValueError with the nearest readings when a part is not a unit.
    """
    symbols: dict[str, int] = {}
    factor = 1.0
    for index, part in enumerate(unit.replace(" per ", "/").split("/")):
        part = part.strip()
        if index == 0 and not part:
            continue
        base, hat, power = part.partition("^")
        if hat and power not in ("2", "3"):
            raise ValueError(f"{part!r} is not a unit")
        words = base.split()
        if len(words) == 2 and words[0] in _MULTIPLE and words[1] in UNITS:  # "20 k tokens"
            factor *= _MULTIPLE[words[0]] if index == 0 else 1 / _MULTIPLE[words[0]]
            base = words[1]
        if base not in UNITS:
            raise ValueError(f"{base!r} is not a unit{_similar(base)}")
        symbol, value = UNITS[base]
        exponent = (1 if index == 0 else -1) * int(power or 1)
        _power(symbols, symbol, exponent)
        factor *= value**exponent
    return _dimension(symbols), factor


def _similar(name: str) -> str:
    """' (did you mean GB or Gb?)': case matters in units, so all that differ only in case are named."""
    per_second = name[:-2] + "/s" if name.endswith("ps") and name[:-2] in UNITS else ""
    same = [per_second] if per_second else [unit for unit in UNITS if unit.lower() == name.lower()]
    near = same or get_close_matches(name, UNITS, n=1, cutoff=0.6)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def parse(text: str, dimension: str) -> float:
    """Value of `text` in the base unit of `dimension` (a key of DIMENSIONS).

    A bare number is already in the base unit. Raises ValueError that says what was read, what is expected,
    and an example.
    """
    expected, example = DIMENSIONS[dimension]
    want = f"expected {expected}, for example {example!r}"
    match = _NUMBER.match(text)
    if not match:
        raise ValueError(f"{text!r} is not a number with a unit; {want}")
    value = float(match["number"])
    unit = match["unit"]
    if match["currency"]:
        unit = "USD" + unit
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number; {want}")
    if not unit:
        return value
    if unit in _MULTIPLE and dimension in ("token", ""):  # "128k" of a count is unambiguous
        return value * _MULTIPLE[unit]
    if unit in _DECIMAL or unit in _BINARY:
        decimal = unit.rstrip("i").upper().replace("K", "k")
        raise ValueError(
            f"{text!r} does not say of what: write {decimal}B (powers of 1000) or "
            f"{decimal.replace('k', 'K')}iB (powers of 1024), or name the unit; {want}"
        )
    try:
        found, factor = unit_factor(unit)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; {want}") from None
    if found != dimension and not (dimension == "token" and found == ""):
        name = DIMENSIONS[found][0] if found in DIMENSIONS else f"in {found or 'no unit'}"
        raise ValueError(f"{text!r} is {name}; {want}")
    if not math.isfinite(value * factor):
        raise ValueError(f"{text!r} is not a finite number; {want}")
    return value * factor


_STEPS = {
    "B": [(2.0**50, "PiB"), (2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")],
    "B/s": [(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
    "s": [(YEAR, "yr"), (DAY, "d"), (HOUR, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")],
    "token": [(1e6, "M tokens"), (1e3, "k tokens"), (1.0, "tokens")],
    "B/token": [(1024.0, "KiB/token"), (1.0, "B/token")],
    "FLOP/s": [(1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s")],
    "W": [(1e3, "kW"), (1.0, "W")],
}
_FIXED = {
    "USD/s": (1 / HOUR, "USD/h"),
    "USD/B": (1e-9, "USD/GB"),
    "USD/J": (1 / 3.6e6, "USD/kWh"),
    "USD/B/s": (1e-9 / MONTH, "USD/GB/month"),
    "W/B": (1e-9, "W/GB"),
    "token/s": (1.0, "tokens/s"),
}


def scale(value: float, dimension: str) -> tuple[float, str]:
    """The (factor, unit) in which a value of this size reads best: divide by the factor."""
    if dimension in _FIXED:
        return _FIXED[dimension]
    steps = _STEPS.get(dimension, [(1.0, dimension)])
    if value == 0:
        return next(step for step in steps if step[0] == 1.0)
    return next((step for step in steps if abs(value) >= step[0] * 0.9995), steps[-1])


def text(value: float, dimension: str, digits: int = 3) -> str:
    """Readable text of a base-unit value, for example text(1.6e12, "B") == "1.46 TiB"."""
    if value is None or math.isnan(value):
        return "n/a"
    if math.isinf(value):
        return number(value, digits)
    factor, unit = scale(value, dimension)
    return f"{number(value / factor, digits)} {unit}".strip()


def number(value: float, digits: int = 3) -> str:
    """Readable text of a plain number with about that many digits: 0.0123, 1.50, 12,345, 1.2e+07."""
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else ("-" if value < 0 else "") + "∞"
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    shown = f"{value:,.{min(places, 6)}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown and places > 2 else shown
