"""A kernel's text becomes the program that is run: decoded, with what ptxas adds to a compiler's code, and analysed."""

from kernbench.ptx.emulator.analysis import analyse
from kernbench.ptx.emulator.decode import Body, decode
from kernbench.ptx.emulator.injected_waits import missing_waits
from kernbench.ptx.emulator.program import Program
from kernbench.ptx.module import Kernel


def build(
    kernel: Kernel, clustered: bool = False, probed: bool = False, named: bool = False
) -> tuple[Program, list[Body]]:
    """The program of a kernel, and its functions; raises `PtxError` for what cannot be run.

    `clustered` says that it is launched with clusters of several CTAs; `probed` that somebody looks inside; `named`
    that its checkpoints are wanted.
    """
    program, bodies = decode(kernel, clustered, probed, named)
    if kernel.module.compiler and (waits := missing_waits(bodies)):
        program, bodies = decode(kernel, clustered, probed, named, waits)
    analyse(program, bodies)
    return program, bodies
