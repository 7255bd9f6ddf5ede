"""How the emulator's loops over lanes are compiled."""

from kernbench.common.compiled import inlined, loop, part

__all__ = ["inlined", "kernel", "part"]

# a loop over rows; also what several of them call that takes long to compile, as it is kept on disk for all of them
kernel = loop
