"""Names of the nodes of a timed graph in reports: lane, command, and category of work."""

import numpy as np

from kernbench.common.ipcq_types import DIRECTIONS
from kernbench.mesh.time.lower import CPU, FIRST_DMA, GEMM, MATH, OUT, Lowered
from kernbench.result.timeline import Lane
from kernbench.timing.graph import Ints

WORKS = ("cpu", "gemm", "math", "link", "dma")
# by engine; all DMA channels are the last
_WORK: Ints = np.array([{CPU: 0, GEMM: 1, MATH: 2, FIRST_DMA: 4}.get(i, 3) for i in range(FIRST_DMA + 1)], np.int64)


def lanes(lowered: Lowered) -> list[Lane]:
    """For each program its engines, then the links."""
    engines = ["cpu", "gemm", "math", *(f"send {d}" for d in DIRECTIONS)]
    engines += [f"dma {i}" for i in range(lowered.channels)]
    programs = [Lane(f"cube {s.cube} PE {s.pe}", name) for s in lowered.recording.streams for name in engines]
    links = [
        Lane("links", f"cube {k.sender[0]} PE {k.sender[1]} {k.direction} to cube {k.receiver[0]} PE {k.receiver[1]}")
        for k in lowered.recording.links
    ]
    return programs + links


def lane_numbers(lowered: Lowered) -> Ints:
    """The lane of each node: commands on their engine, starts on the CPU, pieces on their link."""
    engines = FIRST_DMA + lowered.channels
    programs = len(lowered.recording.streams)
    commands = lowered.columns.program.astype(np.int64) * engines + lowered.engine
    starts = np.arange(programs) * engines
    links = programs * engines + lowered.pieces.link.astype(np.int64)
    return np.concatenate([commands, starts, links, links])


def commands_of(lowered: Lowered, nodes: Ints) -> Ints:
    """The command each node belongs to (a piece: the send when pushed, the receive when taken); -1 for a start."""
    owner = np.concatenate([lowered.pieces.send, lowered.pieces.recv])
    piece = nodes - lowered.commands - len(lowered.recording.streams)
    command = np.where(nodes < lowered.commands, nodes, -1)
    command[piece >= 0] = owner[piece[piece >= 0]]
    return command


def works_of(lowered: Lowered, nodes: Ints) -> Ints:
    """The category of each node, as an index into WORKS."""
    engine = np.full(len(nodes), OUT)
    own = nodes < lowered.commands
    engine[own] = lowered.engine[nodes[own]]
    works: Ints = _WORK[np.minimum(engine, FIRST_DMA)]
    return works
