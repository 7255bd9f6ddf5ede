"""Functions that no module defines: printf as C prints, a heap whose misuse is told, a grid's own barrier."""

import ctypes
import struct

import numpy as np
import pytest

from kernbench.ptx.emulator.instructions.calls.formatting import formatted

MALLOC = """
.extern .func (.param .b64 result) malloc(.param .b64 size);
.extern .func free(.param .b64 pointer);
.extern .func (.param .b32 result) mystery(.param .b32 value);
.extern .func (.param .b32 result) vprintf(.param .b64 layout, .param .b64 values);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 text[16] = {37, 100, 32, 37, 115, 59, 37, 45, 53, 46, 50, 102, 124, 0};
.global .align 1 .b8 word[4] = {111, 107, 33, 0};
"""
ALLOCATE = """
  {{
  .param .b64 size;
  .param .b64 given;
  st.param.b64 [size], {bytes};
  call (given), malloc, (size);
  ld.param.b64 %rd1, [given];
  }}
"""
FREE = """
  {
  .param .b64 pointer;
  st.param.b64 [pointer], %rd1;
  call free, (pointer);
  }
"""
USE = "  st.u32 [%rd1+4], %r0;\n  ld.u32 %r63, [%rd1+4];\n"


def allocate(nbytes):
    return ALLOCATE.format(bytes=nbytes)


def zeros(count):
    return np.zeros(count, "u4")


def test_each_thread_has_memory_of_its_own(lab):
    assert (lab.compute(allocate(8) + USE + FREE, outside=MALLOC, grid=3, block=64) == np.tile(np.arange(64), 3)).all()


