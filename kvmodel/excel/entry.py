"""What the catalogue knows of a function: its name, its arguments with units, the columns of its result."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from kvmodel import units
from kvmodel.excel.convert import Rows, read_block, single, spread
from kvmodel.quantity import Quantity


@dataclass(frozen=True, kw_only=True)
class Argument:
    """What an argument means, and how one of its cells is read."""

    doc: str
    unit: str
    """What a bare number is in; "text" for names and paths, "" for a plain number."""
    table: bool = False
    """A range of any size; the other arguments of a function that returns a table are single cells."""

    def read(self, cell: Any) -> Any:
        """The value of a cell that is not blank; ValueError says what is expected."""
        raise NotImplementedError

    @property
    def help(self) -> str:
        """What the function wizard shows."""
        return f"{self.doc} [{self.unit or 'number'}]"


@dataclass(frozen=True, kw_only=True)
class Text(Argument):
    """A name or a path."""

    unit: str = "text"

    def read(self, cell: Any) -> str:
        """The text, without the quotation marks that "copy as path" adds."""
        if not isinstance(cell, str):
            raise ValueError(f"expected text, got {cell!r}")
        return cell.strip().strip('"')


@dataclass(frozen=True, kw_only=True)
class Number(Argument):
    """A number in `unit`, or text with a unit of its own such as "64 GiB"."""

    bounds: Mapping[str, float] = field(default_factory=dict)
    """ge, gt, le, lt in base units."""
    whole: bool = False

    def read(self, cell: Any) -> Any:
        """The value in base units. A number without unit, also one stored as text, is in this argument's unit."""
        dimension, factor = units.unit_factor(self.unit)
        if isinstance(cell, str):
            try:
                cell = float(cell)
            except ValueError:
                return self._checked(units.parse(cell, dimension), dimension)
        if isinstance(cell, bool) or not isinstance(cell, int | float) or not math.isfinite(cell):
            expected, example = units.DIMENSIONS[dimension]
            bare = f"a number in {self.unit}" if self.unit else "a number"
            raise ValueError(f"{cell!r} is not {expected}; give {bare} or text such as {example!r}")
        return self._checked(cell * factor, dimension)

    def _checked(self, value: float, dimension: str) -> float:
        number = Quantity(dimension, **self.bounds)(float(value))
        if self.whole and number != int(number):
            raise ValueError(f"must be a whole number, got {number:g}")
        return number


@dataclass(frozen=True, kw_only=True)
class NumberOrName(Number):
    """A number as above, or the name of a preset that has it."""

    def read(self, cell: Any) -> Any:
        """The number in base units, or the name: names start with a letter."""
        if isinstance(cell, str) and cell.strip()[:1].isalpha():
            return cell.strip()
        return super().read(cell)


@dataclass(frozen=True)
class Column:
    """One column of a result."""

    name: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Entry:
    """One spreadsheet function."""

    name: str
    doc: str
    function: Callable[..., Rows]
    arguments: Mapping[str, Argument]
    columns: tuple[Column, ...]
    is_table: bool
    """The result is a table with a header row; otherwise a block of the shape of the arguments."""
    infinite: str
    """The word a cell shows for an infinite result."""
    slow: bool
    """Takes more than a moment: not to be evaluated while its arguments are being typed."""

    @property
    def help(self) -> str:
        """What the function wizard shows."""
        return self.doc if self.is_table else f"{self.doc} [{self.columns[0].unit}]"

    def is_optional(self, argument: str) -> bool:
        """Whether the argument may be left out."""
        return inspect.signature(self.function).parameters[argument].default is not inspect.Parameter.empty


CATALOGUE: dict[str, Entry] = {}
"""All spreadsheet functions by name, in the order of their definition."""


def block_function(doc: str, column: Column, *, infinite: str = "inf", **arguments: Argument) -> Callable:
    """Register a function whose arguments repeat along each other; its body gets arrays of one shape, base units."""
    return _registered(doc, (column,), arguments, spread, is_table=False, infinite=infinite, slow=False)


def table_function(doc: str, *columns: Column, slow: bool = False, **arguments: Argument) -> Callable:
    """Register a function that returns a table; its body gets single values, and arrays where `table` is said."""

    def converted(blocks: dict[str, Any]) -> dict[str, Any]:
        return {name: block if arguments[name].table else single(name, block) for name, block in blocks.items()}

    return _registered(doc, columns, arguments, converted, is_table=True, infinite="inf", slow=slow)


def _registered(
    doc: str,
    columns: tuple[Column, ...],
    arguments: Mapping[str, Argument],
    converted: Callable[[dict[str, Any]], dict[str, Any]],
    **traits: Any,
) -> Callable:
    def register(body: Callable) -> Callable:
        signature = inspect.signature(body)

        @wraps(body)
        def function(*args: Any, **kwargs: Any) -> Rows:
            given = signature.bind(*args, **kwargs)
            blocks = {}
            for name, parameter in signature.parameters.items():
                optional = parameter.default is not inspect.Parameter.empty
                default = parameter.default if optional else None
                blocks[name] = read_block(name, given.arguments.get(name), arguments[name].read, default, optional)
            return body(**converted(blocks))

        name = body.__name__.upper()
        CATALOGUE[name] = Entry(name, doc, function, arguments, columns, **traits)
        return function

    return register
