"""A line of the assembled text holds one instruction, and is otherwise the text that was given."""

from pathlib import Path

import pytest
from tests import sampled

from kernbench.ptx.sass.lines import one_a_line
from kernbench.ptx.text.parser import parse

TEXT = """.version 8.0
.target sm_90a
.address_size 64
.file 1 "a;b.cu"
.global .align 4 .b8 tab[4] = {1, 2,
 3, 4};
.visible .entry k(.param .u64 a) .maxntid 128 { .reg .b32 %r<4>; .reg .pred %p; // comment; here
 .loc 1 2 3
L1: add.s32 %r1, %r2, 1; @%p bra
   L2; mov.b64
  {%r1, /* x;
 */ %r2}, %rd3;
L2: { .reg .b32 x;
 ld.shared::cluster.u32 x, [%r1]; } ret; }
"""


def test_each_statement_has_its_line_and_knows_where_it_stood():
    made = one_a_line(TEXT)
    found = [(opcode, origin) for opcode, origin in zip(made.opcodes(), made.origin, strict=True) if opcode]
    assert found == [("add.s32", 9), ("bra", 9), ("mov.b64", 10), ("ld.shared::cluster.u32", 14), ("ret", 14)]
    assert made.opcode(1) == ""


KEPT = sorted((Path(__file__).parents[3] / "benchmarks/truth/ptx").glob("*.ptx"))


@pytest.mark.parametrize("path", sampled.some(KEPT, len(KEPT) // 3), ids=lambda path: path.stem)
def test_the_meaning_stays(path):
    text = path.read_text()
    assert parse(one_a_line(text).text) == parse(text)
