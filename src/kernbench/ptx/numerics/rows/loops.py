"""Compiled row kernels: a scalar function over bits becomes one pass over register rows.

A row is a one-dimensional array; inputs may also be NumPy scalars (immediates), which every lane reads.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from kernbench.common.compiled import loop

Row = NDArray[np.generic]
Operation = Callable[..., object]
# what gives an instruction with these modifiers its operation
Mods = Mapping[str, str]
Factory = Callable[[Mods], Operation]


def _at(row: Row, lane: int) -> np.generic:
    """The value that a lane reads from a row or from a scalar."""
    raise NotImplementedError("only compiled code reads lanes")


@overload(_at, strict=False)  # type: ignore[untyped-decorator]
def _compiled_at(row: types.Type, lane: types.Type) -> Callable[[Row, int], Row | np.generic]:
    if not isinstance(row, types.Array):
        return lambda row, lane: row
    if row.ndim == 0:
        return lambda row, lane: row[()]
    return lambda row, lane: row[lane]


def _source(name: str, inputs: int, outputs: int) -> str:
    reads = [f"in{i}" for i in range(inputs)]
    writes = [f"out{i}" for i in range(outputs)]
    arguments = ", ".join(f"at({read}, lane)" for read in reads)
    targets = ", ".join(f"{write}[lane]" for write in writes)
    return (
        f"def {name}({', '.join(reads + writes)}):\n"
        f"    for lane in range(out0.size):\n"
        f"        {targets} = scalar({arguments})\n"
    )


def row_kernel(name: str, scalar: Operation, inputs: int, outputs: int = 1) -> Operation:
    """`scalar`, a compiled function of `inputs` values giving `outputs`, as `kernel(*inputs, *outputs)` over rows.

    `name` must distinguish this kernel from every other one, modifiers included: it is what the kept machine code is
    found by. Outputs may be the same rows as inputs.
    """
    space = {"scalar": scalar, "at": _at, "__name__": __name__}
    made: dict[str, Operation] = {}
    # The file's own name lets numba find a folder to keep the machine code.
    exec(compile(_source(name, inputs, outputs), __file__, "exec"), space, made)
    return loop(made[name], error_model="numpy")
