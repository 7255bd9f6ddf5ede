"""What can be told of a program before it runs: which loops may wait for another thread."""

from kernbench.ptx.emulator.decode import Body
from kernbench.ptx.emulator.program import Program


def analyse(program: Program, bodies: list[Body]) -> None:
    """Add to the program what its functions tell."""
