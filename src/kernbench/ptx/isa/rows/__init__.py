"""The rows of the ISA table, one file a group of instructions."""

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
    matrix,
    mbarrier,
    memory,
    tcgen05,
    video,
    warp,
    wgmma,
)

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
