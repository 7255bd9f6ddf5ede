"""PTX kept by a compiler beside its machine code: CuTe DSL does so if environment variables ask for it.

Machine code names its kernels; it was made from the newest text in the folder that has them all. Programs may cache
machine code on disk and load it in a later session, which compiles nothing. For those, each text is cached under a hash
of the machine code.
"""

import hashlib
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

_SECTIONS_AT, _SECTION_COUNT, _NAMES_INDEX = 40, 60, 62
_SECTION = 64
_CODE = b".text."
FOLDER = "CUTE_DSL_DUMP_DIR"
# cached texts; beyond so many, those not used for the longest time are removed
MOST_TEXTS = 2000


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
    found = None if known is None else _read(known)
    if found is not None:
        return found
    texts = _candidates(code, folder)
    # of several the newest is most likely the right one, which is not sure enough for later sessions
    if len(set(texts)) == 1 and known is not None:
        with suppress(OSError):
            _write(known, texts[0])
    return texts[0] if texts else None


def _earlier(code: bytes) -> Path | None:
    """The cache file for the text of some machine code, in the user's cache; None if the user has no such folder."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # not .ptx, as the folder where compilers keep texts may be one above the cache
    name = f"{hashlib.sha256(code).hexdigest()[:40]}.text"
    return Path(home, "kernbench-texts", name) if os.path.isabs(home) else None


def _read(file: Path) -> str | None:
    """The text of a cache file, which begins with its hash; None if there is none or it is damaged."""
    with suppress(OSError):
        total, _, text = file.read_bytes().partition(b"\n")
        if total == _hash(text):
            # files that were not used for the longest time are removed first
            with suppress(OSError):
                os.utime(file)
            return text.decode()
    return None


def _write(file: Path, found: str) -> None:
    """Write a cache file atomically, as other processes may write it too; then remove those beyond the most."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = found.encode()
    descriptor, part = tempfile.mkstemp(".part", dir=file.parent)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(_hash(text) + b"\n" + text)
        os.replace(part, file)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    used = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(file.parent))
    for _, path in used[:-MOST_TEXTS]:
        Path(path).unlink(missing_ok=True)


def _hash(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _candidates(code: bytes, folder: Path) -> list[str]:
    """The texts in or below a folder that have all kernels of the machine code, the newest first."""
    wanted = [re.compile(rf"\.entry\s+{re.escape(name)}\b") for name in kernel_names(code)]
    files = sorted(folder.rglob("*.ptx"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    texts = (path.read_text(errors="replace").rstrip("\0") for path in (files if wanted else ()))
    return [text for text in texts if all(pattern.search(text) for pattern in wanted)]
