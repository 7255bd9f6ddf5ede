"""Products of the executor have the bits of the numerics, for exponents near and far, zeros, infinities and NaN."""

import ctypes

import numpy as np
import pytest

from kernbench.common.native.machine import located, translated
from kernbench.ptx.executor.compiling import Warpwide, addresses
from kernbench.ptx.executor.ops import layout, products
from kernbench.ptx.numerics.matrix import mma

END = "define void @end_of_test(ptr %w, ptr %r, i32 %m) {\n ret void\n}\n"


def aligned(nbytes):
    raw = np.zeros(nbytes + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + nbytes]


class Machine:
    """One warp whose program is one operation over rows of 32 words."""

    def __init__(self, operation, rows):
        self._registers, self._warp = aligned(128 * rows), aligned(8 * layout.WARP_WORDS)
        self._records = aligned(2 * layout.RECORD_BYTES)
        self.rows = self._registers.view(np.uint32).reshape(rows, 32)
        self._warp.view(np.int64)[[layout.REGISTERS, layout.ACTIVE]] = self._registers.ctypes.data, (1 << 32) - 1
        (code,) = addresses([operation])
        end = located({"end_of_test": translated(END)})["end_of_test"]
        for at, address in ((0, code), (layout.RECORD_BYTES, end)):
            self._records[at : at + 8].view(np.uint64)[0] = address
        operands = self._records[layout.OPERANDS : layout.OPERANDS + 4 * rows].view(np.uint32)
        operands[:] = 128 * np.arange(rows)
        self._enter = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)(code)

    def run(self):
        self._enter(self._warp.ctypes.data, self._records.ctypes.data, (1 << 32) - 1)


def drawn(random, kind, spread):
    """A register of 32 lanes: two halves or one number, their exponents up to `spread` apart."""
    values = random.standard_normal((32, 2)) * 2.0 ** random.integers(-spread, spread + 1, (32, 2))
    values[random.random((32, 2)) < spread / 300] = 0.0
    if spread > 100:
        values[random.integers(32), 0] = (np.inf, -np.inf, np.nan)[random.integers(3)]
    with np.errstate(over="ignore"):
        numbers = values.astype(np.float32)
        if kind == "f16":
            return values.astype(np.float16).view(np.uint32).reshape(-1)
    bits = numbers.view(np.uint32)
    if kind == "bf16":
        return (bits[:, 0] >> 16) | (bits[:, 1] & np.uint32(0xFFFF0000))
    return bits[:, 0].copy()


@pytest.mark.parametrize("spread", [0, 4, 12, 40, 120, 250])
@pytest.mark.parametrize(
    ("kind", "depth"), [("f16", 16), ("f16", 8), ("bf16", 16), ("bf16", 8), ("tf32", 8), ("tf32", 4)]
)
def test_products_are_those_of_the_numerics(kind, depth, spread):
    blocks = depth // (4 if kind == "tf32" else 8)
    codes = {"f16": products.F16, "bf16": products.BF16, "tf32": products.TF32}
    machine = Machine(Warpwide(products.multiply, (codes[kind], depth)), 8 + 3 * blocks)
    random = np.random.default_rng([spread, depth])
    for _ in range(12):
        given = [drawn(random, kind, spread) for _ in range(3 * blocks)]
        addend = [drawn(random, "f32", spread) for _ in range(4)]
        wanted = [np.zeros(32, np.uint32) for _ in range(4)]
        with np.errstate(all="ignore"):
            mma(f"m16n8k{depth}", ("f32", kind, kind, "f32"), given[: 2 * blocks], given[2 * blocks :], addend, wanted)
        machine.rows[4:] = [*given, *addend]
        machine.run()
        assert (machine.rows[:4] == wanted).all()
