"""PTX that a compiler kept beside the machine code it gives: CuTe DSL does so when its environment variables say it.

Machine code names its kernels; the newest text in the folder that has them all is what it was made from.
"""

import re
from pathlib import Path

_SECTIONS_AT, _SECTION_COUNT, _NAMES_INDEX = 40, 60, 62
_SECTION = 64
_CODE = b".text."
FOLDER = "CUTE_DSL_DUMP_DIR"


def kernel_names(code: bytes) -> list[str]:
    """The kernels of machine code: each has a section of its own."""
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
    """The newest text in a folder, and those below it, that has all kernels of machine code."""
    wanted = [re.compile(rf"\.entry\s+{re.escape(name)}\b") for name in kernel_names(code)]
    files = sorted(folder.rglob("*.ptx"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in files if wanted else ():
        text = path.read_text(errors="replace").rstrip("\0")
        if all(pattern.search(text) for pattern in wanted):
            return text
    return None
