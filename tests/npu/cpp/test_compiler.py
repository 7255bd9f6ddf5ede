"""Compiled code is kept by the content of all files that went into it; without a compiler the message helps."""

import pytest
from tests.npu.cpp.compiled import needs_compiler

from kernbench.npu.cpp import compiler

pytestmark = pytest.mark.programs

SOURCE = '#include "value.h"\nextern "C" int value() { return VALUE; }\n'


@needs_compiler
def test_what_is_unchanged_is_not_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source, header = tmp_path / "a file.cpp", tmp_path / "value.h"
    source.write_text(SOURCE)
    header.write_text("#define VALUE 1\n")
    first = compiler.build_kernel(source)
    called = []
    monkeypatch.setattr(compiler, "_call", lambda command, source: called.append(command))
    assert compiler.build_kernel(source) == first
    assert not called
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    header.write_text("#define VALUE 2\n")
    assert compiler.build_kernel(source) != first


@needs_compiler
def test_a_source_that_does_not_compile_is_named_with_its_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "bad.cpp"
    source.write_text("#include <pto/pto-inst.hpp>\nvoid f() { TNOSUCH(1); }\n")
    with pytest.raises(compiler.CompileError, match=r"bad\.cpp:2:.*TNOSUCH"):
        compiler.build_kernel(source)


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch):
    compiler.compiler.cache_clear()
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    with pytest.raises(compiler.NoCompilerError, match=r"apt install g\+\+"):
        compiler.compiler()
    compiler.compiler.cache_clear()


def test_names_of_files_with_blanks():
    assert compiler._dependences("code.o: a\\ b.cpp \\\n c.h\n") == ["a b.cpp", "c.h"]
