"""What the tests read out of a page: fenced blocks, headings, links, and the changes it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PAGES = sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").glob("*.md")])
TWINS = [page for page in PAGES if page.name.endswith(".zh-CN.md")]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the file it is meant for ("title=..."), its text."""

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Fenced blocks of a page in order."""
    found = []
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        language, _, rest = match["info"].strip().partition(" ")
        found.append(Block(language, rest.removeprefix("title="), match["text"]))
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """Arguments of each `kvmodel` command of a console block; where prompts are shown, the other lines are output."""
    lines = block.text.splitlines()
    prompted = any(line.startswith("$ ") for line in lines)
    for line in lines:
        words = shlex.split(line.removeprefix("$ "), comments=True) if line.startswith("$ ") or not prompted else []
        if words[:1] == ["kvmodel"]:
            yield words[1:]


def bare(text: str) -> str:
    """A block without its comments: twins translate those."""
    return "\n".join(re.sub(r"\s*(^|\s)#.*$", "", line) for line in text.splitlines())


def headings(page: Path) -> list[tuple[str, str]]:
    """(marks, text) of each heading outside fences."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return re.findall(r"^(#+) (.+)$", text, re.M)


def anchors(page: Path) -> set[str]:
    """What a link into the page may name: ids written out, and those made from headings."""
    text = page.read_text(encoding="utf-8")
    made = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for _, title in headings(page)}
    return made | set(re.findall(r'<a id="([^"]+)"', text))


def links(page: Path) -> list[str]:
    """Targets of links between files, addresses on the web left out."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [m["target"] for m in LINK.finditer(text) if "://" not in m["target"]]


def patched(text: str, diff: str) -> str:
    """Text with each hunk of a diff applied; every hunk must be found exactly once."""
    for hunk in filter(None, re.split(r"^@@.*\n", diff, flags=re.M)):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, f"the page shows lines that are not there: {old}"
        text = text.replace(old, new)
    return text
