"""Launches of kernels that nobody means: they end soon, with a finding or an error that says what is wrong."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.common.errors import MisuseError

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
ENTRY = """.visible .entry kernel(.param .u64 p, .param .u32 n)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [p];
"""


def findings(body, outside="", block=32):
    device = ptx.EmulatedDevice("sm_80")
    kernel = ptx.parse(HEAD + outside + ENTRY + body + "\n  ret;\n}\n").kernels["kernel"]
    return device.launch(kernel, 1, block, [device.array(np.zeros(64, np.uint32)), 7]).findings


@pytest.mark.parametrize(
    "outside",
    [
        ".func f() { call f, (); ret; }\n",
        ".func g();\n.func f() { call g, (); ret; }\n.func g() { call f, (); ret; }\n",
    ],
)
def test_recursion_without_end_or_memory(outside):
    (found,) = findings("  call f, ();", outside)
    assert found.kind == "misuse"
    assert "nested 5,000 deep: does the recursion end?" in found.message


@pytest.mark.parametrize(
    ("barrier", "message"),
    [
        ("mov.u32 %r1, 5000;\n  bar.sync %r1, 32;", "barrier 5000: a block has 0 to 15"),
        ("mov.u32 %r1, -1;\n  bar.sync %r1;", "a block has 0 to 15"),
        ("mov.u32 %r1, 7;\n  bar.sync 1, %r1;", "barrier 1 for 7 threads: the count is a multiple of the warp's 32"),
        ("mov.u32 %r1, 31;\n  bar.arrive 1, %r1;", "barrier 1 for 31 threads"),
    ],
)
def test_barriers_that_there_are_not(barrier, message):
    (found,) = findings("  " + barrier)
    assert found.kind == "misuse"
    assert message in found.message
    assert found.count == 32


def test_barriers_from_registers_are_clean():
    assert findings("  mov.u32 %r1, 15;\n  mov.u32 %r2, 64;\n  bar.sync %r1, %r2;", block=64) == []


@pytest.mark.parametrize(
    ("load", "told"),
    [
        ("ld.param.u32 %r1, [n+4];", "4 bytes at offset 4 of parameter 'n', which has 4 bytes"),
        ("ld.param.u32 %r1, [n+-4];", "at offset -4 of parameter 'n'"),
        ("ld.param.u64 %rd2, [n];", "8 bytes at offset 0 of parameter 'n', which has 4 bytes"),
        ("ld.param.v2.u32 {%r1, %r2}, [n];", "8 bytes at offset 0 of parameter 'n'"),
        ("ld.param.u32 %r1, [p+8];", "at offset 8 of parameter 'p', which has 8 bytes"),
    ],
)
def test_loads_past_a_parameter(load, told):
    (found,) = findings("  " + load)
    assert found.kind == "out-of-bounds"
    assert told in found.message


@pytest.mark.parametrize(
    "load", ["ld.param.u32 %r1, [p+4];", "ld.param.v2.u32 {%r1, %r2}, [p];", "ld.param.u8 %r1, [n+3];"]
)
def test_parts_of_a_parameter_are_clean(load):
    assert findings("  " + load) == []


def test_no_memory_for_the_race_check(monkeypatch):
    def full(words, first_byte, shared):
        raise MemoryError

    monkeypatch.setattr("kernbench.ptx.emulator.checks.checks.new_cells", full)
    # the executor has a shadow of its own
    monkeypatch.setenv("KERNBENCH_FAST_PATHS", "-executor")
    with pytest.raises(MisuseError, match=r"the race check has no memory for that many: .*checks=False"):
        findings("  st.global.u32 [%rd1], 1;")


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("address", [0, 0x4000, 0x7FFF_FFF0])
@pytest.mark.parametrize(
    "access",
    [
        "st.shared.u32 [%r1], 1;",
        "ld.shared.u32 %r2, [%r1];",
        "ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r1];",
        "atom.shared.add.u32 %r2, [%r1], 1;",
        "cp.async.ca.shared.global [%r1], [%rd1], 16;",
        "st.local.v4.u32 [%r1], {%r1, %r1, %r1, %r1};",
        "ld.local.u32 %r2, [%r1];",
    ],
)
def test_blocks_without_shared_and_threads_without_local_memory(access, address, checks):
    device = ptx.EmulatedDevice("sm_80")
    body = f"  mov.u32 %r1, {address};\n  {access}\n  cp.async.wait_all;\n  ret;\n}}\n"
    kernel = ptx.parse(HEAD + ENTRY + body).kernels["kernel"]
    run = device.launch(kernel, 1, 32, [device.array(np.zeros(128, np.uint32)), 7], checks=checks)
    assert {f.kind for f in run.findings} == ({"out-of-bounds"} if checks else set())
