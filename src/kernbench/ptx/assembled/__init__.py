"""What ptxas makes of a kernel's arithmetic where PTX leaves it free: which roundings there are, and of what constants.

The emulator runs PTX as it is written. A GPU runs what ptxas made of it: a multiplication and the additions that take
its result are one instruction each that rounds once, and approximate functions of constants are replaced by the rounded
value. `assembled` writes a kernel so, by the rules that ptxas follows; `exact` launches run it.
"""

from kernbench.ptx.assembled.contraction import contracted
from kernbench.ptx.assembled.folding import folded
from kernbench.ptx.assembled.lines import rewritten
from kernbench.ptx.text.module import Kernel


def assembled(kernel: Kernel) -> Kernel:
    """The kernel with the roundings that ptxas gives it; the same one where nothing changes."""
    return rewritten(kernel, lambda function: contracted(folded(function)))
