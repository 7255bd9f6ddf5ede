"""Programs of the CUDA toolkit: where they are, and which releases.

A program is named by a setting of its own. Otherwise it is the first on PATH, then one in a package of the running
Python (NVIDIA's, or Triton's own), then one below CUDA_HOME or CUDA_PATH, then one in the usual folders; of several in
packages or folders the newest.
"""

import os
import re
import shutil
import site
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from kernbench.common.errors import MisuseError

_RELEASE = re.compile(r"V(\d+\.\d+\.\d+)")
# seconds in which a program prints its release
_PATIENCE = 30.0
# folders with programs below a folder of packages, and names that a program has there beside its own
_PACKAGES = ("nvidia/*/bin", "triton/backends/nvidia/bin")
_ALSO_CALLED = {"ptxas": ("ptxas-blackwell",)}


def find_program(name: str, setting: str, missing: str, beside: str = "") -> str:
    """The path of a program, the first of `programs`; MisuseError with `missing` if there is none."""
    for program in programs(name, setting, beside):
        return program
    raise MisuseError(missing)


def programs(name: str, setting: str, beside: str = "") -> Iterator[str]:
    """The paths of a program, in the order in which to try them; only the one that `setting` names, if it is set.

    The one in the same folder as the program `beside` comes first: it is of the same release.
    """
    named = os.environ.get(setting)
    if named:
        found = shutil.which(named)
        if found is None:
            raise MisuseError(f"{setting}={named}: no such program; name {name} itself, or unset the variable")
        yield found
        return
    seen: set[str] = set()
    near = [os.path.join(os.path.dirname(beside), name)] if beside else []
    for group in (near, [name], _packaged(name), _homes(name), _usual_folders(name)):
        for program in _newest_first(group):
            if os.path.realpath(program) not in seen:
                seen.add(os.path.realpath(program))
                yield program


def release(program: str) -> str:
    """The release of a program as it prints it, "13.0.88"; "of an unknown release" if it prints none."""
    return _release(*state(program)) or "of an unknown release"


def state(program: str) -> tuple[str, str, str]:
    """A program's path, size and modification time, which change with its content."""
    found = os.stat(program)
    return program, str(found.st_size), str(found.st_mtime_ns)


@lru_cache(maxsize=64)
def _release(program: str, _size: str, _changed: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = _RELEASE.search(done.stdout.decode(errors="replace"))
    return match[1] if match else ""


def _newest_first(candidates: Iterable[str]) -> list[str]:
    """Those candidates that are programs, each by the first of its paths; a single one is not asked for its release."""
    paths = [path for path in map(shutil.which, candidates) if path]
    found = list({os.path.realpath(path): path for path in reversed(paths)}.values())[::-1]
    return sorted(found, key=_number, reverse=True) if len(found) > 1 else found


def _number(program: str) -> list[int]:
    return [int(part) for part in _release(*state(program)).split(".") if part]


def _packaged(program: str) -> Iterator[str]:
    """Where packages of the running Python have a program."""
    homes = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), site.getusersitepackages()]
    for home in dict.fromkeys(homes):
        for folder in _PACKAGES:
            for name in (program, *_ALSO_CALLED.get(program, ())):
                yield from sorted(map(str, Path(home).glob(f"{folder}/{name}")))


def _homes(program: str) -> Iterator[str]:
    """Where a toolkit is that the environment names."""
    return (f"{os.environ[name]}/bin/{program}" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name))


def _usual_folders(program: str) -> Iterator[str]:
    """Where a program of the CUDA toolkit is in its usual folders."""
    homes = ["/usr/local/cuda", *sorted(map(str, Path("/usr/local").glob("cuda-*")), reverse=True), "/opt/cuda"]
    return (f"{home}/bin/{program}" for home in homes)
