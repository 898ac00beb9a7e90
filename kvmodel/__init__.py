"""Decide how much KV cache to keep, where, and for how long.

    study = kvmodel.load_study("study.yaml")
    result = kvmodel.plan(study)
    result.to_frame()

Names are imported when first used, so that `import kvmodel` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kvmodel.version import __version__

_PUBLIC = {
    "load_study": "kvmodel.study.load",
    "parse_study": "kvmodel.study.load",
    "plan": "kvmodel.study.run",
    "kv_size": "kvmodel.analyses.size",
    "KvmodelError": "kvmodel.errors",
    "StudyError": "kvmodel.errors",
    "verdicts": "kvmodel.results.verdict",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kvmodel' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
