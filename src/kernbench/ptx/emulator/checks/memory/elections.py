"""Bulk copies that a whole warp begins where one thread was meant, and for which one thread waits.

A wait for bulk groups covers the copies of its own thread. So the copies of the other threads are still under way
behind it: what is wrong is the missing election before the copy, not the wait.
"""

from kernbench.ptx.emulator.checks.findings.reporter import doing
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch

_HINT = (
    "let one thread begin the copy, the one that commits and waits for it (elect.sync, or threadIdx.x == 0): a wait "
    "covers the copies of its own thread only"
)


def not_elected(batch: Batch, number: int, copy: Site) -> tuple[str, str]:
    """The end of the message and the hint for a race with a copy, begun at a site by the warp of an actor.

    Both are empty if all threads that began it have waited alike.
    """
    actors = batch.launch.actors
    block, column = divmod(number, actors.count)
    ctas = (batch.numbers == block).nonzero()[0]
    if actors.kind(column) not in ("bulk", "copied") or not len(ctas):
        return "", ""
    return not_elected_in(batch, column % actors.warps * batch.ctas + int(ctas[0]), copy)


def not_elected_in(batch: Batch, warp: int, copy: Site) -> tuple[str, str]:
    """The same for a warp of a batch."""
    behind, ahead = batch.groups.apart(warp, copy)
    if not len(behind):
        return "", ""
    count = len(behind) + len(ahead)
    waited = doing(batch, ahead, "has", "have")
    return f": {count} threads of a warp begin that copy, and only {waited} waited for it", _HINT
