"""The rows of the ISA table, one file per group of instructions."""

from kernbench.ptx.isa.rows import (
    atomic,
    barrier,
    compare,
    control,
    convert,
    copy,
    floating,
    integer,
    logic,
    mbarrier,
    memory,
    video,
    warp,
)
from kernbench.ptx.isa.rows.matrix import matrix, tcgen05, wgmma

GROUPS = (
    integer.group,
    video.group,
    floating.group,
    logic.group,
    compare.group,
    convert.group,
    memory.group,
    atomic.group,
    warp.group,
    barrier.group,
    control.group,
    matrix.group,
    copy.group,
    mbarrier.group,
    wgmma.group,
    tcgen05.group,
)
