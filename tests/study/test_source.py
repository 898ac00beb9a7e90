"""Study text to a tree: YAML without its surprises, positions of everything, and one message per mistake."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodel.errors import StudyError
from kvmodel.study import source
from kvmodel.study.source import read_scalar, read_text, read_tree, read_value


def problems(text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(StudyError) as caught:
        read_text(text, "study.yaml")
    return [(problem.line, problem.path, problem.message) for problem in caught.value.problems]


def file_message(path: Path) -> str:
    with pytest.raises(StudyError) as caught:
        read_tree(path)
    (problem,) = caught.value.problems
    return problem.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # What YAML 1.1 turns into something else; read here as YAML 1.2's core schema and a person read it.
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("Off", "Off"),
        ("1:30", "1:30"),
        ("20:1", "20:1"),
        ("0755", "0755"),
        ("08", "08"),
        ("0x70B", "0x70B"),
        ("0o17", "0o17"),
        ("1_000", "1_000"),
        ("2026-01-02", "2026-01-02"),
        ("1e3", 1000.0),
        ("1.0e3", 1000.0),
        ("1e+3", 1000.0),
        ("1E-3", 0.001),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.5", -0.5),
        ("12", 12),
        ("-12", -12),
        ("+12", 12),
        ("0", 0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("128k", "128k"),
        ("80%", "80%"),
        ("20 GiB/s", "20 GiB/s"),
        ("1.2.3", "1.2.3"),
        ("e3", "e3"),
        ("-", "-"),
        (".", "."),
        ("+", "+"),
        ("True", "True"),
        ("=", "="),
    ],
)
def test_plain_values(text: str, value: Any) -> None:
    read = read_scalar(text)
    assert read == value and type(read) is type(value)
    if text not in ("-", "=", ""):
        assert read_text(f"key: {text}\n", "s").data == {"key": value}


def test_quoted_values_and_all_keys_are_text() -> None:
    tree = read_text("'1': '1e3'\n2: \"true\"\non: |\n  1\nnull: ''\n", "s")
    assert tree.data == {"1": "1e3", "2": "true", "on": "1\n", "null": ""}


@pytest.mark.parametrize("text", ["123e4567", "1e999", "-1e999", "9" * 400, "9" * 5000, ".nan"])
def test_numbers_without_a_value_are_refused(text: str) -> None:
    ((line, path, said),) = problems(f"a: 1\nid: {text}\n")
    assert (line, path) == (2, "id")
    assert "quote" in said or "not a number" in said
    assert len(said) < 120


def test_positions_are_those_of_keys_and_entries() -> None:
    tree = read_text("# head\ntiers:\n  dram:\n    capacity: 1 TiB\nlist:\n  - a\n  - {b: 1,\n     c: 2}\n", "s")
    assert tree.positions[("tiers", "dram", "capacity")] == (4, 5)
    assert tree.positions[("tiers",)] == (2, 1)
    assert tree.positions[("list", 1)] == (7, 5)
    assert tree.positions[("list", 1, "c")] == (8, 6)
    assert tree.position(("tiers", "dram", "bandwidth", "read")) == (3, 3)
    assert tree.position(("nothing",)) == tree.positions[()]


def test_every_duplicate_key_is_reported_with_both_lines() -> None:
    assert problems("a: 1\nb: {x: 1, x: 2}\na: 2\n'a': 3\n") == [
        (2, "b.x", "duplicate key 'x' (first at line 2)"),
        (3, "a", "duplicate key 'a' (first at line 1)"),
        (4, "a", "duplicate key 'a' (first at line 1)"),
    ]


def test_merges_keep_own_keys_and_the_first_of_several() -> None:
    tree = read_text("a: &a {x: 1, y: {z: 2}}\nb: &b {x: 3, w: 4}\nc:\n  x: 5\n  <<: *a\nd: {<<: [*b, *a]}\n", "s")
    assert tree.data["c"] == {"x": 5, "y": {"z": 2}}
    assert tree.data["d"] == {"x": 3, "w": 4, "y": {"z": 2}}
    assert tree.positions[("c", "x")] == (4, 3)
    assert tree.positions[("c", "y", "z")] == tree.positions[("a", "y", "z")]
    assert tree.positions[("d",)] == (6, 1)
    assert problems("a:\n  <<: 3\n") == [(2, "a", "'<<' merges a mapping or a list of mappings")]


def test_alias_bombs_and_cycles_are_refused() -> None:
    bomb = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9 if i else ['1'] * 9)}]\n" for i in range(10))
    assert "aliases expand it to more than" in problems(bomb)[0][2]
    ladder = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, source.MAX_DEPTH + 2))
    assert "aliases nest it more than" in problems(ladder)[0][2]
    assert problems("b: 1\na: &a [1, *a]\n") == [(2, "a.1", "an alias contains itself")]
    assert problems("a: &a {<<: *a}\n") == [(1, "a", "an alias contains itself")]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", None, "is empty"),
        ("# only a comment\n\n", None, "is empty"),
        ("---\n", None, "is empty"),
        ("- 1\n- 2\n", 1, "found a list"),
        ("just words\n", 1, "found one value"),
        ("''\n", 1, "found one value"),
        ("a: [1\nb: 2\n", 2, "not valid YAML"),
        ("a:\n\tb: 1\n", 2, "indent with spaces, not tabs"),
        ("a: 1\n---\nb: 2\n", 2, "found another document"),
        ("a: *b\n", 1, "undefined alias"),
        ("a: \x01\n", None, "control characters"),
        ("a: \0\n", None, "control characters"),
        ("a: \udc80\n", None, "not valid Unicode"),
        ("a: !!str 1\n", 1, "tag '!!str' is not read"),
        ("a: !!python/object:os.system {}\n", 1, "tag '!!python/object"),
        ("a: ! x\n", 1, "tag '!' is not read"),
        ("? [a, b]\n: 1\n", 1, "a key must be one word"),
        ("a: " + "[" * 500 + "\n", 1, "levels deep"),
        ("[" * 9000 + "\n", 1, "depth"),
        ("a: [" + "1," * source.MAX_VALUES + "]\n", 1, "holds more than 200,000 values"),
    ],
)
def test_each_broken_text_is_one_problem_with_its_line(text: str, line: int | None, says: str) -> None:
    ((found, _, said),) = problems(text)
    assert found == line
    assert says in said


def test_problems_are_reported_together_in_file_order() -> None:
    lines = [line for line, _, _ in problems("a: 1\nb: !!int 2\na: 3\nc: {d: 1e999}\n? [x]\n: 1\n")]
    assert lines == [2, 3, 4, 5]


def test_files_that_are_not_a_study(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("name: x\n")
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "picture.yaml").write_bytes(b"\x89PNG\r\n\0\0")
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nname: caf\xe9\n")
    (tmp_path / "wide.yaml").write_text("name: x\n", encoding="utf-16")
    with (tmp_path / "huge.yaml").open("wb") as stream:
        stream.truncate(100_000_000)  # sparse: refused by its size, before reading
    assert "is empty" in file_message(tmp_path / "empty.yaml")
    assert "binary" in file_message(tmp_path / "picture.yaml")
    assert "not UTF-8 text (byte 0xe9)" in file_message(tmp_path / "latin.yaml")
    assert "UTF-16" in file_message(tmp_path / "wide.yaml")
    assert file_message(tmp_path / "huge.yaml") == "is 100 MB; a study file has at most 10 MB"
    assert "did you mean the study.yaml inside it?" in file_message(tmp_path)
    assert "did you mean 'study.yaml'?" in file_message(tmp_path / "studdy.yaml")
    assert "no such file" in file_message(tmp_path / "none" / "study.yaml")
    for odd in ("x" * 5000, "nul\0byte", "empty.yaml/x"):
        file_message(tmp_path / odd)


def test_a_file_and_its_text_read_the_same(tmp_path: Path) -> None:
    text = "name: größer\ntiers: {hbm: {kind: hbm}}\n"
    path = tmp_path / "study.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())  # editors on Windows put a mark at the start
    from_file, from_text = read_tree(path), read_tree(text)
    assert from_file.data == from_text.data and from_file.positions == from_text.positions
    assert read_tree(str(path)).name == str(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 TiB", "1 TiB"),
        (" 3 ", 3),
        (">= 0.5", ">= 0.5"),
        ("[1, 2 GiB]", [1, "2 GiB"]),
        ("{a: 1e3}", {"a": 1000.0}),
        ("'5'", "5"),
        ("", None),
        ("a: b", "a: b"),
        ("*x", "*x"),
        ("# x", "# x"),
        ("NO", "NO"),
    ],
)
def test_values_of_a_command_line(text: str, value: Any) -> None:
    assert read_value(text) == value


@given(st.one_of(st.text(max_size=200), st.text("ab:-[]{}&*<!|>'\"\n #?,.0123e\t%@`~", max_size=120)))
def test_any_text_gives_a_tree_or_a_study_error(text: str) -> None:
    try:
        tree = read_text(text, "fuzz")
    except StudyError as error:
        assert error.problems and all(problem.message for problem in error.problems)
    else:
        assert isinstance(tree.data, dict)


@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=50).map(str.encode)))
def test_any_bytes_give_a_tree_or_a_study_error(content: bytes, tmp_path_factory: Any) -> None:
    path: Path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(content)
    try:
        read_tree(path)
    except StudyError as error:
        assert error.problems


words = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=10)
surprises = st.sampled_from(["NO", "1e3", "1:30", "<<", "0x1", "~", "1_0", ".inf", "2026-01-02", "true"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), words, surprises, st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4))


@given(st.dictionaries(words, values))
def test_json_is_read_as_json(data: dict[str, Any]) -> None:
    """Every JSON text is YAML with the same meaning (YAML 1.2, section 1.3)."""
    tree = read_text(json.dumps(data, ensure_ascii=False, indent=1), "s")
    assert tree.data == data
    for path in tree.positions:
        node: Any = tree.data
        for key in path:
            node = node[key]
