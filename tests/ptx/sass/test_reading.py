"""Machine code is read as nvdisasm prints it. `data/control.sass` is its output (white space aside) for `control.ptx`,
our own, by ptxas 13.0.
"""

from pathlib import Path

import pytest

from kernbench.ptx.sass.control import Control, control
from kernbench.ptx.sass.facts import bank_reads, facts
from kernbench.ptx.sass.flow import EXIT, flow
from kernbench.ptx.sass.lines import one_a_line
from kernbench.ptx.sass.reading import UnreadableError, read

DATA = Path(__file__).parent / "data"
TEXT = (DATA / "control.sass").read_text()
LISTING = read(TEXT)
CODE = LISTING.instructions


def named(name: str):
    return [one for one in CODE if one.name == name]


def test_instructions_have_guard_operands_and_line():
    first = CODE[0]
    assert (first.address, first.name, first.operands, first.guard) == (0, "LDC", "R1, c[0x0][0x28]", "")
    load = named("LDG.E")[0]
    assert (load.guard, load.predicated, load.opcode, load.modifiers) == ("!P0", True, "LDG", ("E",))
    statements = one_a_line((DATA / "control.ptx").read_text())
    assert {statements.opcode(one.line) for one in named("LDG.E")} == {"ld.global.f32"}
    assert {statements.opcode(one.line) for one in named("FFMA") if one.line} == {"fma.rn.f32"}
    assert statements.opcode(named("BAR.SYNC.DEFER_BLOCKING")[0].line) == "bar.sync"


def test_a_function_of_the_assembler_has_no_lines():
    inside = [one for one in CODE if one.address >= LISTING.instructions[LISTING.labels[internal()]].address]
    assert inside
    assert {one.line for one in inside} == {0}


def internal() -> str:
    return next(label for label in LISTING.labels if "rem_u64" in label)


def test_branch_targets_are_labels():
    table = named("BRX")[0]
    assert len(table.targets) == 4
    assert all(target in LISTING.labels for target in table.targets)
    call = named("CALL.REL.NOINC")[0]
    assert call.targets == (internal(),)


# words that an S2R and the instruction that waits for it have
@pytest.mark.parametrize(
    ("upper", "expected"),
    [
        (0x000FE20000000800, Control(1, False, 7, 7, 0, 0)),
        (0x000E6E0000002100, Control(7, False, 1, 7, 0, 0)),
        (0x102FE20000011600, Control(1, False, 7, 7, 2, 4)),
        (0x000FC40008011409, Control(2, True, 7, 7, 0, 0)),
    ],
)
def test_control_fields(upper, expected):
    assert control(upper) == expected


def test_a_result_of_variable_latency_is_awaited_before_it_is_used():
    special = next(n for n, one in enumerate(CODE) if one.name == "S2R")
    counter = CODE[special].control.write_barrier
    register = CODE[special].operands.split(",")[0]
    user = next(one for one in CODE[special + 1 :] if register in one.operands)
    assert counter < 6
    assert user.control.wait_mask >> counter & 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "printed no code"),
        (lambda text: text.replace("/* 0x", "/* word 0x"), "no instruction that this reader knows"),
        (lambda text: text.split(" */")[0] + " */\n.L_x_1:\n", "second half of a word is missing"),
    ],
)
def test_another_format_is_refused(damage, message):
    with pytest.raises(UnreadableError, match=message):
        read(damage(TEXT))


def test_control_flow_of_the_listing():
    found = flow(LISTING, "control")
    assert found.reasons == ()
    last = {number: CODE[node.last - 1] for number, node in enumerate(found.nodes)}
    assert [number for number, one in last.items() if one.opcode == "BRX" and len(found.nodes[number].following) == 4]
    for number, node in enumerate(found.nodes):
        one = last[number]
        assert all(way == EXIT or 0 <= way < len(found.nodes) for way in node.following)
        if one.opcode == "BRA" and one.predicated:
            assert len(node.following) == 2
        if one.opcode == "EXIT":
            assert EXIT in node.following


def test_a_function_is_entered_for_each_call_and_returns_behind_it():
    found = flow(LISTING, "control")
    for node in found.nodes:
        if CODE[node.last - 1].opcode == "CALL":
            (entered,) = node.following
            assert found.nodes[entered].first == LISTING.labels[internal()]
    returning = [node for node in found.nodes if CODE[node.last - 1].opcode == "RET"]
    behind = {n.last for n in found.nodes if CODE[n.last - 1].opcode == "CALL"}
    assert {found.nodes[node.following[0]].first for node in returning} == behind


def test_sides_of_a_switch_follow_each_other_where_lanes_part():
    found = flow(LISTING, "control")
    (table,) = [node for node in found.nodes if CODE[node.last - 1].opcode == "BRX"]
    sides = set(table.following)
    assert all(any(side in node.parted for node in found.nodes) for side in sides)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LDG.E.128", (16, (0, 0, 0), 0)),
        ("LDS.U16", (2, (0, 0, 0), 0)),
        ("LDSM.16.MT88.4", (16, (0, 0, 0), 0)),
        ("ATOMG.E.ADD.F32x4.FTZ.RN.STRONG.GPU", (16, (0, 0, 0), 0)),
        ("HMMA.16816.F32.BF16", (0, (16, 8, 16), 16)),
        ("HGMMA.64x256x16.F32.BF16", (0, (64, 256, 16), 16)),
        ("QGMMA.64x128x32.F32.E4M3.E4M3", (0, (64, 128, 32), 8)),
        ("IMMA.16832.S8.S8", (0, (16, 8, 32), 8)),
        ("DMMA.884", (0, (8, 8, 4), 64)),
        ("FFMA", (0, (0, 0, 0), 0)),
    ],
)
def test_what_a_name_says(name, expected):
    known = facts(name)
    assert (known.width, known.shape, known.bits) == expected


def test_reads_of_register_banks():
    first, second = [one for one in CODE if one.name == "FFMA"][:2]
    assert sum(bank_reads(first)) == len({*first.operands.split(", ")[1:]})
    kept = first.__class__("", 0, "", "FFMA", "R0, R2.reuse, R4, R6", Control(), 0)
    then = first.__class__("", 0, "", "FFMA", "R1, R2, R5, R7", Control(), 0)
    assert bank_reads(then, kept) == (0, 2)
    assert bank_reads(then) == (1, 2)
    store = first.__class__("", 0, "", "STG.E.128", "desc[UR4][R2.64], R8", Control(), 0)
    assert bank_reads(store) == (2, 0)
    assert second.control.stall > 0
