"""Kernels that do not return say how and where; copies and fills of device memory are accesses like others."""

import numpy as np
import pytest
from tests.npu.cpp.compiled import HERE, line_of, needs_compiler
from tests.npu.small import kinds

from kernbench import npu
from kernbench.npu.cpp.compiler import build_kernel, compiler
from kernbench.npu.cpp.kernel import CppKernel
from kernbench.safety.budget import Budget

pytestmark = [needs_compiler, pytest.mark.programs]
FILE = HERE / "ends.cpp"
X = np.random.default_rng(9).standard_normal((8, 64)).astype(np.float32)


def launch(name, budget=None):
    # compiled before the launch, whose budget of seconds is for kernels
    kernel = CppKernel(build_kernel(FILE, "aiv"), FILE, name, name)

    def orchestrate(rt, x, out):
        rt.submit(aiv0=kernel, args=[npu.IN(x), npu.OUT(out)])

    return npu.Chip("a2a3").launch(orchestrate, X, np.full_like(X, 7), budget=budget)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("throws", "// thrown", "an exception that nobody catches: no such page"),
        ("throws_inside", "// asks for too much", "an exception that nobody catches"),
        ("exits", "// leaves", "calls exit"),
        ("aborts", "// gives up", "an abort"),
        ("divides", "// by zero", "divided by 0"),
        ("recursion", "// without an end", "a segmentation fault"),
        ("copies_from_nowhere", "// from nowhere", "a segmentation fault at address 0x40"),
    ],
)
def test_a_kernel_that_does_not_return(name, text, words):
    (finding,) = launch(name).findings
    assert finding.kind == "kernel-error"
    assert words in finding.message
    assert (finding.where.file, finding.where.line) == (str(FILE), line_of(text, FILE))


def test_a_function_that_ends_without_its_value():
    (finding,) = launch("returns_nothing").findings
    assert "ends without the value" in finding.message
    last = line_of("// no value", FILE)
    assert last - 2 <= finding.where.line <= last


def test_an_endless_loop_in_the_standard_library_is_at_the_line_that_calls_it():
    (finding,) = launch("sorts_for_ever", Budget(seconds=2)).findings
    assert finding.kind == "over-budget"
    assert finding.where.line == line_of("// again", FILE)


@pytest.mark.parametrize("name", ["copies", "copies_inside"])
def test_copies_of_device_memory(name):
    run = launch(name)
    assert run.safe, run.findings
    np.testing.assert_array_equal(run.outputs["out"], X)


def test_a_fill_of_device_memory():
    run = launch("fills")
    assert run.safe, run.findings
    assert not run.outputs["out"].any()


def test_a_fill_that_stays_in_the_cache():
    run = launch("fills_and_keeps")
    (finding,) = [f for f in run.findings if f.kind == "unflushed-write"]
    assert finding.where.line == line_of("// stays in the cache", FILE)
    assert (run.outputs["out"] == 7).all()


def test_a_copy_past_the_end():
    (finding,) = [f for f in launch("copies_too_much").findings if f.kind == "out-of-bounds"]
    assert finding.where.line == line_of("// past the end", FILE)


def test_one_element_of_a_tile():
    run = launch("sets")
    assert run.safe, run.findings
    expected = X.copy()
    expected[3, 5] = 42
    np.testing.assert_array_equal(run.outputs["out"], expected)
    assert "race" in kinds(launch("sets_unordered"))
    (finding,) = launch("sets_outside").findings
    assert (finding.kind, finding.where.line) == ("out-of-bounds", line_of("// one element", FILE))


def test_copies_where_the_compiler_checks_sizes(tmp_path, monkeypatch):
    # Ubuntu's compiler is given these by default: copies become calls of __memcpy_chk
    program, _ = compiler()
    hardened = tmp_path / "hardened"
    hardened.write_text(f'#!/bin/sh\nexec {program} -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 "$@"\n')
    hardened.chmod(0o755)
    monkeypatch.setenv("CXX", str(hardened))
    compiler.cache_clear()
    try:
        assert compiler()[0] == str(hardened)
        run = launch("copies")
    finally:
        compiler.cache_clear()
    assert run.safe, run.findings
    np.testing.assert_array_equal(run.outputs["out"], X)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("throw 3;", "global.cpp, as it is loaded, throws an exception that nobody catches"),
        ("_exit(0);", "global.cpp, as it is loaded, ends its process"),
        ("*(volatile int *)8 = 1;", "global.cpp, as it is loaded, crashed: a segmentation fault at address 0x8"),
    ],
)
def test_what_a_global_does_before_any_kernel(tmp_path, statement, words):
    source = tmp_path / "global.cpp"
    made = f"struct Global {{ Global() {{ {statement} }} }};\nstatic Global made;\n"
    source.write_text(f'#include <unistd.h>\n{made}extern "C" void nothing(long *args) {{}}\n')

    def orchestrate(rt, x, out):
        kernel = CppKernel(build_kernel(source, "aiv"), source, "nothing", "nothing")
        rt.submit(aiv0=kernel, args=[npu.IN(x), npu.OUT(out)])

    run = npu.Chip("a2a3").launch(orchestrate, X, np.full_like(X, 7))
    (finding,) = (one for one in run.findings if one.kind == "kernel-error")
    assert finding.message.startswith(words)
    assert finding.where.file == str(source)
    assert "constructors of its global variables" in finding.hint
