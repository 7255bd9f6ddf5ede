"""The driver library as a file: built from C source with the system's compiler on first use, then cached.

It is in the user's cache folder under a name that depends on the source and the compiler, so another version of
kernbench builds a new one. Concurrent builds are safe: each process builds in a folder of its own and renames the
result.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

from kernbench.common.errors import KernbenchError

NAME = "libcuda.so.1"
_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
_RUNTIMES = ("libcudart.so.12", "libcudart.so.13")
_COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 120


class LibraryError(KernbenchError):
    """The driver library cannot be built; the message says why and what to do."""


@cache
def library_folder() -> Path:
    """A folder with libcuda.so.1, also under the names of the CUDA runtime; built on first use."""
    compiler = _compiler()
    source = _source()
    key = _key(source, compiler)
    problems = []
    for root in _cache_folders():
        folder = root / "kernbench" / "driver" / key
        if (folder / NAME).exists():
            return folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return _build(folder, source, compiler)
        except OSError as problem:
            problems.append(f"{folder}: {problem.strerror or problem}")
    raise LibraryError(
        "there is no folder for the driver library that stands in for CUDA's: "
        + "; ".join(problems)
        + ". Set XDG_CACHE_HOME "
        "to a folder that can be written"
    )


def _cache_folders() -> list[Path]:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    temporary = Path(tempfile.gettempdir()) / f"kernbench-{os.getuid()}"
    return [*([Path(home)] if os.path.isabs(home) else []), *([temporary] if _private(temporary) else [])]


def _private(folder: Path) -> bool:
    """Whether a folder where others may write is owned by this user alone: code loaded from it runs as this user."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return folder.is_dir() and not folder.is_symlink() and status.st_uid == os.getuid() and not status.st_mode & 0o022


def _source() -> dict[str, str]:
    """The files of the C source."""
    folder = files("kernbench.ptx.doors.driver").joinpath("native")
    return {item.name: item.read_text() for item in sorted(folder.iterdir(), key=lambda item: item.name)}


def _compiler() -> list[str]:
    asked = os.environ.get("CC")
    if asked and shutil.which(shlex.split(asked)[0]):
        return shlex.split(asked)
    for name in _COMPILERS:
        found = shutil.which(name)
        if found:
            return [found]
    raise LibraryError(
        "programs that use CUDA's driver or runtime library need a C compiler once, to build a library that stands in "
        f"for it; none of {', '.join(_COMPILERS)} is on PATH: install gcc or clang, or name one in CC"
    )


def _key(source: dict[str, str], compiler: list[str]) -> str:
    try:
        version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        version = ""
    parts = [*compiler, version, *_FLAGS, *(part for item in source.items() for part in item)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _build(folder: Path, source: dict[str, str], compiler: list[str]) -> Path:
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as work:
        for name, text in source.items():
            Path(work, name).write_text(text)
        _compile(compiler, "driver.c", NAME, work, "-Wl,-z,initfirst", "-ldl")
        for name in _RUNTIMES:
            # the symbol version is the name of the library
            Path(work, "versions").write_text(f"{name} {{ global: cuda*; __cuda*; local: *; }};\n")
            _compile(compiler, "libcudart.c", name, work, "-Wl,--version-script,versions", f"./{NAME}")
        for name in _RUNTIMES:
            os.replace(Path(work, name), folder / name)
        with suppress(FileExistsError):
            (folder / "libcuda.so").symlink_to(NAME)
        # last: its presence says that the others are there
        os.replace(Path(work, NAME), folder / NAME)
    return folder


def _compile(compiler: list[str], source: str, name: str, work: str, *more: str) -> None:
    command = [*compiler, *_FLAGS, f"-Wl,-soname,{name}", "-o", name, source, *more]
    try:
        run = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise LibraryError(f"'{shlex.join(command)}' did not end in {_SECONDS} seconds") from None
    if run.returncode:
        errors = "\n".join(run.stderr.strip().splitlines()[:12])
        raise LibraryError(
            f"the library that stands in for CUDA's cannot be built; '{shlex.join(command)}' says:\n{errors}\n"
            "Name another compiler in CC (gcc or clang)"
        )
