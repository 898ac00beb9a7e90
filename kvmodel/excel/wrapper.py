"""What a spreadsheet calls: a catalogue function with its result cleaned and its errors put into words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kvmodel.errors import KvmodelError
from kvmodel.excel.convert import Rows, cells
from kvmodel.excel.entry import Entry


def cell_function(entry: Entry, error: type[Exception] | None = None) -> Callable[..., Rows]:
    """The function of an entry for use in cells.

    error: the exception a user's mistake is raised as; None: the answer is one cell with the text.
    Annotations are left off, since xlwings takes them for converters, and the signature is kept.
    """

    def wrapper(*args, **kwargs):
        try:
            return cells(entry.function(*args, **kwargs), entry.infinite)
        except (KvmodelError, OSError) as problem:
            if error is not None:
                raise error(str(problem)) from None
            return cells([[str(problem)]], entry.infinite)

    signature = inspect.signature(entry.function)
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    wrapper.__signature__ = inspect.Signature(plain)
    wrapper.__name__ = wrapper.__qualname__ = entry.name
    wrapper.__doc__ = entry.help
    return wrapper


def registered(entry: Entry, xlwings: Any, error: type[Exception] | None) -> Callable[..., Rows]:
    """The cell function of an entry, registered with the decorators of `xlwings`.

    Every argument arrives as rows of cells. Options of other xlwings editions than the present one are ignored by it.
    """
    function = cell_function(entry, error)
    for name, argument in entry.arguments.items():
        function = xlwings.arg(name, ndim=2, doc=argument.help)(function)
    return xlwings.func(category="kvmodel", call_in_wizard=not entry.slow)(function)
