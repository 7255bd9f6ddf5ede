"""Order and counters of expanded instructions: loads begin early, and nothing waits for more than it reads."""

from types import SimpleNamespace

import pytest

from kernbench.ptx.recording.naming import static_kind
from kernbench.ptx.sass.expansion.pieces import Piece, pieces_of_block
from kernbench.ptx.sass.expansion.schedule import Scheduled, schedule
from kernbench.ptx.sass.streams import NO_BARRIER
from kernbench.ptx.text.parser import parse
from kernbench.ptx.text.walking import instructions_of


def piece(name: str, writes: str, *reads: str) -> Piece:
    return Piece(name, 0, frozenset(reads), frozenset((writes,)) if writes else frozenset())


def waits(block: list[Scheduled], name: str) -> int:
    return next(one.control.wait_mask for one in block if one.piece.name == name)


def test_loads_of_a_loop_do_not_wait_for_each_other():
    """Each was awaited before it is made again, in the turn before."""
    body = [piece("LDG.A", "a", "p"), piece("LDG.B", "b", "p"), piece("FADD", "s", "a"), piece("FMUL", "t", "b")]
    (block,) = schedule([body], {0: {0}})
    assert waits(block, "LDG.A") == waits(block, "LDG.B") == 0
    # each result has a counter of its own
    assert waits(block, "FADD") & waits(block, "FMUL") == 0


def test_what_no_block_before_has_waited_for_is_awaited():
    first = [piece("LDG.A", "a", "p"), piece("BRA", "")]
    waiting, passing = [piece("FADD", "s", "a")], [piece("FMUL", "t", "b")]
    blocks = schedule([first, waiting, passing], {0: {1}, 1: {2}})
    assert waits(blocks[1], "FADD") != 0
    assert waits(blocks[2], "FMUL") == 0


def test_a_result_is_awaited_once():
    blocks = schedule(
        [[piece("LDG.A", "a", "p")], [piece("FADD", "s", "a")], [piece("FMUL", "t", "a")]], {0: {1}, 1: {2}}
    )
    assert waits(blocks[1], "FADD") != 0
    assert waits(blocks[2], "FMUL") == 0


def test_what_is_waited_for_longest_comes_first():
    body = [piece("FADD", "s", "x"), piece("LDG.A", "a", "p"), piece("FMUL", "t", "a")]
    (block,) = schedule([body], {})
    assert [one.piece.name for one in block] == ["LDG.A", "FADD", "FMUL"]
    assert block[1].control.write_barrier == NO_BARRIER


HEAD = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array)
{
  .reg .b32 %r<16>; .reg .b64 %rd<4>; .reg .pred %p<2>;
  .shared .align 16 .b8 s[256];
  ld.param.u64 %rd0, [array];
  mov.u32 %r9, %tid.x;
  mov.u32 %r8, s;
"""


@pytest.mark.parametrize(
    ("between", "loads"),
    [
        ("", 1),
        ("  add.u32 %r3, %r1, 1;\n", 1),
        ("  st.shared.u32 [%r8+4], %r9;\n", 2),
        ("  bar.warp.sync -1;\n", 2),
        ("  add.u32 %r8, %r8, 4;\n", 2),
        ("  mov.u32 %r1, 5;\n", 2),
    ],
)
def test_what_was_loaded_is_not_loaded_again(between, loads):
    body = f"  ld.shared.u32 %r1, [%r8];\n{between}  ld.shared.u32 %r2, [%r8];\n  add.u32 %r4, %r1, %r2;\n"
    text = f"{HEAD}{body}  st.global.u32 [%rd0], %r4;\n  ret;\n}}\n"
    parsed = list(instructions_of(parse(text).kernels["kernel"].function.body))
    kinds = [static_kind("load", one.name) if one.opcode == "ld" else 0 for one in parsed]
    rows = SimpleNamespace(opcode=[one.name for one in parsed], kind=kinds)
    made = pieces_of_block(range(len(parsed)), rows, parsed)
    assert sum(one.name.startswith("LDS") for one in made) == loads
    added = next(one for one in made if "%r4" in one.writes)
    assert ("%r2" in added.reads) is (loads == 2)
