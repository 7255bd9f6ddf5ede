"""Whose fault a finding is: the compiler's where its language leaves a kind to it alone, a library's by its file."""

from types import SimpleNamespace

import pytest

from kernbench.ptx.doors.terms.blame import blamed, release, triton
from kernbench.result.finding import COMPILER, LIBRARY, Blame, Finding, SourceLocation

MINE = SourceLocation("/home/me/kernel.py", 7)
LIBRARYS = SourceLocation("/env/lib/python3.11/site-packages/fla/ops/chunk.py", 7)


def blame(kind, where=MINE, version="3.6.0"):
    (found,) = blamed([Finding(kind, "m", where)], None if version is None else triton(version))
    return found.blame


def test_what_a_language_cannot_say_is_its_compilers_fault():
    assert blame("missing-fence") == Blame(COMPILER, "Triton 3.6.0", "3.8")
    # also in a library's kernel: neither it nor the program can mend it
    assert blame("missing-fence", LIBRARYS) == Blame(COMPILER, "Triton 3.6.0", "3.8")
    assert blame("in-flight") == Blame(COMPILER, "Triton 3.6.0")


def test_what_a_program_can_cause_is_its_own_fault():
    assert blame("out-of-bounds") is None
    assert blame("missing-fence", version=None) is None
    assert blame("missing-fence", None, None) is None


def test_what_is_found_in_a_librarys_kernel_is_its_fault():
    assert blame("out-of-bounds", LIBRARYS) == Blame(LIBRARY, "fla")
    assert blame("missing-fence", LIBRARYS, None) == Blame(LIBRARY, "fla")


@pytest.mark.parametrize(
    ("version", "mended"), [("3.7.1", "3.8"), ("3.8.0", ""), ("3.10.0", ""), ("3.7.0+git1", "3.8")]
)
def test_a_release_that_mends_it_is_named_to_those_before_it_only(version, mended):
    assert blame("missing-fence", version=version).mended_in == mended


def test_releases_are_compared_by_their_numbers():
    assert release("3.10.0") > release("3.9.1+git123") > release("3.9")


def test_gluon_inline_assembly_and_lowered_code_have_no_such_compiler():
    compiling = pytest.importorskip("kernbench.ptx.doors.triton_door.compiling")
    pytest.importorskip("triton")
    plain = SimpleNamespace(src="def kernel(x): ...", is_gluon=lambda: False)
    assert compiling.compiler_of(plain).name == "Triton"
    assert compiling.compiler_of(SimpleNamespace(src=plain.src, is_gluon=lambda: True)) is None
    assert compiling.compiler_of(SimpleNamespace(src="tl.inline_asm_elementwise(...)")) is None
    assert compiling.compiler_of(None) is None
