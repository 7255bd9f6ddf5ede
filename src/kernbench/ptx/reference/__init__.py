"""The reference executor: PTX one thread at a time, in plain Python, slow and obvious.

It shares nothing with the emulator but the parser, and the emulator is tested against it: what a kernel computes,
whether it can finish, and whether accesses race, by vector clocks of threads and a list of accesses for each piece of
memory. It supports the integer instructions, loads and stores, warp operations, barriers, mbarriers, atomics, fences
and copies that random programs consist of (`instructions.STEPS`), and refuses everything else.
"""

from kernbench.ptx.reference.machine import Outcome, execute
from kernbench.ptx.reference.program import UnknownInstructionError

__all__ = ["Outcome", "UnknownInstructionError", "execute"]
