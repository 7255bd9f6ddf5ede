"""Arithmetic as ptxas compiles it where PTX leaves it free: contraction to fma, and folded constants.

The emulator executes PTX as written. A GPU executes what ptxas made of it: a multiplication and the additions of its
result become fma instructions, which round once, and approximate functions of constants become their rounded value.
`assembled` rewrites a kernel by the same rules; `exact` launches execute the rewritten kernel.
"""

from kernbench.ptx.assembled.contraction import contracted
from kernbench.ptx.assembled.folding import folded
from kernbench.ptx.assembled.lines import rewritten
from kernbench.ptx.text.module import Kernel


def assembled(kernel: Kernel) -> Kernel:
    """The kernel with the roundings of ptxas's code; the same object if nothing changes."""
    return rewritten(kernel, lambda function: contracted(folded(function)))
