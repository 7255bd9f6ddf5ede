"""Steps that are played as tapes against the same steps by themselves: the same bits, findings and counts."""

from dataclasses import replace

import numpy as np
import pytest
from tests import sampled
from tests.ptx.emulator.fused.test_operations import (
    CASES,
    PRED,
    U32,
    WARPS,
    Program,
    Storage,
    filled,
    same,
    written_again,
)
from tests.ptx.emulator.fused.test_runs import agrees_in_order, agrees_with_steps

from kernbench.common.native_loops import NativeLoop
from kernbench.ptx.emulator.fused import code, emitting, runs, tapes
from kernbench.ptx.emulator.lanes.lanes import everything
from kernbench.ptx.emulator.lanes.slots import ConstantSlot, SpecialSlot, SymbolSlot
from kernbench.ptx.emulator.lanes.window import RunWindow
from kernbench.ptx.emulator.program.steps import compute, copy, guarded
from kernbench.ptx.numerics.table import operation
from kernbench.ptx.reference.programs import changed_program, safe_program


@pytest.fixture(autouse=True)
def only_tapes(monkeypatch):
    """Operations are compiled when they are first met, and runs never."""
    if not code.is_possible():
        pytest.skip("no machine code can be called here")
    monkeypatch.setattr(tapes, "_MAKE", 0.0)
    monkeypatch.setattr(runs, "_LOAD", float("inf"))


def forgotten(monkeypatch):
    """No operation was met before."""
    monkeypatch.setattr(tapes, "_OPERATIONS", {})
    monkeypatch.setattr(tapes, "_NAMED", {})


def played(program, seed, steps, mask):
    """The registers after the steps, and after they were played, which all of them are."""
    banks = []
    (piece,) = tapes.Taping(tuple(steps)).pieces(program.table.slots, 0.0)
    for native in (False, True):
        storage = Storage(program.table)
        filled(storage, np.random.default_rng(seed))
        window = RunWindow(storage, everything(WARPS))
        if native:
            bases = window.bases(piece.tape.outside)
            assert tapes.player()(piece.tape.numbers, bases, np.zeros(0, bool) if mask is None else mask) is None
        else:
            for step in steps:
                if mask is None:
                    step.direct(window)
                else:
                    step.general(window, mask)
        banks.append(storage.banks)
    return banks


@pytest.mark.parametrize("part", range(4))
def test_each_operation(part):
    cases = [one for one in CASES[part::4] if emitting.fuses() or "fma" not in str(one[0])]
    program = Program(cases)
    same(played(program, part, program.steps, None))


def under(program, steps):
    """Steps of which some have guards, and some compute lanes along that are not active."""
    predicates = [program.new(PRED) for _ in range(3)]
    for number, step in enumerate(steps):
        if number % 4 == 1:
            yield guarded(step, predicates[number % 3], number % 8 == 1, False)
        elif number % 4 == 2:
            along = replace(step.computed, relaxed=True)
            yield replace(step, computed=along, general=lambda window, mask, own=step: own.direct(window))
        else:
            yield step


@pytest.mark.parametrize("masked", [False, True])
def test_masks_and_guards(masked):
    program = Program(CASES[::5])
    steps = list(under(program, program.steps))
    mask = np.random.default_rng(5).random(WARPS * 32) < 0.6 if masked else None
    same(played(program, 7, steps, mask))


def test_registers_that_are_written_and_read_again():
    program = Program([])
    steps = written_again(program)
    same(played(program, 1, steps, None))
    same(played(program, 1, steps, np.arange(WARPS * 32) % 3 == 0))


class Launched(Storage):
    """With what a launch decides: a row, or one number for all lanes."""

    def row(self, slot):
        spec = self.table.slots[slot]
        if isinstance(spec, SpecialSlot):
            return np.arange(WARPS * 32, dtype=spec.dtype) * 3
        return np.array(1 << 40, spec.dtype) if isinstance(spec, SymbolSlot) else super().row(slot)


