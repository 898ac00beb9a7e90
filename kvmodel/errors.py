"""What can go wrong, sorted by who can mend it. Messages are written for the person with the file open.

Nothing here prints or exits: the command line turns these into exit codes, a spreadsheet into a cell text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


class KvmodelError(Exception):
    """Base of every error a user can cause or mend. Its text is complete: no traceback is needed to act."""


class PresetError(KvmodelError):
    """A preset that does not exist, or whose file is not what it should be."""


class MissingNumberError(KvmodelError):
    """A question needs a number nobody gave (a price, a bandwidth); it is named, never guessed."""


class UnsupportedModelError(KvmodelError):
    """An architecture or field for which no exact rule is known; it is refused by name."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input: where, what was given, what is allowed."""

    path: str
    message: str
    line: int | None = None
    column: int | None = None


class StudyError(KvmodelError):
    """All problems of one input, together."""

    def __init__(self, source: str, problems: Iterable[Problem]):
        self.source = source
        self.problems: Sequence[Problem] = tuple(problems)
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        count = len(self.problems)
        lines = [f"{self.source}: {count} problem{'s' if count != 1 else ''}"]
        for problem in self.problems:
            place = self.source if problem.line is None else f"{self.source}:{problem.line}"
            subject = f"{problem.path}: " if problem.path else ""
            lines.append(f"  {place}: {subject}{problem.message}")
        return lines


class Inconsistent(ValueError):
    """Parts of a record that do not go together: each problem begins with the dotted path of the part to mend."""

    def __init__(self, problems: Iterable[str]):
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


def nearest(word: str, known: Iterable[str]) -> str:
    """', did you mean x?' for the closest known name, or '' when nothing is close."""
    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""
