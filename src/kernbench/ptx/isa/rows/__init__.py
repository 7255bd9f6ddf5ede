"""The rows of the ISA table, one file a group of instructions."""

from kernbench.ptx.isa.rows import (
    atomic,
    barrier,
    compare,
    control,
    convert,
    floating,
    integer,
    logic,
    memory,
    warp,
)

GROUPS = (
    integer.group,
    floating.group,
    logic.group,
    compare.group,
    convert.group,
    memory.group,
    atomic.group,
    warp.group,
    barrier.group,
    control.group,
)
