"""The cached script: made once, read after that, and never fatal where nothing can be written."""

from __future__ import annotations

import pytest

from kvmodel.errors import KvmodelError
from kvmodel.report import bundle


@pytest.fixture
def made(monkeypatch):
    """Times the libraries were bundled, which is replaced by a short text."""
    vl_convert = pytest.importorskip("vl_convert")
    times = []

    def javascript_bundle():
        times.append(1)
        return "const tag = '</script>', other = a</g/;"

    monkeypatch.setattr(vl_convert, "javascript_bundle", javascript_bundle)
    return times


def cached_in(monkeypatch, *folders):
    monkeypatch.setattr(bundle, "cache_directories", lambda: iter(folders))


def test_extra_is_named_when_the_library_is_absent(monkeypatch):
    monkeypatch.setattr(bundle, "find_spec", lambda name: None)
    with pytest.raises(KvmodelError, match=r"pip install 'kvmodel\[report\]'"):
        bundle.require_report_extra()


def test_bundle_is_made_once_and_then_read(monkeypatch, tmp_path, made):
    cached_in(monkeypatch, tmp_path / "new" / "kvmodel")
    assert bundle.javascript_bundle() == bundle.javascript_bundle()
    assert len(made) == 1
    assert [path.suffix for path in (tmp_path / "new" / "kvmodel").iterdir()] == [".js"]  # no half file is left


def test_no_closing_script_tag_and_nothing_else_changed(monkeypatch, tmp_path, made):
    cached_in(monkeypatch, tmp_path)
    assert bundle.javascript_bundle() == "const tag = '<\\/script>', other = a</g/;"


def test_first_folder_that_can_be_written_is_used(monkeypatch, tmp_path, made):
    (tmp_path / "file").write_text("a file where a folder should be")
    cached_in(monkeypatch, tmp_path / "file" / "kvmodel", tmp_path / "second")
    bundle.javascript_bundle()
    assert list((tmp_path / "second").iterdir())
    bundle.javascript_bundle()
    assert len(made) == 1


def test_works_where_nothing_can_be_written(monkeypatch, tmp_path, made):
    (tmp_path / "file").write_text("")
    cached_in(monkeypatch, tmp_path / "file" / "kvmodel")
    assert "tag" in bundle.javascript_bundle()
    bundle.javascript_bundle()
    assert len(made) == 2


def test_a_folder_of_somebody_else_is_not_trusted(monkeypatch, tmp_path, made):
    monkeypatch.setattr(bundle, "_ours", lambda folder: False)
    cached_in(monkeypatch, tmp_path)
    bundle.javascript_bundle()
    assert not list(tmp_path.iterdir())


def test_real_bundle_sets_the_function_the_page_calls(monkeypatch, tmp_path):
    pytest.importorskip("vl_convert")
    cached_in(monkeypatch, tmp_path)
    text = bundle.javascript_bundle()
    assert "vegaEmbed" in text and "</script" not in text.lower() and "<!--" not in text
