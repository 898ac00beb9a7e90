"""Cells to values and back. The one place that knows what a spreadsheet sends and what it can take.

A cell is a number, text, a truth value or blank (None or ""). An argument is one cell or rows of cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kvmodel.errors import KvmodelError

LONGEST_TEXT = 32_767  # characters a cell holds

Rows = list[list[Any]]


def is_blank(cell: Any) -> bool:
    """Whether a cell holds nothing; a formula that shows nothing gives ""."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def rows(given: Any) -> Rows:
    """One cell, a row or a range as rows of equal length."""
    if not isinstance(given, list | tuple):
        return [[given]]
    if not given or not isinstance(given[0], list | tuple):
        given = [given]
    if len({len(row) for row in given}) != 1 or not given[0]:
        raise KvmodelError("a range needs rows of equal length with at least one cell")
    return [list(row) for row in given]


def read_block(name: str, given: Any, read: Callable[[Any], Any], default: Any, optional: bool) -> np.ndarray:
    """Every cell of an argument read, blank ones as the default; errors name the argument and the place in it."""
    cells = rows(given)

    def value(cell: Any, row: int, column: int) -> Any:
        place = name if len(cells) == len(cells[0]) == 1 else f"{name} (row {row}, column {column})"
        if is_blank(cell):
            if not optional:
                raise KvmodelError(f"{place} is blank")
            return default
        try:
            return read(cell)
        except ValueError as error:
            raise KvmodelError(f"{place}: {error}") from None

    values = [[value(cell, i, j) for j, cell in enumerate(row, 1)] for i, row in enumerate(cells, 1)]
    numeric = all(isinstance(v, float) for row in values for v in row)
    return np.array(values, dtype=float if numeric else object)


def spread(blocks: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The blocks at their common shape: a single cell, row or column repeats along the others."""
    try:
        shape = np.broadcast_shapes(*(block.shape for block in blocks.values()))
    except ValueError:
        sizes = ", ".join(f"{name} {b.shape[0]} x {b.shape[1]}" for name, b in blocks.items() if b.size > 1)
        raise KvmodelError(
            f"the ranges do not fit together ({sizes}): give equal sizes, one row against one column, or single cells"
        ) from None
    return {name: np.broadcast_to(block, shape) for name, block in blocks.items()}


def single(name: str, block: np.ndarray) -> Any:
    """The value of an argument that must be one cell."""
    if block.size != 1:
        raise KvmodelError(f"{name} must be one cell, got a range of {block.shape[0]} x {block.shape[1]}")
    return block[0, 0]


def each(answer: Callable[..., Any], *blocks: np.ndarray) -> Rows:
    """The answer of every cell of blocks of one shape.

    In a range a cell that has no answer holds the reason as text, so that one bad row does not hide the others;
    a single cell raises.
    """
    alone = blocks[0].size == 1

    def one(*cells: Any) -> Any:
        try:
            return answer(*cells)
        except KvmodelError as error:
            if alone:
                raise
            return str(error)

    return [[one(*cells) for cells in zip(*parts, strict=True)] for parts in zip(*blocks, strict=True)]


def cell(value: Any, infinite: str) -> Any:
    """A result as a spreadsheet takes it: float, text, truth value or None. NaN is blank; infinity a word."""
    if value is None or isinstance(value, bool | np.bool_):
        return None if value is None else bool(value)
    if isinstance(value, int | float | np.integer | np.floating):
        number = float(value)  # a spreadsheet has no other number
        if math.isnan(number):
            return None
        return number if math.isfinite(number) else infinite if number > 0 else f"-{infinite}"
    return str(value)[:LONGEST_TEXT]


def cells(result: Iterable[Sequence[Any]], infinite: str) -> Rows:
    """A block of results, every cell cleaned."""
    return [[cell(value, infinite) for value in row] for row in result]
