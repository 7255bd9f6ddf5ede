"""PTX kept by a compiler beside its machine code: CuTe DSL does so if environment variables ask for it.

Machine code names its kernels; it was made from the newest text in the folder that has them all. Programs may cache
machine code on disk and load it in a later session, which compiles nothing. For those, each text is cached under a hash
of the machine code.
"""

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path

_SECTIONS_AT, _SECTION_COUNT, _NAMES_INDEX = 40, 60, 62
_SECTION = 64
_CODE = b".text."
FOLDER = "CUTE_DSL_DUMP_DIR"


def kernel_names(code: bytes) -> list[str]:
    """The kernels of machine code: each has its own section."""
    try:
        start = int.from_bytes(code[_SECTIONS_AT : _SECTIONS_AT + 8], "little")
        count, index = (int.from_bytes(code[at : at + 2], "little") for at in (_SECTION_COUNT, _NAMES_INDEX))
        headers = [code[start + number * _SECTION :][:_SECTION] for number in range(count)]
        names = _part(code, headers[index])
        found = [_name(names, int.from_bytes(header[:4], "little")) for header in headers]
    except (IndexError, ValueError):
        return []
    return [name.removeprefix(_CODE).decode(errors="replace") for name in found if name.startswith(_CODE)]


def _part(code: bytes, header: bytes) -> bytes:
    offset, size = (int.from_bytes(header[at : at + 8], "little") for at in (24, 32))
    return code[offset : offset + size]


def _name(names: bytes, start: int) -> bytes:
    return names[start : names.index(b"\0", start)]


def kept_text(code: bytes, folder: Path) -> str | None:
    """The text that machine code was made from: cached by an earlier session, or kept in this one's folder."""
    known = _earlier(code)
    with suppress(OSError):
        return known.read_text()
    found = _newest(code, folder)
    if found is not None:
        with suppress(OSError):
            known.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # atomically, as other processes may write it too
            part = known.with_suffix(f".{os.getpid()}")
            part.write_text(found)
            part.replace(known)
    return found


def _earlier(code: bytes) -> Path:
    """The cache file for the text of some machine code, in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "kernbench-texts", f"{hashlib.sha256(code).hexdigest()[:40]}.ptx")


def _newest(code: bytes, folder: Path) -> str | None:
    """The newest text in or below a folder that has all kernels of the machine code."""
    wanted = [re.compile(rf"\.entry\s+{re.escape(name)}\b") for name in kernel_names(code)]
    files = sorted(folder.rglob("*.ptx"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in files if wanted else ():
        text = path.read_text(errors="replace").rstrip("\0")
        if all(pattern.search(text) for pattern in wanted):
            return text
    return None
