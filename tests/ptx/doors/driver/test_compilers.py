"""What the driver library does with compilers and runtimes that a program loads, by libraries that stand for them."""

import shutil
import subprocess
from pathlib import Path

import pytest

# a compiler that gives back the options it was called with as PTX
COMPILER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { char ptx[4096]; } Program;
typedef const char *const *Names;
int nvrtcVersion(int *major, int *minor) { *major = 99; *minor = 4; return 0; }
int nvrtcCreateProgram(void **made, const char *text, const char *name, int count, Names headers, Names names) {
  Program *program = calloc(1, sizeof *program);
  sprintf(program->ptx, "// source %s name %s with %d headers\n", text, name, count);
  *made = program;
  return headers || names ? 1 : 0;
}
int nvrtcCompileProgram(void *made, int count, Names options) {
  Program *program = made;
  for (int i = 0; i < count; i++) strcat(strcat(program->ptx, options[i]), " ");
  return 0;
}
int nvrtcGetPTXSize(void *made, size_t *bytes) { *bytes = strlen(((Program *)made)->ptx) + 1; return 0; }
int nvrtcGetPTX(void *made, char *ptx) { strcpy(ptx, ((Program *)made)->ptx); return 0; }
int nvrtcGetCUBINSize(void *made, size_t *bytes) { return 7; }
int nvrtcGetCUBIN(void *made, char *code) { return 7; }
"""
COMPILES = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int cuDriverGetVersion(int *);
int main(int count, char **words) {
  int version = 0;
  cuDriverGetVersion(&version);
  printf("driver %d", version);
  void *library = dlopen(words[1], RTLD_NOW), *program;
  if (!library) return 2;
  int (*create)(void **, const char *, const char *, int, void *, void *) = dlsym(library, "nvrtcCreateProgram");
  int (*compile)(void *, int, char **) = dlsym(library, "nvrtcCompileProgram");
  int (*bytes)(void *, size_t *) = dlsym(library, "nvrtcGetCUBINSize");
  int (*code)(void *, char *) = dlsym(library, "nvrtcGetCUBIN");
  size_t size = 0;
  cuDriverGetVersion(&version);
  printf(" then %d\n", version);
  if (create(&program, "int x;", "mine.cu", 0, NULL, NULL) || compile(program, count - 2, words + 2)) return 3;
  if (bytes(program, &size)) return 4;
  char *text = malloc(size);
  if (code(program, text)) return 5;
  puts(text);
  return 0;
}
"""
# a library that asks for a table of NVIDIA's driver, as NVIDIA's runtime does
RUNTIME = """
int cuGetExportTable(const void **, const unsigned char *);
int begin(void) {
  static const unsigned char id[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                     0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
  const void *table;
  int error = cuGetExportTable(&table, id);
  return error + !table;
}
"""
EXPORTED = "int _cudaLaunchKernelEx(void) { return begin() + 1; }\n"
BEGINS = """
#include <dlfcn.h>
int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW);
  if (!library) return 2;
  int (*begin)(void) = dlsym(library, "begin");
  return begin() == 501 && count ? 0 : 3;
}
"""


@pytest.fixture
def compiled(library, tmp_path):
    """Compiles a library or a program in C."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler")

    def compile_it(name: str, text: str, *flags: str) -> Path:
        source, made = tmp_path / f"{name}.c", tmp_path / name
        source.write_text(text)
        command = [compiler, "-O0", "-w", *flags, "-o", made, source, f"-L{library}", "-l:libcuda.so.1", "-ldl"]
        subprocess.run([str(word) for word in command], check=True, timeout=900)
        return made

    return compile_it


def test_nvrtc_is_asked_for_lines_and_gives_ptx_as_machine_code(compiled, run_program):
    nvrtc, program = compiled("libnvrtc.so.99", COMPILER, "-fPIC", "-shared"), compiled("program", COMPILES)
    result = run_program(program, nvrtc, "-std=c++17")
    assert result.code == 0, result.out + result.err
    version, source, options, *_ = result.out.splitlines()
    # no driver is too old for the compiler of its program
    assert version == "driver 13000 then 99040"
    assert source == "// source int x; name mine.cu with 0 headers"
    assert options.split() == ["-std=c++17", "--generate-line-info"]
    # what a program asks for itself stays
    for option in ("-lineinfo", "--generate-line-info", "-G", "--device-debug"):
        assert run_program(program, nvrtc, option).out.splitlines()[2].split() == [option]


def test_a_runtime_that_cannot_be_replaced_is_named(compiled, run_program):
    runtime, program = compiled("libruntime.so", RUNTIME, "-fPIC", "-shared"), compiled("program", BEGINS)
    result = run_program(program, runtime)
    assert result.code == 0
    assert f"kernbench: {runtime} has NVIDIA's CUDA runtime linked in" in result.err
    ready = compiled("libcublas.so.99", RUNTIME, "-fPIC", "-shared")
    assert "compute this step on the host, or by a kernel" in run_program(program, ready).err


def test_a_runtime_whose_library_exports_what_programs_need_is_not_worth_a_word(compiled, run_program):
    runtime = compiled("libexported.so", RUNTIME + EXPORTED, "-fPIC", "-shared")
    result = run_program(compiled("program", BEGINS), runtime)
    assert (result.code, result.err) == (0, "")
