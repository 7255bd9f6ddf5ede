"""Rows as text: each with its operation, operands, immediate and line, and the same text for the same program."""

import pytest
from tests.ptx.executor.test_running import BARRIER, CLEAN, COPY, HEAD, LOAD, STORE, WAIT

from kernbench import ptx
from kernbench.ptx.emulator.analysis.building import program_of
from kernbench.ptx.executor import kept_rows, running
from kernbench.ptx.executor.listing import listing

WIDTH = 120
FIRST = HEAD.count("\n") + 1


def shown(body, kept=False):
    """The lines of the rows of a body; with `kept` of rows that were stored."""
    program = program_of(ptx.parse(HEAD + body + "  ret;\n}\n").kernels["kernel"])
    rows = running._made(program)
    return listing(program, kept_rows.from_bytes(kept_rows.to_bytes(rows)) if kept else rows)


def test_a_row_has_its_operation_operands_immediate_and_line():
    lines = shown("  ld.global.u32 %r10, [%rd3+8];\n  add.u32 %r10, %r10, 3;\n" + COPY + WAIT + BARRIER + STORE)
    rows = [
        "loads_stores.load_global (4, 4, 1, 1) | %r10, %rd3 | immediate 8 | "
        f"line {FIRST}: ld.global.u32 %r10, [%rd3+8];",
        f"add u4 u4 > u4 | %r10, %r10, 0x3:u32 | line {FIRST + 1}: add.u32 %r10, %r10, 3;",
        "copies.begin_copy (4, 0, 0) | %r6, %rd3, %rd3, number 0 | "
        f"line {FIRST + 2}: cp.async.ca.shared.global [%r6], [%rd3], 4;",
        f"copies.commit () | line {FIRST + 3}: cp.async.commit_group;",
        f"copies.wait (0,) | line {FIRST + 4}: cp.async.wait_group 0;",
        f"barriers.wait_at_barrier (1, 0, 0) | line {FIRST + 5}: bar.sync 0;",
    ]
    assert lines[-9:] == [
        *(f"  {row}" for row in rows),
        "block 1",
        f"  loads_stores.store_global (4, 4, 1, 1) | %r10, %rd4 | line {FIRST + 6}: st.global.u32 [%rd4], %r10;",
        f"  flow.end_lanes () | line {FIRST + 7}: ret;",
    ]


def test_values_of_a_launch_are_named():
    lines = shown(LOAD + STORE)
    assert "  copy u4 > u4 | %r0, %tid.x:u32 | line 9: " in "\n".join(lines)
    assert any(line.startswith("  copy u4 > u4 | %r9, [n+0]:u32 | line 8: ") for line in lines)


def test_branches_name_blocks_and_guards_their_predicates():
    lines = shown("  setp.ge.u32 %p0, %r3, %r9;\n  @%p0 bra DONE;\n  @!%p0 add.u32 %r1, %r1, 1;\n" + LOAD + "DONE:\n")
    assert [line for line in lines if "branch" in line or "guard" in line] == [
        f"  flow.branch (True, False, 1) | %p0 | to block 2 | line {FIRST + 1}: @%p0 bra DONE;",
        "  guard True | %p0",
    ]
    ends = ": lanes only end here, which is not counted"
    blocks = [line for line in lines if line.startswith("block")]
    assert blocks == [f"block 3{ends}", "block 0", "block 1", f"block 2{ends}"]


@pytest.mark.parametrize("body", CLEAN.values(), ids=CLEAN)
def test_one_program_has_one_text(body):
    lines = shown(body)
    assert lines == shown(body) == shown(body, kept=True)
    assert max(map(len, lines)) <= WIDTH


def test_a_change_is_a_changed_line():
    one, two = (shown(f"  add.u32 %r10, %r0, {number};\n{STORE}") for number in (3, 4))
    row = "  add u4 u4 > u4 | %r10, %r0, {0:#x}:u32 | line {1}: add.u32 %r10, %r0, {0};"
    changed = [pair for pair in zip(one, two, strict=True) if pair[0] != pair[1]]
    assert changed == [(row.format(3, FIRST), row.format(4, FIRST))]
