"""Lines of a trace file, however it is packed: plain, gzip, zstandard, or standard input."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, cast

from kvmodel.traces.errors import TraceError

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
STANDARD_INPUT = "-"


def lines(source: str | Path) -> Iterator[tuple[int, str]]:
    """(line number from 1, text) of every line that is not blank. The packing is seen in the first bytes,
    not the name.
    """
    name = str(source)
    number = 0
    with ExitStack() as stack:
        try:
            raw = _open(name, stack)
            for number, line in enumerate(_unpacked(raw, name, stack), start=1):
                text = line.decode("utf-8")
                if number == 1:
                    text = text.removeprefix("\ufeff")
                if not text.isspace():
                    yield number, text
        except UnicodeDecodeError as error:
            raise TraceError(f"{name}:{number}: not UTF-8 text; is this a binary file?") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceError(f"{name}: damaged gzip data after line {number}: {error}") from error
        except OSError as error:
            raise TraceError(f"{name}: {error.strerror or error}") from error


def _open(name: str, stack: ExitStack) -> io.BufferedReader:
    if name == STANDARD_INPUT:
        return cast(io.BufferedReader, sys.stdin.buffer)
    return stack.enter_context(open(name, "rb"))


def _unpacked(raw: io.BufferedReader, name: str, stack: ExitStack) -> BinaryIO:
    head = raw.peek(4)[:4]
    if head.startswith(GZIP_MAGIC):
        return cast(BinaryIO, stack.enter_context(gzip.open(raw)))
    if head == ZSTD_MAGIC:
        return _zstd_reader(raw, name, stack)
    return cast(BinaryIO, raw)


def _zstd_reader(raw: io.BufferedReader, name: str, stack: ExitStack) -> BinaryIO:
    try:
        import zstandard
    except ImportError as error:
        raise TraceError(
            f"{name} is packed with zstandard, which needs one more package: pip install 'kvmodel[zstd]'"
        ) from error
    stream = stack.enter_context(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
    return cast(BinaryIO, _ZstdLines(stream, name, zstandard.ZstdError))


class _ZstdLines:
    """Lines of a zstandard stream, with its own error type turned into ours."""

    def __init__(self, stream: BinaryIO, name: str, damage: type[Exception]):
        self._stream, self._name, self._damage = io.BufferedReader(cast(io.RawIOBase, stream)), name, damage

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._stream
        except self._damage as error:
            raise TraceError(f"{self._name}: damaged zstandard data: {error}") from error
