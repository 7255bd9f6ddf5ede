"""Machine code of runs against the steps that it stands for: the same bits, with masks, guards and none."""

from dataclasses import replace

import numpy as np
import pytest

from kernbench.ptx.emulator.fused import code, emitting
from kernbench.ptx.emulator.lanes.lanes import everything
from kernbench.ptx.emulator.lanes.packing import Packs, Unpacks
from kernbench.ptx.emulator.lanes.slots import BANKS, ConstantSlot, RegisterSlot, SlotTable
from kernbench.ptx.emulator.lanes.window import RunWindow
from kernbench.ptx.emulator.program.steps import Computed, WithTable, compute, copy, cut, guarded, sign_extend
from kernbench.ptx.numerics.table import operation

WARPS = 40
# zeros, subnormal and normal numbers at their ends, halfway cases of narrower formats, infinities, NaN of both kinds
FLOATS = (0, 1, 0x7F_FFFF, 0x80_0000, 0x3F80_0000, 0x3F80_1000, 0x3F80_8000, 0x3F80_3000, 0x477F_EFFF, 0x477F_F000)
FLOATS += (0x3300_0000, 0x3380_0000, 0x387F_FFFF, 0x42FC_0000, 0x42FE_0001, 0x4300_0000, 0x7F7F_FFFF, 0x7F80_0000)
FLOATS += (0x7F80_0001, 0x7FC0_0000, 0x7FFF_FFFF, 0x4B00_0001, 0x3E99_999A)
COUNTS = (0, 1, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 255, 1 << 31)
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_COMPARE = (*COMPARE, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")

F32, U32, U64, U16, PRED = "uint32", "uint32", "uint64", "uint16", "bool"


def case(meaning, sources, targets, **mods):
    return operation(meaning, mods), sources, targets


def single(meaning, sources, targets, **mods):
    function, *rest = case(meaning, sources, targets, **mods)
    return getattr(function, "single", function), *rest


def float_cases():
    for flags in ({}, {"ftz": "ftz"}, {"sat": "sat"}, {"ftz": "ftz", "sat": "sat"}):
        for name in ("add.float", "sub.float", "mul.float"):
            yield case(name, [F32] * 2, [F32], type="f32", **flags)
        yield case("fma", [F32] * 3, [F32], type="f32", rnd="rn", **flags)
    for flags in ({}, {"ftz": "ftz"}):
        yield case("rcp", [F32], [F32], type="f32", rnd="rn", **flags)
        yield case("sqrt", [F32], [F32], type="f32", rnd="rn", **flags)
        yield case("abs.float", [F32], [F32], type="f32", **flags)
        yield case("neg.float", [F32], [F32], type="f32", **flags)
        yield case("ex2", [F32], [F32], type="f32", mode="approx", **flags)
        for name in ("min.float", "max.float"):
            for more in ({}, {"NaN": "NaN"}):
                yield case(name, [F32] * 2, [F32], type="f32", **flags, **more)
                yield case(name, [F32] * 3, [F32], type="f32", **flags, **more)
        for test in FLOAT_COMPARE:
            yield single("setp", [F32] * 2, [PRED], type="f32", cmp=test, **flags)
    yield case("div.float", [F32] * 2, [F32], type="f32", rnd="rn")
    yield case("setp", [F32] * 2, [PRED] * 2, type="f32", cmp="gt")
    for join in ("and", "or", "xor"):
        yield case("setp", [F32, F32, PRED], [PRED] * 2, type="f32", cmp="lt", bool=join)
    for flags in ({}, {"ftz": "ftz"}):
        for name in ("add.float", "sub.float", "mul.float"):
            yield case(name, [U64] * 2, [U64], type="f32x2", rnd="rn", **flags)
        yield case("fma", [U64] * 3, [U64], type="f32x2", rnd="rn", **flags)
    for to in ("f16x2", "bf16x2"):
        yield case("cvt.packed", [F32] * 2, [U32], dtype=to, atype="f32", rnd="rn")


def integer_cases():
    for of, bits in (("16", U16), ("32", U32), ("64", U64)):
        for letter in "us":
            kind = letter + of
            for name in ("add.int", "sub.int"):
                yield case(name, [bits] * 2, [bits], type=kind)
            for name in ("min.int", "max.int"):
                yield case(name, [bits] * 2, [bits], type=kind)
            for test in (*COMPARE, *(() if letter == "s" else ("lo", "ls", "hi", "hs"))):
                yield single("setp", [bits] * 2, [PRED], type=kind, cmp=test)
            yield case("shr", [bits, U32], [bits], type=kind)
            yield case("mul.int", [bits] * 2, [bits], type=kind, part="lo")
            yield case("mad.int", [bits] * 3, [bits], type=kind, part="lo")
        yield case("shl", [bits, U32], [bits], type=f"b{of}")
        yield case("neg.int", [bits], [bits], type=f"s{of}")
        yield case("selp", [bits, bits, PRED], [bits], type=f"b{of}")
        for name in ("and", "or", "xor"):
            yield case(name, [bits] * 2, [bits], type=f"b{of}")
        yield case("not", [bits], [bits], type=f"b{of}")
    for letter in "us":
        for part, target in (("hi", U32), ("wide", U64)):
            yield case("mul.int", [U32] * 2, [target], type=f"{letter}32", part=part)
            yield case("mad.int", [U32, U32, target], [target], type=f"{letter}32", part=part)
        for to, of in (("64", "32"), ("32", "64"), ("32", "16"), ("16", "32"), ("64", "16")):
            yield case("cvt", [f"uint{of}"], [f"uint{to}"], dtype=f"{letter}{to}", atype=f"{letter}{of}")
    for name in ("and", "or", "xor"):
        yield case(name, [PRED] * 2, [PRED], type="pred")
    yield case("not", [PRED], [PRED], type="pred")
    for table in (0, 0x80, 0x96, 0xCA, 0x1D, 0xFF):
        yield WithTable(operation("lop3", {"type": "b32"}), table), [U32] * 3, [U32]
    for of, to in ((U32, U32), (U64, U32), (U32, U64), (PRED, PRED), (U16, U32)):
        yield copy, [of], [to]
        yield cut, [of], [to]
    for many, part, whole in ((2, U16, U32), (2, U32, U64), (4, U16, U64), (4, "uint8", U32)):
        yield Packs(8 * np.dtype(part).itemsize), [part] * many, [whole]
        yield Unpacks(8 * np.dtype(part).itemsize), [whole], [part] * many
    yield sign_extend, [U16], [U32]
    yield sign_extend, [U32], [U64]


class Storage:
    """Registers and no more."""

    def __init__(self, table):
        self.table = table
        self.banks = {bank: np.zeros((max(rows, 1), WARPS * 32 + 48), bank) for bank, rows in table.rows.items()}
        self.arguments = np.zeros((1, 64), np.uint8)

    def row(self, slot):
        spec = self.table.slots[slot]
        if isinstance(spec, RegisterSlot):
            return self.banks[spec.bank][spec.row, : WARPS * 32]
        assert isinstance(spec, ConstantSlot)
        return np.full(WARPS * 32, spec.bits, spec.dtype)


def filled(storage, rng):
    for bank, rows in storage.banks.items():
        rows[...] = rng.integers(0, 2 if bank == "bool" else 1 << 64, rows.shape, np.uint64).astype(bank)
        if bank == "bool":
            continue
        picked = np.array((*FLOATS, *(one | 1 << 31 for one in FLOATS), *COUNTS), np.uint64)
        chosen = rng.random(rows.shape) < 0.7
        rows[chosen] = rng.choice(picked, int(chosen.sum())).astype(bank)


class Program:
    """Steps of one instruction each, on registers of their own or of those before."""

    def __init__(self, cases):
        self.table = SlotTable()
        self.steps = [
            compute(function, [self.new(one) for one in sources], [self.new(one) for one in targets])
            for function, sources, targets in cases
        ]

    def new(self, bank):
        return self.table.number(RegisterSlot(bank, self.table.new_row(bank)))

    def run(self, seed, steps, mask, masked, dead=frozenset()):
        """The registers after the steps, and after their machine code, of which all of them are part."""
        banks = []
        (part,) = code.parted(self.table.slots, [step.computed for step in steps], dead, masked)
        assert part[2] is not None
        made = code.machine_code(part[2], True)
        for native in (False, True):
            storage = Storage(self.table)
            filled(storage, np.random.default_rng(seed))
            window = RunWindow(storage, everything(WARPS))
            if native:
                assert made(window.layout, np.zeros(0, bool) if mask is None else mask) is None
            else:
                for step in steps:
                    if masked:
                        step.general(window, mask)
                    else:
                        step.direct(window)
            banks.append(storage.banks)
        return banks


def same(banks):
    one, two = banks
    for bank in BANKS:
        assert np.array_equal(one[bank], two[bank]), (bank, np.argwhere(one[bank] != two[bank])[:4])


CASES = [*float_cases(), *integer_cases()]


@pytest.fixture(autouse=True)
def possible():
    if not code.is_possible():
        pytest.skip("no machine code can be called here")


@pytest.mark.parametrize("part", range(4))
def test_each_operation(part):
    cases = [one for one in CASES[part::4] if emitting.fuses() or "fma" not in str(one[0])]
    program = Program(cases)
    same(program.run(part, program.steps, None, False))


def test_masks_and_guards():
    program = Program(CASES[::7])
    rng = np.random.default_rng(5)
    mask = rng.random(WARPS * 32) < 0.6
    predicates = [program.new("bool") for _ in range(3)]
    steps = []
    for number, step in enumerate(program.steps):
        kind = number % 4
        if kind == 1:
            step = guarded(step, predicates[number % 3], number % 8 == 1, False)
        if kind == 2:
            step = replace(
                step, computed=replace(step.computed, relaxed=True), general=lambda w, m, s=step: s.direct(w)
            )
        steps.append(step)
    same(program.run(7, steps, mask, True))


def written_again(program):
    """Steps that write registers, read them and write them again, some under a guard."""
    r, p = [program.new(U32) for _ in range(4)], program.new(PRED)
    add, less = operation("add.int", {"type": "u32"}), operation("setp", {"type": "u32", "cmp": "lt"}).single
    return [
        compute(add, (r[0], r[1]), (r[0],)),
        compute(less, (r[0], r[2]), (p,)),
        guarded(compute(add, (r[0], r[3]), (r[1],)), p, False, False),
        compute(copy, (r[1],), (r[0],)),
        guarded(compute(less, (r[1], r[2]), (p,)), p, True, True),
    ]


def test_registers_that_are_written_and_read_again():
    program = Program([])
    steps = written_again(program)
    same(program.run(1, steps, None, False))
    same(program.run(1, steps, np.arange(WARPS * 32) % 3 == 0, True))


def test_what_nobody_reads_is_not_stored():
    program = Program([])
    a, b, c = (program.new(U32) for _ in range(3))
    add = operation("add.int", {"type": "u32"})
    steps = [compute(add, (a, a), (b,)), compute(add, (b, a), (c,))]
    by_steps, native = program.run(3, steps, None, False, frozenset((b,)))
    rows = [program.table.slots[slot].row for slot in (a, b, c)]
    assert np.array_equal(by_steps[U32][rows[2]], native[U32][rows[2]])
    assert not np.array_equal(by_steps[U32][rows[1]], native[U32][rows[1]])


def test_a_step_that_is_not_known_runs_by_itself():
    program = Program([])
    a, b, c = (program.new(U32) for _ in range(3))
    add = operation("add.int", {"type": "u32"})
    computed = [
        Computed(add, (a, a), (b,)),
        Computed(lambda one, out: None, (b,), (c,)),
        Computed(add, (c, a), (b,)),
    ]
    found = code.parted(program.table.slots, computed, frozenset((b, c)), False)
    assert [(begin, end, written is None) for begin, end, written in found] == [
        (0, 1, False),
        (1, 2, True),
        (2, 3, False),
    ]
    # the first part's result is read by the step behind it, the last one's by nobody
    assert f"uint32.{program.table.slots[b].row}, i64 %lane" in found[0][2].text
    assert f"uint32.{program.table.slots[b].row}, i64 %lane" not in found[2][2].text
