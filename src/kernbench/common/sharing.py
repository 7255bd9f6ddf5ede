"""Export and import of compiled loops as one file, for other machines of the same type, and a list of the cache.

The cache holds machine code: whoever imports a file runs what its author put there. So nothing of a file is used before
its names and checksums are checked. The checksums show damage, not intent; to know who made a file, compare a digest
that came through another channel. A file of another type of machine is refused: its loops would never be used, but
would take space.
"""

import json
import os
import re
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from kernbench.common import compiled
from kernbench.common.errors import CacheError
from kernbench.common.files import why
from kernbench.common.native.machine import machine_name
from kernbench.common.native_loops import SUFFIX

_FORMAT = 1
_LIST = "kernbench-cache.json"
_INDEX, _CODE = ".nbi", ".nbc"
# a loop compiled by us is one file
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]{0,150}/[A-Za-z0-9_][A-Za-z0-9_.\-]{0,200}(?:\.nbi|\.nbc|\.loop)")
# limits in bytes for the list of files, and for all files together: no real cache is larger
_LONGEST_LIST = 2**24
_MOST = 2**31


@dataclass(frozen=True)
class Kept:
    """The content of the cache folder: loops by name, with the bytes of all their versions."""

    folder: Path
    loops: dict[str, int]


def machine_type() -> dict[str, str]:
    """What must match for compiled loops to be usable: processor, compiler versions, and our own sources."""
    triple, cpu, features = machine_name().split(" ", 2)
    features = sha256(features.encode()).hexdigest()[:12]
    sources = compiled.version(*compiled.PACKAGES)
    return {"system": triple, "cpu": cpu, "features": features, **compiled.tools(), "kernbench": sources}


def kept() -> Kept:
    """The content of the cache for this version of kernbench."""
    folder = _folder()
    loops: dict[str, int] = {}
    for path in _files(folder):
        loop = _loop_of(f"{path.parent.name}/{path.name}")
        loops[loop] = loops.get(loop, 0) + path.stat().st_size
    return Kept(folder, dict(sorted(loops.items())))


def export(target: Path) -> str:
    """Write all cached loops to a file, atomically; returns its digest."""
    folder = _folder()
    files = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in _files(folder)}
    if not files:
        raise CacheError(f"no compiled loops are kept in {folder}; kernbench cache warm compiles them")
    sums = {name: sha256(data).hexdigest() for name, data in files.items()}
    about = {"format": _FORMAT, "machine": machine_type(), "files": sums}
    with _appearing(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_LIST, json.dumps(about, indent=1))
        for name, data in files.items():
            archive.writestr(name, data)
    return sha256(_read(target)).hexdigest()


