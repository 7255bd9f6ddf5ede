"""Grouped-query attention of llama-70B on the mesh: K/V ring prefill and (m, l, o)-merge decode, one user or many."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench import mesh
from kernbench.bench import Bench, Expected, Repeats, ShapesOnly, Size, Variant, normal, param
from kernbench.benches._algorithms import ALGORITHMS, Algorithm
from kernbench.benches.gqa_attention.limits import Problem, limits
from kernbench.benches.gqa_attention.parts.shards import zigzag_rows
from kernbench.benches.gqa_attention.parts.teams import arms_of
from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.common.errors import BenchError
from kernbench.golden import attention
from kernbench.machine import Machine
from kernbench.result.reading import Data
from kernbench.result.run import Run

# block sizes for shards of at least so many keys
LONG_SHARD, LARGE_ROWS, LARGE_KEYS = 1024, 1024, 512


@dataclass(frozen=True)
class Parameters:
    """Model, sizes and machine of one panel."""

    algorithm: str = param("mesh_kv", "how the ranks work together", choices=tuple(ALGORITHMS))
    n_ranks: int = param(8, "ranks: PEs of a cube (rank_axis 0) or cubes (rank_axis 1)", low=1)
    rank_axis: int = param(0, "0: the ring runs over the PEs of a cube, 1: over cubes", choices=(0, 1))
    users: int = param(1, "sequences served together", low=1, high=4096)
    context: int = param(256, "keys of the longest sequence", low=1)
    tokens: int = param(0, "query tokens of each sequence; 0: the whole context for prefill, 1 for decode", low=0)
    lengths: tuple[int, ...] = param((), "keys of each user, at most context; empty: all have the whole context", low=0)
    h_q: int = param(64, "query heads", low=1)
    h_kv: int = param(8, "KV heads; divides h_q", low=1)
    d_head: int = param(128, "size of a head", low=1)
    causal: bool = param(True, "a query sees keys up to its own position")
    block_q: int = param(0, "query rows (heads of a group x tokens) at a time; 0: the kernel's choice", low=0)
    block_kv: int = param(0, "keys at a time; 0: the kernel's choice", low=0)
    dtype: str = param("f16", "element type of Q, K, V and O", choices=("f16", "bf16", "f32"))
    machine: str = param("reference", "bundled machine or TOML path")

    def __post_init__(self) -> None:
        if self.h_q % self.h_kv:
            raise BenchError(f"h_q = {self.h_q} must be a multiple of h_kv = {self.h_kv}")
        if self.lengths and len(self.lengths) != self.users:
            raise BenchError(f"{self.users} users need {self.users} lengths; got {self.lengths}")
        if self.lengths and max(self.lengths) > self.context:
            raise BenchError(f"lengths {self.lengths} must not exceed context = {self.context}")

    @property
    def chosen(self) -> Algorithm:
        """The algorithm."""
        return ALGORITHMS[self.algorithm]

    @property
    def splits_q(self) -> bool:
        """Whether each rank has its own queries."""
        return self.chosen.splits_q

    @property
    def query_tokens(self) -> int:
        """Query tokens of each user."""
        return self.tokens or (self.context if self.splits_q else 1)

    @property
    def key_lengths(self) -> tuple[int, ...]:
        """Keys of each user."""
        return self.lengths or (self.context,) * self.users


def inputs(p: Parameters, rng: np.random.Generator | ShapesOnly) -> dict[str, Array]:
    """Normal Q, K and V; every fifth query row is 64 times as large, so that its exponentials overflow in a kernel that
    does not subtract the maximum; keys past a user's length are NaN, so that a kernel that reads them cannot be right.
    """
    q = normal(rng, (p.users, p.query_tokens, p.h_q, p.d_head), p.dtype)
    k, v = (normal(rng, (p.users, p.context, p.h_kv, p.d_head), p.dtype) for _ in range(2))
    if not isinstance(rng, ShapesOnly):
        steep = (np.arange(p.query_tokens)[:, None] + np.arange(p.h_q)) % 5 == 0
        q[:, steep] *= q.dtype.type(64)
        for user, length in enumerate(p.key_lengths):
            k[user, length:] = v[user, length:] = np.nan
    return {"q": q, "k": k, "v": v}


def golden(p: Parameters, x: Mapping[str, Array]) -> dict[str, Expected]:
    """Attention in float64; the ranks' parts lie along the tokens where Q is split."""
    reference = attention(x["q"], x["k"], x["v"], causal=p.causal, key_lengths=np.array(p.key_lengths))
    contiguous = p.splits_q and not p.chosen.zigzag
    return {"o": Expected(reference, 1, p.n_ranks) if contiguous else Expected(reference)}


