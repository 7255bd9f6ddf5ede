"""Division of unsigned registers by powers of two: a shift or a mask, with the same result."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.builder import PtxKernel

DIVISORS = (1, 2, 8, 32, 1 << 15, 3, 10)
INPUTS = [0, 1, 2, 7, 31, 32, 33, 1000, 32767, 32768, 65535]


def divided(kind, dtype, divisors):
    """A kernel that divides each number by each divisor, in both ways, and its outputs."""
    kernel = PtxKernel("divide").param("u64", "x_ptr").param("u64", "y_ptr")

    def program(ctx):
        values = ctx.load(ctx.pointer("x_ptr", kind), ctx.tid_x)
        results = []
        for divisor in divisors:
            quotient, remainder = values.copy(), values.copy()
            quotient //= divisor
            remainder %= divisor
            results += [values // divisor, values % divisor, quotient, remainder]
        for number, result in enumerate(results):
            ctx.store(ctx.pointer("y_ptr", kind), result, ctx.tid_x * len(results) + number)

    built = kernel.build(program)
    x = np.array(INPUTS).astype(dtype)
    if x.dtype.kind == "i":
        x = np.concatenate([x, -x])
    device = ptx.EmulatedDevice("sm_90a")
    y = device.empty((len(x), len(divisors), 4), dtype)
    assert device.launch(built, 1, len(x), (device.array(x), y)).safe
    return built.module.emit(), x, y.numpy()


@pytest.mark.parametrize(("kind", "dtype"), [("u16", np.uint16), ("u32", np.uint32), ("u64", np.uint64)])
def test_unsigned_numbers(kind, dtype):
    text, x, y = divided(kind, dtype, DIVISORS)
    for number, divisor in enumerate(DIVISORS):
        wanted = np.stack([x // divisor, x % divisor], 1)
        assert (y[:, number] == np.tile(wanted, (1, 2))).all(), divisor
    # only 3 and 10 are divided by
    assert text.count("div.") == text.count("rem.") == 4
    assert text.count("shr.") == text.count("and.") == 2 * 5


def test_signed_numbers_are_divided_towards_zero():
    text, x, y = divided("s32", np.int32, (2, 8))
    assert text.count("div.s32") == text.count("rem.s32") == 4
    assert (y[:, 0, 0] == np.trunc(x / 2)).all()
    assert (y[:, 1, 1] == np.fmod(x, 8)).all()
