"""Maps PTX compiled at run time (NVRTC) to lines in the program's own files.

Its source is a string, often in a Python file, whose lines are what the user knows. If no file contains the string, the
source is shown as it was compiled, under a name in angle brackets.
"""

import linecache
import os
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernbench.ptx.names.demangling import demangled

# environment variables for where our driver library keeps sources, each under the checksum of its PTX, and where CuPy
# keeps those of its kernels
FOLDER, CUPY_FOLDER = "KERNBENCH_SOURCES", "CUPY_CACHE_DIR"
_FILE = re.compile(r'^(\s*\.file\s+)(\d+)(\s+)"([^"\n]*)"', re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_LOC = re.compile(r"((?:\.loc|inlined_at)\s+)(\d+)(\s+)(\d+)")
# share of a source's non-trivial lines that must be in a file at the same distance
_ENOUGH = 0.6
_SHORTEST = 4


@dataclass(frozen=True)
class _Own:
    """Where a source was found: a file, and the offset of its lines there."""

    file: str
    further: int


def at_own_lines(text: str, files: Sequence[str]) -> str:
    """PTX with line information changed to `files` where a source is a string in one.

    The number of lines stays the same.

    The first of `files` that contains the source counts; a source found in none is shown by itself.
    """
    own = {}
    for match in _FILE.finditer(text):
        path = Path(match[4])
        kept = _kept(text, path.name)
        if kept is None:
            continue
        found = _found(kept, files)
        # cuda.core writes a file for debuggers
        if found is not None or not path.exists():
            own[match[2]] = found or _shown(kept, text)
    return _moved(text, own) if own else text


def _kept(text: str, name: str) -> Path | None:
    """The kept file with the source of a PTX text, by the source's name."""
    folder, cupy = os.environ.get(FOLDER), os.environ.get(CUPY_FOLDER)
    data = text.encode()
    paths = [Path(folder, f"{zlib.crc32(data):08x}-{len(data)}-{name}")] if folder else []
    paths += [Path(cupy, name)] if cupy else []
    return next((path for path in paths if path.is_file()), None)


def _found(kept: Path, files: Sequence[str]) -> _Own | None:
    source = kept.read_text(errors="replace").splitlines()
    for file in files:
        further = distance(source, [line.rstrip("\n") for line in linecache.getlines(file)])
        if further is not None:
            return _Own(file, further)
    return None


def distance(source: Sequence[str], lines: Sequence[str]) -> int | None:
    """The line offset of a source in a file; None if it is not there.

    Some lines may differ: a string has escapes and substitutions, and front ends add lines.
    """
    where: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        where.setdefault(line.strip(), []).append(number)
    full = [(number, line.strip()) for number, line in enumerate(source) if len(line.strip()) >= _SHORTEST]
    counted = Counter(at - number for number, line in full for at in where.get(line, ()))
    if not counted:
        # a source of one line is between quotation marks
        inside = [at for at, line in enumerate(lines) if len(full) == 1 and full[0][1] in line]
        return inside[0] - full[0][0] if inside else None
    further, count = counted.most_common(1)[0]
    return further if count >= _ENOUGH * len(full) else None


def _shown(kept: Path, text: str) -> _Own:
    """Show a source by itself, under the name of its first kernel, which no file has."""
    lines = kept.read_text(errors="replace").splitlines(keepends=True)
    kernel = _ENTRY.search(text)
    shown = f"<CUDA source of {demangled(kernel[1]) if kernel else kept.name}>"
    linecache.cache[shown] = (sum(map(len, lines)), None, lines, shown)
    return _Own(shown, 0)


def _moved(text: str, own: dict[str, _Own]) -> str:
    def file(match: re.Match[str]) -> str:
        found = own.get(match[2])
        return match[0] if found is None else f'{match[1]}{match[2]}{match[3]}"{found.file}"'

    def line(match: re.Match[str]) -> str:
        found = own.get(match[2])
        return match[0] if found is None else f"{match[1]}{match[2]}{match[3]}{max(1, int(match[4]) + found.further)}"

    return _LOC.sub(line, _FILE.sub(file, text))