def host(p: Parameters, machine: Machine) -> mesh.Host:
    """The ranks, wired for the algorithm."""
    host = mesh.Host(machine=machine, ranks=p.n_ranks, rank_axis=p.rank_axis)
    install = p.chosen.install
    if install == "closed":
        install = "line" if host.cycle is None else "cycle"
    if install == "cycle" and host.cycle is None:
        raise BenchError(
            f"{p.algorithm} needs a closed walk over the grid: ranks that fill two or more whole rows of "
            f"{host.grid.columns}, an even number in all; got {p.n_ranks}: stream_kv takes any number"
        )
    if install == "grid" and p.n_ranks > host.grid.columns and p.n_ranks % host.grid.columns:
        raise BenchError(f"{p.algorithm} needs ranks that fill whole rows of {host.grid.columns}; got {p.n_ranks}")
    inside = None
    if p.chosen.every_pe and p.rank_axis == 1:
        inside = "line" if machine.cube.grid.cycle() is None else "cycle"
    return mesh.Host(machine=machine, ranks=p.n_ranks, rank_axis=p.rank_axis, install=install, inside=inside)


def launch(p: Parameters, x: Mapping[str, Array], *, torch: mesh.Host) -> Run:
    """Q split or replicated, K and V split along the sequence, O like Q."""
    q_tile = x["q"].reshape(p.users, p.query_tokens, p.h_q * p.d_head)
    queries, keys = (_rows(p, total) for total in (p.query_tokens, max(p.key_lengths)))
    k, v = (torch.shard(_stored(p, x[name]), axis=1, rows=keys) for name in ("k", "v"))
    options: Data = dict(p.chosen.options)
    block_q, block_kv = _blocks(p, torch.machine)
    if p.splits_q:
        q, o = torch.shard(q_tile, axis=1, rows=queries), torch.empty(q_tile.shape, p.dtype, axis=1, rows=queries)
        options["total_q"] = p.query_tokens
    else:
        q, o = torch.replicate(q_tile), torch.empty(q_tile.shape, p.dtype)
    if torch.install == "cycle":
        options["order"] = torch.cycle
    if torch.install == "grid":
        options["columns"] = torch.grid.columns
    if p.chosen.zigzag:
        options["zigzag"] = True
    if p.chosen.every_pe:
        options["arms"] = arms_of(torch.team, torch.inside == "cycle")
    return torch.launch(
        p.chosen.kernel,
        q,
        k,
        v,
        o,
        _share(p, p.query_tokens) if p.splits_q else p.query_tokens,
        _share(p, max(p.key_lengths)),
        p.h_q,
        p.h_kv,
        p.d_head,
        p.n_ranks,
        p.rank_axis,
        causal=p.causal,
        batch=p.users,
        total_kv=p.key_lengths,
        block_q=block_q or None,
        block_kv=block_kv or None,
        **options,
    )


