"""Where output goes: results to stdout or a file, everything meant for people beside them to stderr."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from kvmodel.errors import KvmodelError


def say(message: str, quiet: bool = False) -> None:
    """A line for the person, on stderr."""
    if not quiet:
        print(message, file=sys.stderr)


def require_writable(*paths: str | None) -> None:
    """Raise KvmodelError where a file could not be written for lack of its directory: before long work, not after."""
    for path in paths:
        if path is not None and path != "-":
            _require_place(Path(path))


def _require_place(path: Path) -> None:
    if path.is_dir():
        raise KvmodelError(f"{path} is a directory, not a file to write")
    if not path.parent.is_dir():
        raise KvmodelError(f"cannot write {path}: there is no directory {path.parent}")


def write_output(text: str, path: str | None) -> None:
    """Text to stdout ('-' or None), or to a file that appears whole or not at all."""
    if path is None or path == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return
    write_file(Path(path), text)


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file by renaming a finished one over it, so that an interrupted run leaves no half file."""
    _require_place(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise KvmodelError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def leaves(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    """(dotted path, value) of everything in nested mappings."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path, node


def progress_bar(label: str, quiet: bool) -> Callable[[int, int], None] | None:
    """Callback that draws progress on stderr; None when quiet or when stderr is no terminal."""
    if quiet or not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        if total > 1:
            end = "\n" if done == total else ""
            print(f"\r{label}: {done}/{total}", end=end, file=sys.stderr, flush=True)

    return show
