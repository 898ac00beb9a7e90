"""Numbers as records state them, read strictly: nothing that is not a number passes for one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kvmodel.traces.columns import LARGEST_COUNT, MICROSECONDS, UNKNOWN
from kvmodel.traces.errors import BadRecord

_LATEST_US = 2**61


def json_object(line: str) -> dict[str, Any]:
    """The JSON object on one line. NaN and infinities, which JSON does not have, are refused."""
    try:
        value = json.loads(line, parse_constant=_not_json)
    except RecursionError as error:
        raise BadRecord("nested too deeply") from error
    except json.JSONDecodeError as error:
        raise BadRecord(f"not valid JSON: {error.msg} at column {error.colno}") from error
    except ValueError as error:
        raise BadRecord(f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRecord(f"a JSON object is expected, this is a {type(value).__name__}")
    return value


def tokens(row: Mapping[str, Any], *names: str, required: bool = True) -> int:
    """A whole number >= 0 under the first of these names that is there; UNKNOWN when absent and not
    required.
    """
    name, value = _first(row, names)
    if value is None or value == "":
        if required:
            raise BadRecord(f"{names[0]} is missing")
        return UNKNOWN
    number = _number(name, value)
    if number != int(number):
        raise BadRecord(f"{name} is {value!r}; a whole number is expected")
    if not 0 <= number <= LARGEST_COUNT:
        raise BadRecord(f"{name} is {_short(value)}; allowed are 0 to {LARGEST_COUNT}")
    return int(number)


def microseconds(row: Mapping[str, Any], *names: str, unit_us: int = MICROSECONDS) -> int | None:
    """A time or a pause [microseconds], given in units of `unit_us`; None when absent."""
    name, value = _first(row, names)
    if value is None or value == "":
        return None
    number = _number(name, value) * unit_us
    if abs(number) > _LATEST_US:
        raise BadRecord(f"{name} is {_short(value)}, beyond any clock")
    return round(number)


def clock_microseconds(text: str) -> int:
    """An ISO date and time [microseconds since 1970, UTC when no zone is given]; more than 6 decimals are
    cut.
    """
    head, dot, tail = text.strip().partition(".")
    digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
    try:
        moment = datetime.fromisoformat(head + dot + digits[:6] + tail[len(digits) :])
    except ValueError as error:
        raise BadRecord(f"{text!r} is neither a number of seconds nor a date and time") from error
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * MICROSECONDS + since.microseconds


def _first(row: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    name = next((name for name in names if row.get(name) is not None), names[0])
    return name, row.get(name)


def _number(name: str, value: Any) -> int | float:
    if isinstance(value, str):
        try:
            value = int(value) if value.strip().lstrip("+-").isdigit() else float(value)
        except ValueError as error:
            raise BadRecord(f"{name} is {_short(value)}; a number is expected") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRecord(f"{name} is {_short(value)}; a number is expected")
    if isinstance(value, float) and not (-1e300 < value < 1e300):
        raise BadRecord(f"{name} is {value}; a finite number is expected")
    return value


def _short(value: Any) -> str:
    text = (
        repr(value)
        if not isinstance(value, int) or abs(value) < 10**30
        else f"{str(value)[:12]}... ({len(str(value))} digits)"
    )
    return text if len(text) <= 60 else text[:57] + "..."


def _not_json(word: str) -> None:
    raise BadRecord(f"{word} is not a JSON number")
