from fractions import Fraction

import numpy as np
import pytest

from kernbench.common.errors import MisuseError
from kernbench.ptx.numerics import numpy_equivalent, operation
from kernbench.ptx.numerics.floats.arithmetic import arithmetic

COMPUTE = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
    "rcp": lambda a: 1 / a,
}
ARITY = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "rcp": 1, "sqrt": 1}


def zero_sign(name, signs, mode):
    """IEEE's sign of an exact zero."""
    if name == "sqrt":
        return signs[0]
    if name in ("mul", "div", "rcp"):
        return sum(signs) % 2
    first, second = signs[0], signs[1]
    if name == "sub":
        second ^= 1
    if name == "fma":
        first, second = signs[0] ^ signs[1], signs[2]
    return first if first == second else int(mode == "rm")


def expected(form, name, bits, mode, root):
    """Bits of the result for finite operands with a finite exact result; None where IEEE has a special rule."""
    decoded = [form.decode(b) for b in bits]
    values = [value for _, value in decoded]
    if not all(isinstance(value, Fraction) for value in values):
        return None
    if name in ("div", "rcp") and values[-1] == 0:
        return None
    if name == "sqrt":
        if values[0] < 0:
            return None
        result = root(values[0], 1400) if values[0] else Fraction(0)
    else:
        result = COMPUTE[name](*values)
    return form.encode(result, mode, zero_sign(name, [sign for sign, _ in decoded], mode))


def run(operation, rows):
    out = np.empty_like(rows[0])
    operation(*rows, out)
    return out


CASES = [
    *(("f32", name, "rn") for name in ("add", "sub", "mul", "div", "fma", "sqrt", "rcp")),
    *(("f32", name, mode) for name in ("add", "fma", "div") for mode in ("rz", "rm", "rp")),
    ("f32", "mul", "rp"),
    ("f32", "sqrt", "rm"),
    *(("f64", name, "rn") for name in ("fma", "add")),
    *(
        ("f64", name, mode)
        for name, mode in (("fma", "rm"), ("fma", "rz"), ("mul", "rp"), ("div", "rm"), ("sqrt", "rp"))
    ),
]


@pytest.mark.sampled(14)
@pytest.mark.parametrize(("kind", "name", "mode"), CASES)
def test_results_are_the_exact_ones_rounded_once(exact, root, kind, name, mode):
    form = exact(kind)
    rows = form.samples(ARITY[name], 900)
    out = run(arithmetic(name, kind, mode), rows)
    checked = 0
    for lane in range(out.size):
        bits = [int(row[lane]) for row in rows]
        want = expected(form, name, bits, mode, root)
        if want is not None:
            checked += 1
            assert hex(out[lane]) == hex(want), (name, mode, [hex(b) for b in bits])
    assert checked > 300


def test_fused_means_one_rounding():
    a, b, c = (np.array([np.float32(x)]).view(np.uint32) for x in (1 + 2**-12, 1 + 2**-12, -(1 + 2**-11)))
    assert run(arithmetic("fma", "f32"), [a, b, c]).view(np.float32)[0] == np.float32(2.0**-24)


def test_rounding_down_only_an_exact_zero_turns_negative():
    tiny, one, minus = (
        np.array([1, 0, 0x3F800000], np.uint32),
        np.array([1, 1, 0x3F800000], np.uint32),
        np.uint32(1 << 31),
    )
    addend = np.array([minus, minus, 0xBF800000], np.uint32)
    assert list(run(arithmetic("fma", "f32", "rm"), [tiny, one, addend])) == [0, minus, minus]
    wide = [np.array(row, np.uint64) for row in ([1, 0], [1, 1], [1 << 63, 1 << 63])]
    assert list(run(arithmetic("fma", "f64", "rm"), wide)) == [0, 1 << 63]


@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_nan_results_of_f32_are_canonical(name):
    patterns = np.array([0x7F800001, 0xFFC00000, 0x7FC12345, 0x7F800000], np.uint32)
    rows = [patterns] + [np.array([0x3F800000, 0x3F800000, 0x3F800000, 0xFF800000], np.uint32)] * (ARITY[name] - 1)
    if name != "add":
        rows[1] = np.array([0x3F800000, 0x3F800000, 0x3F800000, 0], np.uint32)
    assert set(run(arithmetic(name, "f32"), rows)) == {0x7FFFFFFF}


def test_f64_passes_a_quieted_nan_on_second_before_third_before_first():
    one, a, b, c = 0x3FF0_0000_0000_0000, 0x7FF0_0000_0000_0001, 0xFFF0_0000_0000_0002, 0x7FF0_0000_0000_0003
    rows = [np.array(row, np.uint64) for row in ([a, a, one], [b, one, one], [c, c, c])]
    quieted = [0xFFF8_0000_0000_0002, 0x7FF8_0000_0000_0003, 0x7FF8_0000_0000_0003]
    assert list(run(arithmetic("fma", "f64"), rows)) == quieted
    infinity = np.array([0x7FF0_0000_0000_0000], np.uint64)
    assert run(arithmetic("sub", "f64"), [infinity, infinity])[0] == 0xFFF8_0000_0000_0000


def test_flushing_clears_subnormal_inputs_and_results_and_keeps_signs():
    a = np.array([0x80000001, 0x00800000, 0x80800000], np.uint32)
    b = np.array([0x80000000, 0x80800001, 0x3F000000], np.uint32)
    assert list(run(arithmetic("add", "f32", ftz=True), [a, b])) == [0x80000000, 0x80000000, 0x3F000000]
    assert list(run(arithmetic("mul", "f32", ftz=True), [a, b]))[2] == 0x80000000


def test_saturation_clamps_to_the_unit_interval_and_clears_nan():
    values = np.array([-1.0, 0.25, 3.0, np.nan, -0.0], np.float32).view(np.uint32)
    zero = np.zeros(5, np.uint32)
    out = run(arithmetic("add", "f32", sat=True), [values, zero | np.uint32(0x80000000)])
    assert list(out.view(np.float32)) == [0.0, 0.25, 1.0, 0.0, 0.0]
    assert out[4] == 0


def test_sources_may_be_scalars_and_the_target_may_be_a_source():
    row = np.arange(100, dtype=np.float32)
    bits = row.view(np.uint32).copy()
    arithmetic("mul", "f32")(bits, np.array(np.float32(2.0)).view(np.uint32), bits)
    assert (bits.view(np.float32) == row * 2).all()
    arithmetic("mul", "f32")(np.uint32(0x40000000), bits, bits)
    assert (bits.view(np.float32) == row * 4).all()


def test_numpy_equivalent_is_offered_for_plain_modes_only():
    assert numpy_equivalent("add.float", {"type": "f32"}) == (np.add, np.float32)
    assert numpy_equivalent("mul.float", {"type": "f64", "rnd": "rn"}) == (np.multiply, np.float64)
    assert numpy_equivalent("add.float", {"type": "f32", "ftz": "ftz"}) is None
    assert numpy_equivalent("div.float", {"type": "f32", "mode": "full"}) is None


def test_unknown_names_list_the_known_ones():
    with pytest.raises(MisuseError, match=r"'ad'; known: add, sub.* Did you mean 'add'"):
        arithmetic("ad", "f32")
    with pytest.raises(MisuseError, match=r"unknown meaning of a lane-wise instruction 'ld'"):
        operation("ld", {})
