"""Arithmetic of PTX over register rows, bit for bit.

A row is a one-dimensional array of a register's bits, one element per lane (bool for predicates); sources may also be
zero-dimensional (immediates). `operation(meaning, mods)` returns the function of a resolved instruction, which is
called as `function(*sources, *targets)`; targets may be the same rows as sources. Callers hold
`np.errstate(all="ignore")`: overflow and NaN are ordinary results here.
"""

from kernbench.ptx.numerics.approximate import BOUNDS
from kernbench.ptx.numerics.integers.arithmetic import zero_divisors
from kernbench.ptx.numerics.table import FACTORIES, numpy_equivalent, operation

__all__ = ["BOUNDS", "FACTORIES", "numpy_equivalent", "operation", "zero_divisors"]
