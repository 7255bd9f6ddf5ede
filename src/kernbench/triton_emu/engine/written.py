"""What a kernel may write where an operand, sizes or an element type are wanted; the engine checks what it gets."""

from collections.abc import Sequence

from kernbench.common.dtypes import Array
from kernbench.common.pe_commands import TensorHandle

__kernbench_internal__ = True

Number = float | int | bool
# a value on the machine, or a number that the kernel knows
Operand = TensorHandle | Number
# the data of an operand: None in a run without data
Data = Array | Number | None
# one size, offset or stride, or one for each axis
Sizes = int | Sequence[int]
# a name, a NumPy or torch type: what `dtype_name` knows
ElementType = object