def _blocks(p: Parameters, machine: Machine) -> tuple[int, int]:
    """Query rows and keys of a block; 0 lets the kernel choose.

    Long shards get 1,024 rows by 512 keys if K of a block fits half of a queue and the scores half of the scratch
    memory, and if the blocks are equal: a short last one would leave no gap for the next scores.
    """
    keys = _share(p, max(p.key_lengths))
    per_message = machine.ipcq.depth // 2 * machine.ipcq.slot // (p.d_head * ITEMSIZE[p.dtype])
    large = keys >= LONG_SHARD and keys % LARGE_KEYS == 0 and per_message >= LARGE_KEYS and p.d_head <= 128
    if p.chosen.sizes_itself or not p.splits_q or not large or machine.pe.scratch // 2 < LARGE_ROWS * LARGE_KEYS * 4:
        return p.block_q, p.block_kv
    return p.block_q or LARGE_ROWS, p.block_kv or LARGE_KEYS


def _rows(p: Parameters, total: int) -> list[Any] | None:
    """The tokens of each rank, if they are not equal shares in order."""
    return zigzag_rows(total, p.n_ranks) if p.chosen.zigzag else None


def _stored(p: Parameters, keys: Array) -> Array:
    """The keys, cut to the rows that the longest user needs."""
    return keys[:, : max(p.key_lengths)]


def _share(p: Parameters, total: int) -> int:
    """Tokens of a full shard."""
    return 2 * -(-total // (2 * p.n_ranks)) if p.chosen.zigzag else -(-total // p.n_ranks)


def physical_limits(p: Parameters, machine: Machine) -> dict[str, int]:
    """Lower bounds for every schedule of the panel's algorithm on this machine."""
    team = machine.pes_per_cube if p.chosen.every_pe and p.rank_axis == 1 else 1
    problem = Problem(
        p.query_tokens, p.key_lengths, p.h_q, p.h_kv, p.d_head, p.dtype, p.causal, p.n_ranks, p.rank_axis, team
    )
    wired = host(p, machine)
    return limits(problem, machine, p.chosen.traffic(problem, str(wired.install), wired.grid.columns))


def variants(p: Parameters) -> dict[str, Variant]:
    """The algorithms for the panel's problem."""
    rivals = {name: a for name, a in ALGORITHMS.items() if a.splits_q == p.splits_q}
    return {name: Variant({"algorithm": name}, a.idea) for name, a in rivals.items()}


def _size(context: int, tokens: int = 0) -> Size:
    """Real sizes, in blocks that the kernel chooses: up to 1,024 query rows and 512 keys."""
    prefill: dict[str, object] = {"context": context, "tokens": tokens}
    decode: dict[str, object] = {"context": context, "lengths": ()}
    return Size(
        {
            "single_user_prefill": prefill,
            "single_user_decode": decode,
            "multi_user_prefill": prefill | {"users": 2},
            "multi_user_decode": decode | {"users": 16},
        },
        shapes_only=True,
    )


bench = Bench(
    name="milestone_gqa_llama70b",
    summary="llama-70B attention (64/8 heads, d 128): K/V ring prefill and (m, l, o)-merge decode, one user or many",
    parameters=Parameters,
    inputs=inputs,
    golden=golden,
    host=host,
    launch=launch,
    limits=physical_limits,
    variants=variants,
    repeats=Repeats(80, "layers"),
    panels={
        "single_user_prefill": {"algorithm": "mesh_kv", "rank_axis": 0, "context": 256},
        "single_user_decode": {"algorithm": "mesh_mlo", "rank_axis": 0, "context": 2048},
        "multi_user_prefill": {"algorithm": "mesh_kv", "rank_axis": 1, "users": 2, "context": 128},
        "multi_user_decode": {
            "algorithm": "mesh_mlo",
            "rank_axis": 1,
            "users": 4,
            "context": 1024,
            "lengths": (1024, 700, 33, 512),
        },
    },
    # at 128k the prefill is that of the last 8,192 tokens, as in a server that prefills in chunks
    sizes={"8k": _size(8192), "32k": _size(32768), "128k": _size(131072, 8192)},
)
