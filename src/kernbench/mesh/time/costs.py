"""The cost model: how long each command takes on a machine, and what it moves. Formulas are in docs/cost-model.md.

- GEMM, [m, k] @ [k, n] on an R x C output-stationary array with r MACs per cell and cycle:
  ceil(m / R) * ceil(n / C) * (R + C - 2 + ceil(k / r)) cycles. The slower of both operand types sets r.
- MATH, n elements: n over the rate of the operation; a reduction works on its input, softmax is a max, a subtraction,
  an exp, a sum and a division of its elements.
- DMA: the HBM latency, then the bytes through the cube's HBM, shared with the cube's other transfers.
- Messages: each piece takes bytes over the link's bandwidth, and arrives a latency per hop later.

Every duration is rounded up to a whole picosecond once. Empty work takes no time.
"""

from fractions import Fraction
from math import ceil, prod

import numpy as np

from kernbench.common.pe_commands import OPERATIONS
from kernbench.machine import Machine
from kernbench.mesh.time.lower import FIRST_DMA, Lowered
from kernbench.result.recording import HandleType
from kernbench.timing.graph import NO_SERVER, Ints, Small
from kernbench.timing.servers import Rates, slots_of

_NAMES = list(OPERATIONS)
# simple passes of operations that take several: up and down for a scan, compare and select for a sort, the products
# and exclusive ors of a round of Philox
PASSES = {"twice": 2, "philox": 8}


def rates(lowered: Lowered, machine: Machine) -> Rates:
    """Durations, transfers and lags of a lowered recording on `machine`."""
    duration = lowered.once("durations", fixed_times(machine), lambda: _durations(lowered, machine))
    _, server = lowered.once("transfers", None, lambda: _transfers(lowered))
    cubes = max((s.cube for s in lowered.recording.streams), default=0) + 1
    slots = lowered.once("slots", None, lambda: slots_of(server, cubes))
    return Rates(
        duration,
        server,
        lowered.columns.y,
        np.full(cubes, machine.hbm.bytes_per_second / 1e12),
        machine.pe.cycles_ps(machine.pe.dispatch_cycles),
        _latencies(lowered, machine),
        slots,
    )


def fixed_times(machine: Machine) -> tuple[object, ...]:
    """The values that durations and lags depend on, without the bandwidths of servers."""
    return machine.pe, machine.gemm, machine.math, machine.hbm.latency_ps, machine.link, machine.cube_link


def _durations(lowered: Lowered, machine: Machine) -> Ints:
    duration = _command_times(lowered, machine)
    duration[lowered.once("transfers", None, lambda: _transfers(lowered))[0]] = machine.hbm.latency_ps
    duration[lowered.pieces.push] = _piece_times(lowered, machine)
    return duration


def _command_times(lowered: Lowered, machine: Machine) -> Ints:
    """Fixed times of the commands, computed once for each case; 0 for the other nodes."""
    duration = np.zeros(lowered.graph.nodes, np.int64)
    first, case = lowered.cases
    if len(case):
        given = machine.gemm, machine.math
        cycles = lowered.once("cycles", given, lambda: [_case(lowered, machine, i) for i in first.tolist()])
        times = np.array([machine.pe.cycles_ps(one) for one in cycles], np.int64)
        # all cases are in range; with another mode `take` would copy first
        np.take(times, case, out=duration[: len(case)], mode="clip")
    return duration


def _case(lowered: Lowered, machine: Machine, i: int) -> int | Fraction:
    """The cycles of command i, where it has a fixed time."""
    columns, types = lowered.columns, lowered.recording.tables.types
    row = OPERATIONS[_NAMES[columns.op[i]]]
    if row.engine == "gemm":
        a, b = (types[t] for t in columns.operand_type[i, :2])
        return _gemm_cycles(machine, a, b)
    if row.engine == "math":
        out, first = types[columns.type[i]], columns.operand_type[i, 0]
        elements = prod(out[0])
        if row.cost == "reduce" and first >= 0:
            elements = prod(types[first][0])
        return _math_cycles(machine, row.cost, elements)
    return 0


def gemm_ps(machine: Machine, a: HandleType, b: HandleType) -> int:
    """Time of one product."""
    return machine.pe.cycles_ps(_gemm_cycles(machine, a, b))


def _gemm_cycles(machine: Machine, a: HandleType, b: HandleType) -> int:
    *batch, m, k = a[0]
    n = b[0][-1]
    if 0 in (m, n, k):
        return 0
    macs = machine.gemm.macs_per_cell_cycle
    rate = min(Fraction(macs.of(dtype)) for dtype in (a[1], b[1]))
    tiles = ceil(m / machine.gemm.rows) * ceil(n / machine.gemm.columns)
    cycles = tiles * (machine.gemm.rows + machine.gemm.columns - 2 + ceil(k / rate))
    return prod(batch) * cycles


def math_ps(machine: Machine, cost: str, elements: int) -> int:
    """Time of one pass over `elements`."""
    return machine.pe.cycles_ps(_math_cycles(machine, cost, elements))


def _math_cycles(machine: Machine, cost: str, elements: int) -> Fraction:
    simple = Fraction(machine.math.results_per_cycle("simple"))
    if cost == "softmax":
        special = sum(1 / Fraction(machine.math.results_per_cycle(name)) for name in ("exp", "div"))
        return elements * (3 / simple + special)
    rate = Fraction(machine.math.results_per_cycle(cost)) if cost in ("exp", "log", "sqrt", "div") else simple
    return PASSES.get(cost, 1) * elements / rate


def _transfers(lowered: Lowered) -> tuple[Ints, Small]:
    """The transfers through HBM, and the server of each node: that of its cube; the bytes are the commands' own."""
    columns = lowered.columns
    server = np.full(lowered.graph.nodes, NO_SERVER, np.int32)
    moves = np.flatnonzero(lowered.engine >= FIRST_DMA)
    moves = moves[columns.y[moves] > 0]
    cube = np.array([s.cube for s in lowered.recording.streams], np.int32)
    server[moves] = cube[columns.program[moves]]
    return moves, server


def _piece_times(lowered: Lowered, machine: Machine) -> Ints:
    given = machine.link, machine.cube_link
    return lowered.once("piece times", given, lambda: _times_of_pieces(lowered, machine))


def _times_of_pieces(lowered: Lowered, machine: Machine) -> Ints:
    links = lowered.recording.links
    channel = [machine.cube_link if link.between_cubes else machine.link for link in links]
    sizes, inverse = np.unique(lowered.pieces.nbytes, return_inverse=True)
    table = np.array([[c.transfer_ps(int(n)) for n in sizes] for c in channel] or [[0]], np.int64)
    return table[lowered.pieces.link, inverse] if len(lowered.pieces.link) else np.empty(0, np.int64)


def _latencies(lowered: Lowered, machine: Machine) -> Ints:
    links = lowered.recording.links
    times = [(machine.cube_link if k.between_cubes else machine.link).latency_ps * k.hops for k in links]
    return np.array(times or [0], np.int64)
