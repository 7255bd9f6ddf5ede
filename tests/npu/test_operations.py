"""Tile operations: what each computes, and that operands which do not fit are refused with the kernel's line."""

import numpy as np

from kernbench import npu

CHIP = npu.Chip("a2a3")


def test_add_on_a_vector_core():
    def kernel(core, a, b, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        y = core.tile("UB", (8, 16), "f32", 0x400, name="y")
        core.tload(x, a)
        core.tload(y, b)
        core.set_flag("MTE2", "V", 0)
        core.wait_flag("MTE2", "V", 0)
        core.tadd(x, x, y)
        core.set_flag("V", "MTE3", 0)
        core.wait_flag("V", "MTE3", 0)
        core.tstore(out, x)

    def orchestrate(rt, a, b, out):
        rt.submit(aiv0=kernel, args=[npu.IN(a), npu.IN(b), npu.OUT(out)])

    a, b = (np.arange(128, dtype=np.float32).reshape(8, 16) * k for k in (1, 10))
    run = CHIP.launch(orchestrate, a, b, np.zeros((8, 16), np.float32))
    assert run.findings == []
    assert run.safe
    assert np.array_equal(run.outputs["out"], a + b)
