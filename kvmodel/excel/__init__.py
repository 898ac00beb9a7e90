"""Spreadsheet functions: a catalogue of plain functions over cells, and a thin adapter that registers them.

`functions` and `wrapper` need no spreadsheet; only `adapter` imports xlwings.
"""
