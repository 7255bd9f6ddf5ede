"""Waits for tensor memory, or for the rest of a warpgroup, in a deadlock."""

import numpy as np

from kernbench.ptx.emulator.checks.findings.reporter import thread_name
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch


def matrix_waits(batch: Batch) -> list[tuple[str, Site]]:
    """Allocations without free columns, and waits for operations that other warps of a warpgroup have not issued."""
    found = []
    for refused in batch.allocation_waits:
        warp = int(refused.warps[0])
        held = batch.tensor.memory.allocations[warp % batch.ctas].values()
        columns = ", ".join(f"columns {first} to {first + count} (line {site.line})" for first, count, site in held)
        who = f"the warp of {thread_name(batch, warp * WARP)}"
        text = f"{who} waits for columns of tensor memory; allocated are {columns or 'none'}"
        found.append((text, refused.site))
    for waiting in batch.warpgroups.waiting:
        warp = int(waiting.fragment.window.warps[0])
        mates = batch.warpgroups.crew(np.array([warp])).mates[0]
        issued = batch.warpgroups.issued[mates]
        behind = int(mates[int(np.argmin(issued))])
        who = f"the warp of {thread_name(batch, warp * WARP)}"
        text = (
            f"{who} waits for wgmma operations that warp {behind // batch.ctas} of its warpgroup has not issued: "
            f"{int(issued.min())} of {int(issued.max())}"
        )
        found.append((text, waiting.site))
    return found
