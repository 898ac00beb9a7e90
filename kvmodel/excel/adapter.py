"""The spreadsheet functions, registered with xlwings: a workbook's module imports all names from here.

The same module serves classic xlwings, xlwings Server and xlwings Lite; where none of them runs, the functions are
plain ones.
"""

from __future__ import annotations

import xlwings

from kvmodel.excel import functions  # noqa: F401  (its import fills the catalogue)
from kvmodel.excel.entry import CATALOGUE
from kvmodel.excel.wrapper import registered

# Server and Lite show the text of an XlwingsError beside #VALUE! and do not call again; classic xlwings would put a
# traceback into the cell, so there the cell gets the text alone.
ERROR = xlwings.XlwingsError if xlwings.on_server else None

globals().update({name: registered(entry, xlwings, ERROR) for name, entry in CATALOGUE.items()})
__all__ = list(CATALOGUE)
