"""What the pages show is true: commands run, studies are valid, snippets run, links lead somewhere, twins agree."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys

import pytest
import zstandard

from kvmodel.cli.app import run
from kvmodel.study.load import parse_study
from tests.conftest import ROOT
from tests.docs.pages import PAGES, TWINS, anchors, bare, blocks, commands, headings, links, patched
from tests.docs.study_reference import PAGE as STUDY_PAGE
from tests.docs.study_reference import rewritten

NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
KIND_PAGE = ROOT / "docs" / "adding_a_kind.md"
SHOWN_ELSEWHERE = {"docs/validation.md"}  # needs the measured cases; the tests of `evaluate` run it
CASE_KEYS = ("model:", "deployment:", "tiers:", "workload:")


def is_study(text):
    return all(f"\n{key}" in f"\n{text}" for key in CASE_KEYS)


def pages_with(test):
    return pytest.mark.parametrize("page", [p for p in PAGES if test(p)], ids=lambda p: p.name)


def has_commands(page):
    english = page not in TWINS and page.relative_to(ROOT).as_posix() not in SHOWN_ELSEWHERE
    return english and any(list(commands(b)) for b in blocks(page) if b.language == "console")


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A place that looks like a clone, with the files that a reader is meant to have."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    trace = "".join(
        json.dumps({"timestamp": 1000 * i, "input_length": 1024, "output_length": 8, "hash_ids": [0, i % 3 + 1]}) + "\n"
        for i in range(12)
    ).encode()
    for name in ("requests.jsonl.gz", "conversation.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(trace))
    (tmp_path / "agents.jsonl.zst").write_bytes(zstandard.compress(trace))
    for name, column, seconds in (
        ("points.csv", "tokens", lambda n: 0.02 + 1e-5 * n + 1e-10 * n * n),
        ("moves.csv", "bytes", lambda n: 0.001 + n / 1e6),
    ):
        rows = [f"{n},{seconds(n)}" for n in (1000, 2000, 4000, 8000, 16_000)]
        (tmp_path / name).write_text("\n".join([f"{column},seconds", *rows]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pages_with(has_commands)
def test_commands_run_one_after_the_other(page, clone, capfd):
    for block in blocks(page):
        for words in commands(block) if block.language == "console" else ():
            allowed = (0, 3) if "--check" in words else (0,)
            assert run(words) in allowed, f"kvmodel {' '.join(words)}\n{capfd.readouterr().err}"


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(is_study(b.text) for b in blocks(p) if b.language == "yaml")], ids=lambda p: p.name
)
def test_whole_studies_are_valid(page):
    for block in blocks(page):
        if block.language == "yaml" and is_study(block.text) and page != KIND_PAGE:  # that one needs the new kinds
            assert parse_study(block.text).record.name


@pages_with(lambda page: page != KIND_PAGE and page not in TWINS and any(b.language == "python" for b in blocks(page)))
def test_snippets_run(page, clone):
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, page.name, "exec"), {})


def test_the_changes_that_add_a_kind_apply_and_work(tmp_path):
    shutil.copytree(ROOT / "kvmodel", tmp_path / "kvmodel", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks(KIND_PAGE):
        file = tmp_path / (block.title or f"study.{block.language}")
        file.parent.mkdir(parents=True, exist_ok=True)
        diff = block.language == "diff"
        file.write_text(patched(file.read_text("utf-8"), block.text) if diff else block.text, encoding="utf-8")
    steps = (
        "import kvmodel, runpy",
        "runpy.run_path('tests/laws/test_weibull.py')['test_a_weibull_pause_has_the_mean_of_its_formula']()",
        "table = kvmodel.plan(kvmodel.load_study('study.yaml'))",
        "print(kvmodel.__file__, table.value('reuse.timely', arm='all_tiers', tier='next_door', population=''))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(steps)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
    assert float(done.stdout.split()[-1]) >= 0


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_the_list_of_pages_has_them_all():
    listed = {(ROOT / "docs" / target).resolve() for target in links(ROOT / "docs" / "index.md")}
    assert {page for page in PAGES if page.name != "index.md"} - listed == set()


@pytest.mark.parametrize("twin", TWINS, ids=lambda p: p.name)
def test_twins_have_the_same_parts(twin):
    english = twin.with_name(twin.name.replace(".zh-CN", ""))
    assert [marks for marks, _ in headings(twin)] == [marks for marks, _ in headings(english)]
    assert [(b.language, bare(b.text)) for b in blocks(twin)] == [(b.language, bare(b.text)) for b in blocks(english)]
    assert english.name in "".join(twin.read_text("utf-8").splitlines()[:3])


def test_the_reference_of_a_study_is_that_of_the_records():
    page = STUDY_PAGE.read_text(encoding="utf-8")
    assert page == rewritten(page), "renew docs/study.md: python -m tests.docs.study_reference"
