"""Lower bounds for distributed attention on a mesh machine: no schedule of the same algorithm is faster.

Compute counts two MACs per head dimension, query and visible key at the GEMM array's peak; array the additional cost
of filling it (`array_cycles`); exp one exponential per visible pair; HBM the bytes that must move at least once (K, V,
Q and O) through the cubes that hold them. These hold for every algorithm with the same number of working PEs. Link and
latency depend on the algorithm: the bytes of its busiest link in one direction, and the hops of its longest path.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from kernbench.common.dtypes import ITEMSIZE
from kernbench.machine import Machine


@dataclass(frozen=True)
class Problem:
    """Attention of `tokens` queries of each user over `lengths` keys each, on `ranks` ranks along `rank_axis`.

    `team` PEs work for each rank.
    """

    tokens: int
    lengths: tuple[int, ...]
    h_q: int
    h_kv: int
    d_head: int
    dtype: str
    causal: bool
    ranks: int
    rank_axis: int
    team: int = 1

    @property
    def pairs(self) -> int:
        """Queries times the keys they see, of one head, over all users."""
        return sum(_visible(self.tokens, keys, self.causal) for keys in self.lengths)

    @property
    def keys_bytes(self) -> int:
        """K and V of all users."""
        return 2 * sum(self.lengths) * self.h_kv * self.d_head * ITEMSIZE[self.dtype]

    @property
    def foreign_bytes(self) -> int:
        """Lower bound of K and V that a rank does not have itself: no shard is larger than an even share of the
        longest.
        """
        share = 2 * -(-max(self.lengths) // (2 * self.ranks))
        rows = sum(max(0, length - share) for length in self.lengths)
        return 2 * rows * self.h_kv * self.d_head * ITEMSIZE[self.dtype]

    @property
    def query_bytes(self) -> int:
        """Q of all users; O has as many."""
        return len(self.lengths) * self.tokens * self.h_q * self.d_head * ITEMSIZE[self.dtype]

    @property
    def partial_bytes(self) -> int:
        """(m, l, o) of all queries, in f32."""
        return len(self.lengths) * self.tokens * self.h_q * (self.d_head + 2) * 4


class Traffic(NamedTuple):
    """What an algorithm must send: bytes over its busiest link between ranks, in one direction, and hops of the longest
    path; `inside` is the bytes over the busiest link between PEs of a team.
    """

    nbytes: int
    hops: int
    inside: int = 0


def on_line(p: Problem) -> Traffic:
    """Every chunk of K and V reaches the rank at the end over its one link, or goes round a ring in one direction."""
    return Traffic(p.foreign_bytes, p.ranks - 1 if p.keys_bytes else 0)


def round_cycle(p: Problem) -> Traffic:
    """Every chunk reaches every rank over two links."""
    return Traffic(p.foreign_bytes // 2, p.ranks // 2 if p.keys_bytes else 0)


def through_leader(p: Problem, gathered: Traffic) -> Traffic:
    """What reaches the ranks is passed on to the PEs of their teams that have the heads, over two links of PE 0."""
    return gathered._replace(inside=_others(p, p.foreign_bytes) // 2)


def _others(p: Problem, nbytes: int) -> int:
    """The share of other PEs than PE 0 of something for all heads."""
    return nbytes * (p.h_kv - max(1, p.h_kv // p.team)) // p.h_kv


def tiled(p: Problem, columns: int) -> Traffic:
    """Queries and partials along the shorter side if heads are grouped, keys along the other.

    Rank 0 has the first query, which goes to the end of its line and returns as a partial.
    """
    sides = sorted((min(columns, p.ranks), -(-p.ranks // columns)))
    n, m = sides if p.h_q > p.h_kv else sides[::-1]
    query, partial, keys = (b // p.ranks for b in (p.query_bytes, p.partial_bytes, p.keys_bytes))
    even = p.tokens % (2 * p.ranks) == 0 and all(length % (2 * p.ranks) == 0 for length in p.lengths)
    inward, outward = (n - 1) * query + partial, query + (n - 1) * partial
    nbytes = max((m - 1) * keys, 0 if n == 1 else max(inward, outward)) if even else 0
    return Traffic(nbytes, max(2 * (n - 1) if p.tokens else 0, m - 1 if p.keys_bytes else 0))


def every_partial(p: Problem) -> Traffic:
    """Every rank's partial reaches the rank at the end of a line over its one link."""
    return Traffic((p.ranks - 1) * p.partial_bytes, p.ranks - 1)


