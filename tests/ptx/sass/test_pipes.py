"""The table of units: no opcode stands twice, and one that it does not know is named."""

from collections import Counter

import pytest

from kernbench.ptx.sass.building import Builder
from kernbench.ptx.sass.control import Control
from kernbench.ptx.sass.pipes import FAMILIES, family, is_known
from kernbench.ptx.sass.streams import Pipe


def test_no_opcode_has_two_rows():
    count = Counter(opcode for row in FAMILIES for opcode in row.opcodes.split())
    assert [opcode for opcode, times in count.items() if times > 1] == []


@pytest.mark.parametrize(
    ("opcode", "pipe"),
    [
        ("FFMA", Pipe.FMA), ("IMAD", Pipe.MULTIPLY), ("MUFU", Pipe.MUFU), ("HGMMA", Pipe.WGMMA), ("UTMALDG", Pipe.BULK),
        ("SYNCS", Pipe.MBARRIER), ("BAR", Pipe.BARRIER), ("LDSM", Pipe.LDMATRIX), ("ATOMS", Pipe.SHARED),
        ("UIADD3", Pipe.UNIFORM), ("UTCHMMA", Pipe.TCGEN05), ("F2I", Pipe.MUFU), ("I2F", Pipe.MUFU),
        ("F2FP", Pipe.CONVERT), ("I2FP", Pipe.CONVERT),
    ],
)  # fmt: skip
def test_units(opcode, pipe):
    assert family(opcode).pipe == pipe
    assert is_known(opcode)


def test_a_modifier_may_have_a_pipe_of_its_own():
    found = [family(name).pipe for name in ("IMAD.HI.U32", "IMAD.WIDE", "IMAD.MOV.U32", "HADD2.F32", "HADD2.BF16_V2")]
    assert found == [Pipe.WIDE, Pipe.WIDE, Pipe.MULTIPLY, Pipe.MULTIPLY, Pipe.HALF2]
    builder = Builder()
    builder.add("IMAD.WIDE.U32", Control())
    assert builder.done().pipe.tolist() == [Pipe.WIDE]


def test_an_unknown_opcode_is_named_and_counts_as_plain():
    builder = Builder()
    builder.add("FROB.WIDE", Control())
    builder.add("UFROB", Control())
    builder.add("FADD", Control())
    ops = builder.done()
    assert ops.pipe.tolist() == [Pipe.INTEGER, Pipe.UNIFORM, Pipe.FMA]
    assert builder.unknown == {"FROB", "UFROB"}
