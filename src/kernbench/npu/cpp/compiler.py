"""Compiles kernels for the host with the system's C++ compiler, with a cache keyed by content."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from kernbench.common.errors import MisuseError

HEADERS = Path(__file__).parent / "headers"
HOST = Path(__file__).parent / "host" / "host.cpp"
_SECONDS = 600
_STANDARD = "-std=gnu++20"
_NAMES = ("c++", "g++", "clang++")
# what a core's compiler defines
_CORES = {"aic": ("-D__DAV_CUBE__", "-D__CCE_AICORE__"), "aiv": ("-D__DAV_VEC__", "-D__CCE_AICORE__"), "": ()}
_CHIPS = {"a5": ("-DPTO_NPU_ARCH_A5",), "a2a3": ("-DPTO_NPU_ARCH_A2A3",)}
# not inlined into their only caller: a trap in it would be reported at the caller's last line (g++ 16)
_APART = ("-fno-inline-functions-called-once",)
# a missing return value and a division by zero end the kernel on every computer
_TRAPS = ("-fsanitize=return,integer-divide-by-zero", "-fsanitize-undefined-trap-on-error")
# copies and fills of device memory are accesses, too: they stay calls, which the host program intercepts
_BLOCKS = ("memcpy", "memmove", "memset")
# Ubuntu's compiler replaces these calls by checked versions unless it is asked not to
_PLAIN = ("-U_FORTIFY_SOURCE",)


class NoCompilerError(MisuseError):
    """There is no C++ compiler on this computer."""


class CompileError(MisuseError):
    """A source does not compile; the compiler's first errors are in the message."""


@lru_cache(maxsize=1)
def compiler() -> tuple[str, str]:
    """The C++ compiler and its version: that of CXX, or the first of c++, g++ and clang++."""
    for name in (*((os.environ["CXX"],) if os.environ.get("CXX") else ()), *_NAMES):
        path = shutil.which(name)
        if path is None:
            continue
        try:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True)
        except (OSError, subprocess.SubprocessError):
            continue
        return path, done.stdout.splitlines()[0] if done.stdout else ""
    raise NoCompilerError(
        "kernels in C++ are compiled here, and no C++ compiler was found (CXX, c++, g++, clang++): install one that "
        "knows C++20, such as `apt install g++` or `dnf install gcc-c++`, or name it in CXX"
    )


def build_kernel(source: Path, core: str = "", chip: str = "a2a3", include: Sequence[Path] = ()) -> Path:
    """The library of a kernel or an orchestration (`core` is "aic", "aiv" or empty), compiled unless it is cached."""
    flags = [_STANDARD, "-O1", *_APART, "-g", "-w", "-fPIC", "-fsanitize=thread", "-include", "kernbench/prelude.h"]
    flags += [*_PLAIN, *_TRAPS, *(f"-fno-builtin-{name}" for name in _BLOCKS)]
    flags += [f"-I{path}" for path in (HEADERS, *include)] + [*_CORES[core], *_CHIPS.get(chip, ())]
    # the program that runs kernels is built here, too: not while a launch is being timed
    build_host()
    return _built(source.resolve(), flags, ["-shared", *(f"-Wl,--wrap={name}" for name in _BLOCKS)], ".so")


def build_host() -> Path:
    """The program that runs kernels."""
    return _built(HOST, [_STANDARD, "-O1", "-w", f"-I{HEADERS}"], ["-rdynamic", "-ldl"], "")


def _built(source: Path, flags: list[str], link: list[str], suffix: str) -> Path:
    program, version = compiler()
    key = hashlib.sha256("\0".join([program, version, str(source), *flags, *link]).encode()).hexdigest()[:24]
    folder = _folder() / key
    kept = _kept(folder, suffix)
    if kept is not None:
        return kept
    with tempfile.TemporaryDirectory(prefix="kernbench-cpp-") as work:
        made, needed = Path(work) / f"code{suffix}", Path(work) / "needed"
        _call([program, *flags, "-MD", "-MF", str(needed), "-c", str(source), "-o", f"{work}/code.o"], source)
        _call([program, f"{work}/code.o", "-o", str(made), *link], source)
        files = {name: _digest(Path(name)) for name in _dependences(needed.read_text())}
        content = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:24]
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{content}{suffix}"
        _put(made, target)
        (Path(work) / "table").write_text(json.dumps({"files": files, "code": target.name}))
        _put(Path(work) / "table", folder / "table.json")
    return target


def _kept(folder: Path, suffix: str) -> Path | None:
    """The cached build, if none of its source files has changed."""
    try:
        table = json.loads((folder / "table.json").read_text())
        if any(_digest(Path(name)) != digest for name, digest in table["files"].items()):
            return None
        found = folder / str(table["code"])
        return found if found.is_file() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _dependences(text: str) -> list[str]:
    """The files of a compiler's dependence list; blanks in names are escaped by a backslash."""
    words = text.replace("\\\n", " ").split(":", 1)[1].replace("\\ ", "\0").split()
    return [word.replace("\0", " ") for word in words]


def _put(made: Path, target: Path) -> None:
    """Move a file to its final name atomically, in case other processes do the same."""
    own = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copy2(made, own)
    own.replace(target)


def _call(command: list[str], source: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise CompileError(f"{source}: {error}") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()][:5]
        shown = "\n".join(errors or done.stderr.splitlines()[:5])
        raise CompileError(f"{source} does not compile for the host:\n{shown}")


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "kernbench" / "npu"