MISUSES = {
    "past its end": (
        allocate(8) + "  st.u32 [%rd1+8], %r0;\n" + FREE,
        "out-of-bounds",
        "memory of malloc(8) by thread (0, 0, 0)",
    ),
    "after free": (allocate(8) + FREE + "  st.u32 [%rd1], %r0;\n", "use-after-free", "which was freed"),
    "never written": (
        allocate(8) + "  ld.u32 %r5, [%rd1];\n" + FREE,
        "uninitialised-read",
        "nobody wrote, in 'memory of",
    ),
    "freed twice": (
        allocate(8) + FREE + FREE,
        "use-after-free",
        "which was freed before: memory of malloc(8) by thread",
    ),
    "freed in its middle": (
        allocate(8) + "  add.u64 %rd1, %rd1, 4;\n" + FREE,
        "misuse",
        "which lies inside memory of malloc(8) by thread (0, 0, 0) of block (0, 0, 0) in PTX line",
    ),
    "freed and never had": ("  mov.u64 %rd1, %rd20;\n" + FREE, "misuse", "which malloc never gave"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_of_the_heap(lab, name):
    body, kind, words = MISUSES[name]
    (found,) = lab.findings(body, zeros(1), outside=MALLOC)
    assert found.kind == kind
    assert words in found.message


def test_what_is_left_in_the_heap_is_listed(lab):
    lab.launch(allocate(8) + FREE, outside=MALLOC)
    run = lab.launch(allocate(24), outside=MALLOC, block=2)
    assert run.findings == []
    assert [text.partition(" in PTX line")[0] for text in run.views["heap"]] == [
        "memory of malloc(24) by thread (0, 0, 0) of block (0, 0, 0)",
        "memory of malloc(24) by thread (1, 0, 0) of block (0, 0, 0)",
    ]


def test_a_full_heap_gives_null(lab):
    body = allocate(1 << 19) + "  set.ne.u32.u64 %r63, %rd1, 0;\n"
    assert np.count_nonzero(lab.compute(body, outside=MALLOC)) == 16
    assert np.count_nonzero(lab.compute(body, outside=MALLOC)) == 0


def test_memory_is_used_again_when_none_is_left(lab):
    body = (
        "  mov.u32 %r9, 0;\nL:\n"
        + allocate(1 << 18)
        + USE
        + FREE
        + """
  add.u32 %r9, %r9, 1;
  setp.lt.u32 %p1, %r9, 6;
  @%p1 bra L;
"""
    )
    assert (lab.compute(body, outside=MALLOC) == np.arange(32)).all()


def test_threads_race_in_memory_of_the_heap(lab):
    body = (
        """
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra MEET;
"""
        + allocate(8)
        + """
  st.shared.u64 [home], %rd1;
MEET:
  bar.sync 0;
  ld.shared.u64 %rd1, [home];
  st.u32 [%rd1], %r0;
"""
    )
    (found,) = lab.findings(body, outside=MALLOC + ".shared .b64 home;", block=64)
    assert found.kind == "race"
    assert "memory of malloc(8) by thread (0, 0, 0)" in found.message


def test_a_function_that_nobody_defines(lab):
    call = "{\n  .param .b32 a;\n  .param .b32 b;\n  st.param.b32 [a], 1;\n  call (b), mystery, (a);\n  }\n"
    (found,) = lab.findings(call, outside=MALLOC)
    assert found.kind == "misuse"
    assert "mystery is declared and has no body" in found.message


@pytest.mark.parametrize("name", ["cudaLaunchDeviceV2", "__cudaCDP2LaunchDeviceV2"])
@pytest.mark.parametrize("kernel", ["kernel", "inner"])
def test_kernels_that_launch_kernels_are_refused_by_name(lab, name, kernel):
    """Dynamic parallelism, which only its function's name tells apart from any that nobody defines.

    A kernel may launch itself or another: the address is what it passes.
    """
    launch = (
        f".extern .func (.param .b32 out) {name} (.param .b64 given, .param .b64 stream);\n.entry inner() {{ ret; }}\n"
    )
    call = f"""{{
  .param .b64 a;
  .param .b64 b;
  .param .b32 c;
  mov.u64 %rd1, {kernel};
  st.param.b64 [a], %rd1;
  st.param.b64 [b], 0;
  call (c), {name}, (a, b);
  }}
"""
    (found,) = lab.findings(call, outside=launch)
    assert name in found.message
    assert "dynamic parallelism) are not emulated: launch the inner one from the host" in found.hint


def test_a_table_may_hold_the_address_of_a_kernel(lab):
    outside = ".entry inner() { ret; }\n.global .u64 table[1] = {inner};\n"
    assert lab.kinds("  ld.global.u64 %rd1, [table];\n", outside=outside) == []


def test_printf_gives_the_number_of_values_it_took(lab):
    body = """
  .local .align 8 .b8 values[24];
  .local .align 1 .b8 mine[4];
  st.local.u32 [values], %r0;
  mov.u64 %rd1, mine;
  st.local.u8 [mine], 97;
  st.local.u8 [mine+1], 0;
  cvta.local.u64 %rd1, %rd1;
  mov.u64 %rd2, word;
  setp.eq.u32 %p1, %r0, 0;
  selp.b64 %rd2, %rd1, %rd2, %p1;
  st.local.u64 [values+8], %rd2;
  st.local.f64 [values+16], 0d3FF8000000000000;
  {
  .param .b64 layout;
  .param .b64 place;
  .param .b32 count;
  mov.u64 %rd3, text;
  mov.u64 %rd4, values;
  cvta.local.u64 %rd4, %rd4;
  st.param.b64 [layout], %rd3;
  st.param.b64 [place], %rd4;
  call (count), vprintf, (layout, place);
  ld.param.b32 %r63, [count];
  }
"""
    assert (lab.compute(body, outside=MALLOC, block=2) == 3).all()
    assert lab.run.views["printf"] == ["0 a;1.50 |", "1 ok!;1.50 |"]


CASES = [
    ("%d|%5d|%-5d|%05d|%+d|% d", "i", [7, 42, -42, -42, 3, 3]),
    ("%u %x %X %o %#x %#o %08x", "i", [-1, 255, 255, 8, 255, 8, 48879]),
    ("%hhd %hd %hhu", "i", [300, 70000, 511]),
    ("%ld %lld %lu %lx", "q", [-5, 1 << 40, -1, 1 << 50]),
    ("%f %.2f %8.3f %-8.1f| %+.0f %#.0f", "d", [1.5, 2.345, -3.14159, 2.25, 2.5, 3.0]),
    ("%e %.3E %g %G %g %.10g", "d", [12345.678, 1e-300, 1e20, 1e-10, 0.0001, 1 / 3]),
    ("%f %F %e %g %5.1f", "d", [float("inf"), float("-inf"), float("inf"), float("-inf"), -0.0]),
    ("%a %a %a %.3a %A %a", "d", [1.0, 0.1, -1024.5, 3.14159, 0.5, 5e-324]),
    ("%c%c%5c|%-3c|", "i", [72, 105, 33, 65]),
    ("%.3d %.0d %5.3d %%", "i", [7, 0, 7]),
    ("%*d %-*d|", "i", [5, 42, 5, 42]),
]


@pytest.mark.parametrize(("layout", "kind", "values"), CASES)
def test_formats_are_those_of_c(layout, kind, values):
    convert = {"i": ctypes.c_int, "q": ctypes.c_longlong, "d": ctypes.c_double}[kind]
    buffer = ctypes.create_string_buffer(500)
    ctypes.CDLL(None).snprintf(buffer, 500, layout.encode(), *[convert(v) for v in values])
    left = iter(values)
    pack = {"i": "<i", "q": "<q", "d": "<d"}[kind]

    def following(code):
        return struct.unpack(f"<{code}", struct.pack(pack, next(left)))[0]

    text, taken = formatted(layout.encode(), following, lambda address: b"")
    assert text == buffer.value
    assert taken == len(values)