def test_what_is_no_register():
    program = Program([])
    wide, narrow = program.new("uint64"), program.new(U32)
    symbol, special = SymbolSlot("global", "x", 0), SpecialSlot("%tid.x", "uint32")
    slots = [program.table.number(one) for one in (symbol, special, ConstantSlot(7, "uint32"))]
    steps = (compute(copy, slots[:1], (wide,)), compute(np.add, slots[1:], (narrow,)))
    (piece,) = tapes.Taping(steps).pieces(program.table.slots, 0.0)
    window = RunWindow(Launched(program.table), everything(WARPS))
    tapes.player()(piece.tape.numbers, window.bases(piece.tape.outside), np.zeros(0, bool))
    assert (window.rows[wide] == 1 << 40).all()
    assert (window.rows[narrow] == np.arange(WARPS * 32) * 3 + 7).all()


def test_constants_live_as_long_as_their_tapes():
    """Machine code reads them by their addresses; other programs have others, any number of them."""
    program = Program([])
    narrow = program.new(U32)

    def tape(value):
        slots = [program.table.number(ConstantSlot(one, "uint32")) for one in (value, 7)]
        (piece,) = tapes.Taping((compute(np.add, slots, (narrow,)),)).pieces(program.table.slots, 0.0)
        return piece.tape

    numbers = [0xC0FFEE00 + value for value in range(9)]
    first, *others = [tape(number) for number in numbers]
    assert {("uint32", number) for number in numbers} <= set(tapes._CONSTANTS)
    del others
    kept = set(tapes._CONSTANTS) & {("uint32", number) for number in numbers}
    assert kept == {("uint32", numbers[0])}
    assert tape(numbers[0]).constants[0] is first.constants[0]


def test_frames_move():
    program = Program([])
    wide = program.new("uint64")
    frame = program.table.number(SymbolSlot("frame", "f", 0))
    (piece,) = tapes.Taping((compute(copy, (frame,), (wide,)),)).pieces(program.table.slots, 0.0)
    assert piece.tape is None


def test_an_operation_is_compiled_when_its_steps_have_cost_enough(monkeypatch):
    """Until then its steps run by themselves, and those around them are played."""
    monkeypatch.setattr(tapes, "_MAKE", 1000.0)
    forgotten(monkeypatch)
    asked = []
    find = tapes._KEPT.addresses

    def found(texts, make):
        asked.append((len(texts), make))
        return find(texts, True) if make else {}

    monkeypatch.setattr(tapes._KEPT, "addresses", found)
    program = Program([])
    a, b = program.new(U32), program.new(U32)
    # a loop of its own would be compiled for the first
    loop = operation("mul.float", {"type": "f32", "ftz": "ftz"})
    assert isinstance(loop, NativeLoop)
    steps = (compute(loop, (a, b), (a,)), compute(np.add, (a, b), (b,)))
    taping = tapes.Taping(steps)
    first = taping.pieces(program.table.slots, 400.0)
    assert [(begin, end, tape is None) for begin, end, tape in first] == [(0, 1, False), (1, 2, True)]
    assert not taping.is_complete
    assert taping.pieces(program.table.slots, 400.0) is None
    (last,) = taping.pieces(program.table.slots, 400.0)
    assert last.tape is not None
    assert taping.is_complete
    assert asked == [(2, False), (1, True), (1, True)]


def test_nobody_tries_again_what_cannot_be_made(monkeypatch):
    forgotten(monkeypatch)
    monkeypatch.setattr(tapes._KEPT, "addresses", lambda texts, make: {})
    program = Program([])
    a, b = program.new(U32), program.new(U32)
    taping = tapes.Taping((compute(np.add, (a, b), (b,)),))
    (piece,) = taping.pieces(program.table.slots, 400.0)
    assert piece.tape is None
    monkeypatch.setattr(tapes._KEPT, "addresses", None)
    assert taping.pieces(program.table.slots, 400.0) is None


@pytest.mark.parametrize("seed", range(sampled.examples(6, 24)))
def test_random_kernels(lab, monkeypatch, seed):
    agrees_with_steps(lab, monkeypatch, seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [safe_program, changed_program])
def test_random_programs_with_order(monkeypatch, make, seed):
    agrees_in_order(monkeypatch, make(seed))