def bring(source: Path, digest: str | None = None) -> tuple[int, int]:
    """Import the loops of a file written by `export`, except versions already in the cache.

    Returns the number of loops with a new version, and of those without; together they are the loops that `export`
    counted. `digest` is the expected digest of the whole file, by which its author is known.
    """
    folder = _folder()
    data = _read(source)
    found = sha256(data).hexdigest()
    if digest is not None and found != digest.strip().lower():
        raise CacheError(f"{source} has the sha256 {found}, not {digest}: it is not the file that was meant")
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            sums = _listed(source, archive)
            with tempfile.TemporaryDirectory(dir=folder, prefix="import-") as apart:
                for name, expected in sums.items():
                    _unpack(source, archive, name, expected, Path(apart))
                return _move_in(sums, Path(apart), folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise CacheError(f"{source} is damaged, or is no file of kernbench cache export: {error}") from error
    except OSError as error:
        raise CacheError(f"{source} cannot be imported: {error}") from error


def clear(all_versions: bool = False) -> int:
    """Remove the cache of this version or of all; returns the bytes freed."""
    folder = _folder()
    freed = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    # keep the folder itself: a running process may write into it again
    for path in folder.iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    if all_versions:
        for other in folder.parent.iterdir():
            if other.is_dir() and other != folder:
                freed += sum(path.stat().st_size for path in other.rglob("*") if path.is_file())
                shutil.rmtree(other, ignore_errors=True)
    return freed


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MOST:
            raise CacheError(f"{path} is larger than any cache")
        return path.read_bytes()
    except OSError as error:
        raise CacheError(f"{path} cannot be read: {error.strerror}") from error


def _folder() -> Path:
    found = compiled.folder()
    if not found:
        raise CacheError("no compiled loops are kept: neither the user's cache nor a temporary folder can be written")
    return Path(found)


def _loop_of(file: str) -> str:
    """The name of the loop that a cache file belongs to."""
    package, _, name = file.partition("/")
    return f"{package}.{name.split('-')[0]}"


def _files(folder: Path) -> list[Path]:
    """Cache files, code before index files: a process that finds an index also finds its code."""
    found = [path for path in folder.glob("*/*") if _NAME.fullmatch(f"{path.parent.name}/{path.name}")]
    return sorted(found, key=lambda path: (path.suffix == _INDEX, path))


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A temporary file beside the target, renamed to it at the end."""
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        os.close(handle)
        try:
            yield Path(name)
            os.replace(name, target)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise CacheError(f"{target} cannot be written: {why(error)}") from error


def _listed(source: Path, archive: zipfile.ZipFile) -> dict[str, str]:
    """The files of an archive with their checksums, after a check that they are for this type of machine."""
    sizes = {info.filename: info.file_size for info in archive.infolist()}
    if sizes.get(_LIST, _LONGEST_LIST) >= _LONGEST_LIST:
        raise CacheError(f"{source} is no file of kernbench cache export: it has no {_LIST}")
    try:
        about: object = json.loads(archive.read(_LIST))
        if not isinstance(about, dict):
            raise TypeError
        form, made_for = about["format"], {str(key): value for key, value in about["machine"].items()}
        sums = {str(name): str(digest) for name, digest in about["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CacheError(f"{source} is damaged: its {_LIST} cannot be read") from error
    if form != _FORMAT:
        raise CacheError(f"{source} has format {form}; this kernbench reads format {_FORMAT}")
    _check_machine(source, made_for)
    strange = [name for name in sums if not _NAME.fullmatch(name)] + sorted(set(sizes) - set(sums) - {_LIST})
    if strange:
        raise CacheError(f"{source} has a file that is no compiled loop, {strange[0]!r}: nothing of it is used")
    if sum(sizes.values()) > _MOST:
        raise CacheError(f"{source} unpacks to {sum(sizes.values())} bytes, more than the {_MOST} of any cache")
    return sums


def _check_machine(source: Path, made_for: dict[str, object]) -> None:
    here = machine_type()
    wrong = [key for key, value in here.items() if made_for.get(key) != value]
    differing = [f"{key} {made_for.get(key)!r} there, {here[key]!r} here" for key in wrong]
    if differing:
        raise CacheError(
            f"{source} was made on another type of machine, or by another version, and would be of no use here: "
            + "; ".join(differing)
        )


def _unpack(source: Path, archive: zipfile.ZipFile, name: str, expected: str, apart: Path) -> None:
    """Extract one file of an archive into a temporary folder, if its checksum matches."""
    try:
        data = archive.read(name)
    except KeyError:
        raise CacheError(f"{source} is damaged: {name} is missing") from None
    if sha256(data).hexdigest() != expected:
        raise CacheError(f"{source} is damaged: {name} is not what it was when it was exported")
    package, _, file = name.partition("/")
    (apart / package).mkdir(exist_ok=True)
    (apart / package / file).write_bytes(data)


def _move_in(sums: dict[str, str], apart: Path, folder: Path) -> tuple[int, int]:
    """Move the versions that are not in the cache yet into it, code before the index that names it.

    Returns the number of loops with a new version, and of those without.
    """
    alone = [name for name in sums if name.endswith(SUFFIX)]
    new = [name for name in alone if not (folder / name).exists()]
    for name in new:
        (folder / name).parent.mkdir(exist_ok=True)
        os.replace(apart / name, folder / name)
    loops = sorted(name.removesuffix(_INDEX) for name in sums if name.endswith(_INDEX))
    wanted = [loop for loop in loops if not (folder / f"{loop}{_INDEX}").exists()]
    for loop in wanted:
        code = re.compile(re.escape(loop) + r"\.\d+" + re.escape(_CODE))
        (folder / loop).parent.mkdir(exist_ok=True)
        for name in [name for name in sums if code.fullmatch(name)] + [f"{loop}{_INDEX}"]:
            os.replace(apart / name, folder / name)
    brought = {_loop_of(name) for name in (*new, *wanted)}
    return len(brought), len({_loop_of(name) for name in sums} - brought)
