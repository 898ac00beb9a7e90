"""The JavaScript that draws the charts, as one text to put into a page, cached on disk because making it is slow."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from kvmodel.errors import KvmodelError


def require_report_extra() -> None:
    """Raise KvmodelError that names the extra to install when the chart library is absent."""
    if find_spec("vl_convert") is None:
        raise KvmodelError("a web report needs the chart library of the extra 'report': pip install 'kvmodel[report]'")


def javascript_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets window.vegaEmbed, safe inside a script element.

    Read from the first cache directory that has it; made anew and kept in the first that can be written otherwise.
    """
    require_report_extra()
    import vl_convert

    name = f"vega-bundle-{vl_convert.__version__}.js"
    for folder in cache_directories():
        try:
            if _ours(folder) and (text := (folder / name).read_text(encoding="utf-8")):
                return text
        except (OSError, UnicodeDecodeError):
            continue
    # a closing tag in a string of the libraries would end the script element they are put into
    text = vl_convert.javascript_bundle().replace("</script", "<\\/script")
    for folder in cache_directories():
        if _kept(folder, name, text):
            break
    return text


def cache_directories() -> Iterator[Path]:
    """Where the bundle may be kept: the user's cache directory, then the temporary directory."""
    try:
        home = Path.home()
    except RuntimeError:
        home = None
    if home is not None:
        yield (
            home
            / (
                "Library/Caches"
                if sys.platform == "darwin"
                else "AppData/Local"
                if sys.platform == "win32"
                else ".cache"
            )
            / "kvmodel"
        )
    owner = f"-{os.getuid()}" if hasattr(os, "getuid") else ""
    yield Path(tempfile.gettempdir()) / f"kvmodel{owner}"


def _ours(folder: Path) -> bool:
    """Whether nobody else could have put a script there: the temporary directory is shared."""
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()


def _kept(folder: Path, name: str, text: str) -> bool:
    """Whether the bundle could be written: whole or not at all, by renaming a finished file."""
    temporary = None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _ours(folder):
            return False
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, folder / name)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        return False
    return True
