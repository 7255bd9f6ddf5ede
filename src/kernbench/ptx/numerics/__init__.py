"""Arithmetic of PTX over register rows, bit for bit.

A row is a one-dimensional array of a register's bits, one element a lane (bool for predicates); sources may also be
zero-dimensional (immediates). `operation(meaning, mods)` gives the function of a resolved instruction; it is called as
`function(*sources, *targets)`, and targets may be the same rows as sources. Callers hold `np.errstate(all="ignore")`
around a run: overflow and NaN are ordinary results here.
"""

from kernbench.ptx.numerics.approximate import BOUNDS
from kernbench.ptx.numerics.integers.arithmetic import zero_divisors
from kernbench.ptx.numerics.table import FACTORIES, numpy_equivalent, operation

__all__ = ["BOUNDS", "FACTORIES", "numpy_equivalent", "operation", "zero_divisors"]
