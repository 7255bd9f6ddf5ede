"""Physical limits of distributed attention on a mesh machine: no schedule of the same algorithm is faster.

Compute counts two MACs a head dimension, query and visible key at the GEMM array's peak; exp one exponential a visible
pair; HBM the bytes that must move at least once (K, V, Q and O) through the cubes that hold them; link what must reach
the rank at the end of the line over its one link; latency the hops to it.
"""

from dataclasses import dataclass
from fractions import Fraction

from kernbench.common.dtypes import ITEMSIZE
from kernbench.machine import Machine


@dataclass(frozen=True)
class Problem:
    """Attention of `tokens` queries of each user over `lengths` keys each, on `ranks` ranks along `rank_axis`."""

    tokens: int
    lengths: tuple[int, ...]
    h_q: int
    h_kv: int
    d_head: int
    dtype: str
    causal: bool
    ranks: int
    rank_axis: int

    @property
    def pairs(self) -> int:
        """Queries times the keys they see, of one head, over all users."""
        return sum(_visible(self.tokens, keys, self.causal) for keys in self.lengths)


def limits(problem: Problem, machine: Machine, sends_partials: bool) -> dict[str, int]:
    """Each limit in picoseconds; `sends_partials` tells the merge of (m, l, o) from passing K and V on."""
    p, link = problem, machine.link if problem.rank_axis == 0 else machine.cube_link
    cycle, itemsize = machine.pe.cycle_ps, ITEMSIZE[problem.dtype]
    macs = 2 * p.h_q * p.d_head * p.pairs
    exponentials = Fraction(machine.math.results_per_cycle("exp"))
    keys_bytes = 2 * sum(p.lengths) * p.h_kv * p.d_head * itemsize
    query_bytes = 2 * len(p.lengths) * p.tokens * p.h_q * p.d_head * itemsize
    cubes = 1 if p.rank_axis == 0 else p.ranks
    partial_bytes = len(p.lengths) * p.tokens * p.h_q * (p.d_head + 2) * 4
    travels = partial_bytes if sends_partials else keys_bytes // p.ranks
    return {
        "compute": int(macs * cycle / (p.ranks * Fraction(machine.gemm.macs_per_cycle(p.dtype)))),
        "exp": int(p.h_q * p.pairs * cycle / (p.ranks * exponentials)),
        "hbm": machine.hbm.transfer_ps((keys_bytes + query_bytes) // cubes),
        "link": link.transfer_ps((p.ranks - 1) * travels),
        "latency": (p.ranks - 1) * link.latency_ps,
    }


def _visible(tokens: int, keys: int, causal: bool) -> int:
    """Query and key pairs of one head: the last query sees the last key."""
    if not causal:
        return tokens * keys
    return sum(max(0, keys - tokens + i + 1) for i in range(tokens))
