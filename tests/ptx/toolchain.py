"""NVIDIA's ptxas and nvcc where they are installed, and what the ones at hand know.

A test that is held against a tool skips, with the reason, where the tool is absent or knows less than the test needs.
No such test expects a tool's exact words, nor a verdict on which its builds disagree.
"""

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from kernbench.common.errors import MisuseError
from kernbench.ptx.devices.assembler import find_ptxas


def _find_ptxas() -> str | None:
    try:
        return find_ptxas()
    except MisuseError:
        return None


PTXAS = _find_ptxas()
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed")


def run_ptxas(text: str, target: str, *options: str) -> tuple[dict[int, str], str | None]:
    """Messages by line, and the whole log where ptxas refuses (None where it does not)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.ptx")
        path.write_text(text)
        assert PTXAS is not None
        command = [PTXAS, *options, "-arch", target, "--compile-only", str(path), "-o", str(Path(folder, "a.cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return {}, None
    errors = {int(m[1]): m[2] for m in re.finditer(r"line (\d+); (?:error|fatal)\s*: (.*)", done.stderr)}
    return errors, done.stderr


def assembles(text: str, target: str) -> bool:
    """Whether ptxas takes a whole module."""
    return run_ptxas(text, target)[1] is None


@cache
def ptxas_knows(target: str, version: tuple[int, int]) -> bool:
    """Whether the ptxas at hand knows a target and a version of the language."""
    head = f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"
    return PTXAS is not None and assembles(head + ".visible .entry k() { ret; }\n", target)


def need_ptxas(target: str = "sm_80", version: tuple[int, int] = (8, 0)) -> None:
    """Skip the test where no ptxas is installed, or it does not know the target or the version."""
    if PTXAS is None:
        pytest.skip("ptxas is not installed")
    if not ptxas_knows(target, version):
        pytest.skip(f"this ptxas does not know {target} or .version {version[0]}.{version[1]}")


def nvcc_ptx(source: Path, arch: str, *options: str) -> str:
    """nvcc's PTX for a source; the test is skipped where nvcc, its host compiler, the target or a header is missing."""
    if NVCC is None:
        pytest.skip("nvcc is not installed")
    text, error = _nvcc(source, arch, options)
    if error and (missing := _cannot_compile(source, arch)):
        pytest.skip(f"this nvcc cannot compile for {arch} here: {missing}")
    assert not error, error
    return text


def _cannot_compile(source: Path, arch: str) -> str:
    """What nvcc says of the source's headers alone; nothing where it takes them."""
    with tempfile.TemporaryDirectory() as folder:
        headers = Path(folder, "headers.cu")
        headers.write_text("\n".join(re.findall(r"^#include .*", source.read_text(), re.MULTILINE)) + "\n")
        return _nvcc(headers, arch, ())[1]


@cache
def _nvcc(source: Path, arch: str, options: tuple[str, ...]) -> tuple[str, str]:
    """The PTX, and what nvcc said where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.ptx")
        command = [str(NVCC), "-ptx", f"-arch={arch}", *options, "-o", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return (made.read_text(), "") if done.returncode == 0 else ("", done.stderr.strip() or "no message")
