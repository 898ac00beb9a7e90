"""Exit statuses, stable so that scripts can branch on them."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """What a run of the command line ends with."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2  # wrong options, or an input that is not valid
    FINDING = 3  # with --check: a target missed, or nothing feasible
    INTERRUPTED = 130