def through_root(p: Problem, columns: int) -> Traffic:
    """One partial over each link towards the rank in the middle, and the way back."""
    width, height = min(columns, p.ranks), -(-p.ranks // columns)
    return Traffic(p.partial_bytes if p.ranks > 1 else 0, 2 * (width // 2 + height // 2))


def rows_then_columns(p: Problem, columns: int) -> Traffic:
    """One merged partial over each link in each direction."""
    width, height = min(columns, p.ranks), -(-p.ranks // columns)
    return Traffic(p.partial_bytes if p.ranks > 1 else 0, width + height - 2)


def through_middle(p: Problem) -> Traffic:
    """One partial over each link towards the middle of a line, and the way back; before that, from the teams."""
    return Traffic(p.partial_bytes if p.ranks > 1 else 0, 2 * (p.ranks // 2), _others(p, p.partial_bytes) // 2)


def limits(problem: Problem, machine: Machine, traffic: Traffic) -> dict[str, int]:
    """Each limit in picoseconds."""
    p, link = problem, machine.link if problem.rank_axis == 0 else machine.cube_link
    cycle = machine.pe.cycle_ps
    macs = 2 * p.h_q * p.d_head * p.pairs
    workers = p.ranks * p.team
    exponentials = Fraction(machine.math.results_per_cycle("exp"))
    cubes = 1 if p.rank_axis == 0 else p.ranks
    return {
        "compute": int(macs * cycle / (workers * Fraction(machine.gemm.macs_per_cycle(p.dtype)))),
        "array": int(array_cycles(p, machine) * cycle / workers),
        "exp": int(p.h_q * p.pairs * cycle / (workers * exponentials)),
        "hbm": machine.hbm.transfer_ps((p.keys_bytes + 2 * p.query_bytes) // cubes),
        "link": max(link.transfer_ps(traffic.nbytes), machine.link.transfer_ps(traffic.inside)),
        "latency": traffic.hops * link.latency_ps,
    }


def array_cycles(p: Problem, machine: Machine) -> Fraction:
    """Least cycles of all GEMM arrays together, if every product is a `dot`: the larger of two bounds.

    A pass over an R x C array computes at most R * C numbers and takes R + C - 2 + k / r cycles. A score is one of
    those numbers, with k = d_head, or several passes share it and each fills and drains the array; so fill and drain
    cannot be shared by more than R * C scores. The values' products are counted at the array's peak: long blocks of
    keys make their fill and drain as small a part as the scratch memory allows. And a pass takes in at most (R + C) k
    numbers, while every number of K and V must enter once: this binds with few queries and many keys.
    """
    rate = Fraction(machine.gemm.macs_per_cell_cycle.of(p.dtype))
    rows, columns = machine.gemm.rows, machine.gemm.columns
    if not p.pairs:
        return Fraction(0)
    a_score = rows + columns - 2 + p.d_head / rate + p.d_head / rate
    scores = p.h_q * p.pairs * a_score / (rows * columns)
    numbers = 2 * sum(p.lengths) * p.h_kv * p.d_head
    return max(scores, numbers / ((rows + columns) * rate))


def _visible(tokens: int, keys: int, causal: bool) -> int:
    """Visible pairs of query and key of one head: the last query sees the last key."""
    if not causal:
        return tokens * keys
    # the last sees all keys, the one before it one less, down to the first that sees any
    seeing = min(tokens, keys)
    return seeing * (2 * keys - seeing + 1) // 2
