"""Fat binaries: the container in which compilers put PTX and machine code for several targets.

A header is followed by entries: each with its kind (1 is PTX, 2 machine code), target, sizes and flags, and its bytes,
which may be compressed. Programs pass one to the driver, or several concatenated, which the driver links.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from struct import Struct

from kernbench.ptx.doors.driver.images import lz4, zstd
from kernbench.ptx.doors.driver.images.errors import ImageError

MAGIC = 0xBA55ED50
_HEADER = Struct("<IHHQ")
# kind, version, header size, body size, compressed size, -, version, target, -, -, flags, -, uncompressed size
_ENTRY = Struct("<HHIQIIIIIIQQQ")
_PTX, _MACHINE_CODE = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000
_MOST = 1 << 28
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """One entry of a fat binary: PTX or machine code for an architecture (90 for sm_90), decompressed on demand."""

    arch: int
    is_text: bool
    packed: bytes
    flags: int = 0
    whole: int = 0

    @cached_property
    def text(self) -> str:
        """PTX; empty for machine code."""
        return self._unpacked.rstrip(b"\0").decode(errors="replace") if self.is_text else ""

    @property
    def code(self) -> bytes:
        """Machine code; empty for PTX."""
        return b"" if self.is_text else self._unpacked

    @cached_property
    def target(self) -> str:
        """The target, with its suffix if the PTX names one."""
        found = _TARGET.search(self.text)
        return found[1] if found else f"sm_{self.arch}"

    @cached_property
    def _unpacked(self) -> bytes:
        """The uncompressed bytes."""
        if not self.flags & (_LZ4 | _ZSTD):
            return self.packed
        decompress = zstd.decompress if self.flags & _ZSTD else lz4.decompress
        return decompress(self.packed, self.whole)


def is_fatbin(data: bytes) -> bool:
    """Whether `data` starts with the magic number of a fat binary."""
    return int.from_bytes(data[:4], "little") == MAGIC


def read_fatbins(data: bytes) -> Iterator[list[Entry]]:
    """The entries of each of several concatenated fat binaries."""
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise ImageError(f"a fat binary is cut off behind {at} bytes")
        magic, _, header, size = _HEADER.unpack_from(data, at)
        if magic != MAGIC or header < _HEADER.size:
            raise ImageError(f"no fat binary begins behind {at} bytes of an image of {len(data)}")
        end = at + header + size
        if end > len(data):
            raise ImageError(f"a fat binary says that it has {header + size} bytes; {len(data) - at} are there")
        yield list(_entries(data[at + header : end]))
        at = end


def _entries(data: bytes) -> Iterator[Entry]:
    at = 0
    while at + _ENTRY.size <= len(data):
        kind, _, header, size, packed, _, _, arch, _, _, flags, _, whole = _ENTRY.unpack_from(data, at)
        if header < _ENTRY.size or at + header + size > len(data):
            raise ImageError("an entry of a fat binary is cut off")
        if kind in (_PTX, _MACHINE_CODE):
            if flags & (_LZ4 | _ZSTD) and whole > _MOST:
                raise ImageError(
                    f"an entry of a fat binary says that it has {whole:,} bytes; {_MOST:,} are read at most"
                )
            body = data[at + header : at + header + size]
            yield Entry(arch, kind == _PTX, body[:packed] if flags & (_LZ4 | _ZSTD) else body, flags, whole)
        at += header + size
