"""The work in a recording: the amount of each kind, its time at the machine's peak, and the achieved rates.

Work is counted once for each case (an operation on given types), times its number of occurrences. Times at peak are
exact fractions of a picosecond, so that derived values add up.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod

import numpy as np

from kernbench.common.pe_commands import OPERATION_NAMES, OPERATIONS
from kernbench.machine import Machine
from kernbench.machine.keys import PS_PER_SECOND
from kernbench.mesh.time.clock import Timing
from kernbench.mesh.time.costs import PASSES
from kernbench.mesh.time.lower import CODE, Lowered
from kernbench.timing.graph import Ints

# softmax is a max, a subtraction, an exp, a sum and a division
_SOFTMAX_OPERATIONS = 5


@dataclass(frozen=True)
class Work:
    """Amounts over all PEs, and the time they take on one PE at its peak.

    `gemm_ps` counts the MACs alone, `array_ps` what filling and draining the array adds for each tile; `exp_ps` is the
    exponentials alone.
    """

    flops: int
    operations: int
    exponentials: int
    gemm_ps: Fraction
    array_ps: Fraction
    exp_ps: Fraction


def count_work(lowered: Lowered, machine: Machine) -> Work:
    """The GEMM and MATH work of all programs."""
    given = machine.pe, machine.gemm, machine.math
    return lowered.once("work", given, lambda: _counted(lowered, machine))


def _counted(lowered: Lowered, machine: Machine) -> Work:
    first, case = lowered.cases
    counts = np.bincount(case, minlength=len(first))
    flops = operations = exponentials = 0
    gemm = array = Fraction(0)
    for i, count in zip(first.tolist(), counts.tolist(), strict=True):
        row = OPERATIONS[OPERATION_NAMES[lowered.columns.op[i]]]
        if row.engine == "gemm":
            macs, at_peak, filling = _product(lowered, machine, i)
            flops += 2 * count * macs
            gemm += count * at_peak
            array += count * filling
        elif row.engine == "math":
            elements = count * _elements(lowered, row.cost, i)
            operations += elements * (_SOFTMAX_OPERATIONS if row.cost == "softmax" else PASSES.get(row.cost, 1))
            exponentials += elements if row.cost in ("exp", "softmax") else 0
    exp = exponentials / Fraction(machine.math.results_per_cycle("exp"))
    cycle = machine.pe.cycle_ps
    return Work(flops, operations, exponentials, gemm * cycle, array * cycle, exp * cycle)


def _product(lowered: Lowered, machine: Machine, i: int) -> tuple[int, Fraction, int]:
    """MACs of command i, its cycles at full utilisation, and the cycles its tiles fill and drain."""
    a, b = (lowered.recording.tables.types[t] for t in lowered.columns.operand_type[i, :2])
    *batch, m, _ = a[0]
    n = b[0][-1]
    macs = prod(a[0]) * n
    gemm = machine.gemm
    rate = min(Fraction(gemm.macs_per_cell_cycle.of(dtype)) for dtype in (a[1], b[1]))
    tiles = prod(batch) * ceil(m / gemm.rows) * ceil(n / gemm.columns) if macs else 0
    return macs, macs / (gemm.rows * gemm.columns * rate), tiles * (gemm.rows + gemm.columns - 2)


def _elements(lowered: Lowered, cost: str, i: int) -> int:
    """The elements that command i processes: of its input if it reduces, else of its result."""
    types, operand = lowered.recording.tables.types, lowered.columns.operand_type[i, 0]
    kind = operand if cost == "reduce" and operand >= 0 else lowered.columns.type[i]
    return prod(types[kind][0])


def cube_bytes(lowered: Lowered) -> Ints:
    """Bytes loaded and stored through each cube's HBM."""
    return lowered.once("cube bytes", None, lambda: _cube_bytes(lowered))


def _cube_bytes(lowered: Lowered) -> Ints:
    columns = lowered.columns
    moves = np.isin(columns.op, (CODE["load"], CODE["store"]))
    cube = np.array([s.cube for s in lowered.recording.streams] or [0])
    return np.bincount(cube[columns.program[moves]], columns.y[moves], 1).astype(np.int64)


def link_times(timing: Timing) -> Ints:
    """How long each link was sending."""
    pieces = timing.lowered.pieces
    return np.bincount(pieces.link, timing.rates.duration[pieces.push], 1).astype(np.int64)


def work_floors(timing: Timing, work: Work) -> dict[str, int]:
    """Lower bounds for any schedule of these commands: each engine's work spread evenly over the PEs, and each cube's
    bytes.

    The GEMM floor counts MACs at the array's peak, without filling and draining; exp counts only the exponentials.
    """
    programs = max(1, len(timing.lowered.recording.streams))
    return {
        "compute": int(work.gemm_ps / programs),
        "exp": int(work.exp_ps / programs),
        "hbm": timing.machine.hbm.transfer_ps(int(cube_bytes(timing.lowered).max())),
        "link": int(link_times(timing).max()),
    }


def achieved_rates(timing: Timing, work: Work, math_ps: int) -> dict[str, dict[str, float]]:
    """Amount, achieved rate and peak of each kind of work that occurred, per second.

    Peaks are those of the PEs and cubes that have a program and of the links that were used; of GEMM and MATH, for the
    actual mix of operand types and operations. `math_ps` is how long the MATH engines were busy.
    """
    lowered, machine, total = timing.lowered, timing.machine, timing.total_ps
    programs = len(lowered.recording.streams)
    used = [lowered.recording.links[i] for i in np.unique(lowered.pieces.link)]
    cubes = {s.cube for s in lowered.recording.streams}
    channels = [machine.cube_link if link.between_cubes else machine.link for link in used]
    rows: dict[str, tuple[int, Fraction]] = {
        "gemm": (work.flops, _peak(work.flops, work.gemm_ps, programs)),
        "math": (work.operations, _peak(work.operations, Fraction(math_ps), programs)),
        "exp": (work.exponentials, _peak(work.exponentials, work.exp_ps, programs)),
        "hbm": (int(cube_bytes(lowered).sum()), Fraction(len(cubes) * machine.hbm.bytes_per_second)),
        "link": (int(lowered.pieces.nbytes.sum()), Fraction(sum(c.bytes_per_second for c in channels))),
    }
    return {
        name: {"amount": amount, "achieved": amount * PS_PER_SECOND / total, "peak": float(peak)}
        for name, (amount, peak) in rows.items()
        if amount and total
    }


def _peak(amount: int, one_pe_ps: Fraction, programs: int) -> Fraction:
    return amount * PS_PER_SECOND * programs / one_pe_ps if one_pe_ps else Fraction(0)
