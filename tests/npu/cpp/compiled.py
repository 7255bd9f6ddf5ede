"""The kernels beside this file, compiled once for all tests."""

import shutil
from pathlib import Path

import pytest

from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.kernel import CppKernel
from kernbench.npu.cpp.orchestration import CppOrchestration

HERE = Path(__file__).parent
KERNELS, ORCHESTRATION = HERE / "kernels.cpp", HERE / "orchestration.cpp"
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler is installed"
)


def kernel(name):
    return CppKernel(build_kernel(KERNELS, "aiv"), KERNELS, name, name)


def orchestration(*names):
    return CppOrchestration(build_kernel(ORCHESTRATION), ORCHESTRATION, names=names)


def line_of(text, file=KERNELS):
    (found,) = [n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line]
    return found
