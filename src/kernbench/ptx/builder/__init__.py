"""Kernels written in Python: typed registers, operators, structured control flow, every instruction of the table.

```python
def program(ctx):
    x, y = ctx.pointer("x_ptr", "f32"), ctx.pointer("y_ptr", "f32")
    i = ctx.global_index()
    with ctx.if_(i < ctx.param("n")):
        ctx.store(y[i], ctx.load(x[i]) * 2.0)

kernel = PtxKernel("double").param("u64", "x_ptr").param("u64", "y_ptr").param("u32", "n").build(program)
```
"""

from kernbench.ptx.builder.context import Context
from kernbench.ptx.builder.instructions.calls import DeviceFunction
from kernbench.ptx.builder.instructions.warp import FULL_MASK
from kernbench.ptx.builder.kernel import PtxFunction, PtxKernel, PtxModule
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.builder.values.pointer import Location, Pointer
from kernbench.ptx.builder.values.values import Inverted, Label, Predicate, Register

__all__ = [
    "FULL_MASK",
    "Context",
    "DeviceFunction",
    "Inverted",
    "Label",
    "Location",
    "Pointer",
    "Predicate",
    "PtxBuildError",
    "PtxFunction",
    "PtxKernel",
    "PtxModule",
    "Register",
]
