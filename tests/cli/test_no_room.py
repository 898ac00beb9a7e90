"""Where there is no room for KV, every command that needs some says so; plan says it in its table."""

from __future__ import annotations

import pytest

from kvmodel.cli.app import run
from tests.studies import STUDY


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(STUDY, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize("command", ["breakeven", "endurance", "retention"])
@pytest.mark.parametrize(
    ("preset", "says"),
    [
        ("llama-3.1-70b", "leaves no room for KV at tensor_parallel 1; tensor_parallel 2 would fit"),
        ("mamba-2.8b", "keeps a constant state only"),
    ],
)
def test_commands_refuse_by_name(path, command, preset, says, capsys):
    assert run([command, path, "--set", f"model.preset={preset}"]) == 2
    out, err = capsys.readouterr()
    assert says in err and not out


def test_plan_misses_its_targets_where_nothing_fits(path, capsys):
    given = ["--set", "model.preset=llama-3.1-70b", "--set", "targets={cost.per_qualified_session: <= 1 USD}"]
    assert run(["plan", path, *given, "--check"]) == 3
    out, err = capsys.readouterr()
    assert "tensor_parallel 2 would fit" in out and "missed: the plan does not tell it" in out
    assert "target missed: cost.per_qualified_session <= 1 USD" in err


def test_an_ssd_without_bytes_is_refused_and_a_memory_without_bytes_is_not(path, capsys):
    assert run(["plan", path, "--set", "tiers.nvme.capacity=0"]) == 2
    assert "tiers.nvme.capacity: must be more than 0 B" in capsys.readouterr().err
    for command in ("plan", "retention", "endurance", "breakeven"):
        assert run([command, path, "--set", "tiers.dram.capacity=0"]) == 0


def test_a_place_that_cannot_be_written_is_told_before_the_work(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kvmodel.study.run.plan", lambda *_, **__: pytest.fail("worked first"))
    assert run(["plan", path, "--report", str(tmp_path / "none" / "x.html")]) == 2
    assert "there is no directory" in capsys.readouterr().err
