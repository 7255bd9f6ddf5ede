import itertools
import random

import numpy as np
import pytest

from kernbench.ptx.isa.table import FORMS
from kernbench.ptx.numerics import BOUNDS, FACTORIES, operation

LANEWISE = [form for forms in FORMS.values() for form in forms if form.meaning in FACTORIES]


def choices(form):
    return [slot.choices if slot.required else (None, *slot.choices) for slot in form.slots]


@pytest.mark.parametrize("meaning", sorted(FACTORIES))
def test_every_form_of_a_meaning_has_a_function(meaning):
    forms = [form for form in LANEWISE if form.meaning == meaning]
    assert forms, f"no row of the table has the meaning {meaning}"
    picker = random.Random(meaning)
    for form in forms:
        every = list(itertools.islice(itertools.product(*choices(form)), 4000))
        for chosen in picker.sample(every, min(len(every), 12)):
            mods = {slot.name: value for slot, value in zip(form.slots, chosen, strict=True) if value is not None}
            if "carry" in meaning and form.opcode not in ("add", "sub", "mad"):
                mods["reads"] = "reads"
            assert callable(operation(meaning, mods)), (form.opcode, mods)


def test_bounds_are_told_for_every_approximate_instruction():
    for form in LANEWISE:
        slots = {slot.name: slot for slot in form.slots}
        if "mode" not in slots or form.cost != "special":
            continue
        always_ftz = "ftz" in slots and slots["ftz"].required
        for mode, kind in itertools.product(slots["mode"].choices, slots["type"].choices):
            name = ".".join([form.opcode, mode, kind.removesuffix("x2")])
            assert name in BOUNDS or (always_ftz and name.replace("approx", "approx.ftz") in BOUNDS)


def test_registers_wider_than_the_type_are_cut_when_read_and_extended_when_written():
    a = np.array([0xFFFFFF80, 0x1234567F], np.uint32)
    out = np.empty(2, np.uint32)
    operation("cvt", {"dtype": "s8", "atype": "s32"})(a, out)
    assert out.tolist() == [0xFFFFFF80, 0x7F]
    operation("cvt", {"dtype": "u32", "atype": "u8"})(a, out)
    assert out.tolist() == [0x80, 0x7F]


def test_mixed_precision_sums_take_a_half_first():
    half = np.array([0x3C00, 0xC000], np.uint16)
    single = np.array([0.5, 0.25], np.float32).view(np.uint32)
    out = np.empty(2, np.uint32)
    operation("add.float", {"type": "f32", "atype": "f16"})(half, single, out)
    assert out.view(np.float32).tolist() == [1.5, -1.75]
    operation("fma", {"type": "f32", "atype": "f16", "rnd": "rn"})(half, half, single, out)
    assert out.view(np.float32).tolist() == [1.5, 4.25]
