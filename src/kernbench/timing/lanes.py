"""What a node of a timed graph is to a person: its lane, its name, its kernel line, and the kind of work it does."""

import numpy as np

from kernbench.common.ipcq_types import DIRECTIONS
from kernbench.common.pe_commands import OPERATION_NAMES
from kernbench.result.finding import Place
from kernbench.result.timeline import Lane
from kernbench.timing.graph import Ints
from kernbench.timing.lower import CPU, FIRST_DMA, GEMM, MATH, Lowered

_ENGINES = {CPU: "cpu", GEMM: "gemm", MATH: "math"}


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


def command_of(lowered: Lowered, node: int) -> int:
    """The command a node belongs to (a piece: the send when pushed, the receive when taken); -1 for a start."""
    if node < lowered.commands:
        return node
    piece = node - lowered.commands - len(lowered.recording.streams)
    if piece < 0:
        return -1
    count = len(lowered.pieces.push)
    return int(lowered.pieces.send[piece] if piece < count else lowered.pieces.recv[piece - count])


def name_of(lowered: Lowered, node: int) -> str:
    """The operation, or what a piece or start is."""
    command = command_of(lowered, node)
    return "start" if command < 0 else OPERATION_NAMES[int(lowered.columns.op[command])]


def place_of(lowered: Lowered, node: int) -> Place | None:
    """The kernel line behind a node."""
    command = command_of(lowered, node)
    return None if command < 0 else lowered.recording.tables.sites[int(lowered.columns.site[command])]


def work_of(lowered: Lowered, node: int) -> str:
    """gemm, math, dma, link or cpu."""
    if node >= lowered.commands:
        return "link"
    engine = int(lowered.engine[node])
    return _ENGINES.get(engine, "link" if engine < FIRST_DMA else "dma")
