"""Spreadsheet functions of kvmodel: put this file beside a workbook and name it under "UDF Modules"."""
from kvmodel.excel.adapter import *  # noqa: F403
