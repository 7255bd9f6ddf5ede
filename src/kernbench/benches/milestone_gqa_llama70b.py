"""Grouped-query attention of llama-70B on the mesh: K/V ring prefill and (m, l, o)-merge decode, one user or many."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench import mesh
from kernbench.bench import Bench, Expected, ShapesOnly, normal, param
from kernbench.benches._attention_limits import Problem, limits
from kernbench.benches._attention_mesh_kv import attention_mesh_kv_kernel
from kernbench.benches._attention_mesh_mlo import attention_mesh_mlo_kernel
from kernbench.benches._attention_ring_kv import attention_ring_kv_kernel
from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError
from kernbench.golden import attention
from kernbench.machine import Machine
from kernbench.result.run import Run


@dataclass(frozen=True)
class Algorithm:
    """A kernel, the wiring it needs, and whether Q is split over the ranks or the same on all."""

    kernel: Callable[..., None]
    install: str
    splits_q: bool


ALGORITHMS = {
    "mesh_kv": Algorithm(attention_mesh_kv_kernel, "line", True),
    "ring_kv": Algorithm(attention_ring_kv_kernel, "ring", True),
    "mesh_mlo": Algorithm(attention_mesh_mlo_kernel, "line", False),
}


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
    def splits_q(self) -> bool:
        """Whether each rank has its own queries."""
        return ALGORITHMS[self.algorithm].splits_q

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
    return {"o": Expected(reference, 1, p.n_ranks) if p.splits_q else Expected(reference)}


def host(p: Parameters, machine: Machine) -> mesh.Host:
    """The ranks, wired as the algorithm needs them."""
    install = ALGORITHMS[p.algorithm].install
    return mesh.Host(machine=machine, ranks=p.n_ranks, rank_axis=p.rank_axis, install=install)


def launch(p: Parameters, x: Mapping[str, Array], *, torch: mesh.Host) -> Run:
    """Q split or replicated, K and V split along the sequence, O like Q."""
    axis = 1 if p.splits_q else None
    q_tile = x["q"].reshape(p.users, p.query_tokens, p.h_q * p.d_head)
    q = torch.shard(q_tile, axis=1) if p.splits_q else torch.replicate(q_tile)
    k, v = (torch.shard(_stored(p, x[name]), axis=1) for name in ("k", "v"))
    o = torch.empty(q_tile.shape, p.dtype, axis=axis)
    options: dict[str, Any] = {"total_q": p.query_tokens} if p.splits_q else {}
    return torch.launch(
        ALGORITHMS[p.algorithm].kernel,
        q,
        k,
        v,
        o,
        _share(p.query_tokens, p.n_ranks) if p.splits_q else p.query_tokens,
        _share(max(p.key_lengths), p.n_ranks),
        p.h_q,
        p.h_kv,
        p.d_head,
        p.n_ranks,
        p.rank_axis,
        causal=p.causal,
        batch=p.users,
        total_kv=p.key_lengths,
        block_q=p.block_q or None,
        block_kv=p.block_kv or None,
        **options,
    )


def _stored(p: Parameters, keys: Array) -> Array:
    """As many rows as the longest user needs."""
    return keys[:, : max(p.key_lengths)]


def _share(total: int, ranks: int) -> int:
    return -(-total // ranks)


def physical_limits(p: Parameters, machine: Machine) -> dict[str, int]:
    """What no schedule of the panel's algorithm can beat on this machine."""
    problem = Problem(p.query_tokens, p.key_lengths, p.h_q, p.h_kv, p.d_head, p.dtype, p.causal, p.n_ranks, p.rank_axis)
    return limits(problem, machine, sends_partials=not p.splits_q)


bench = Bench(
    name="milestone_gqa_llama70b",
    summary="llama-70B attention (64/8 heads, d 128): K/V ring prefill and (m, l, o)-merge decode, one user or many",
    parameters=Parameters,
    inputs=inputs,
    golden=golden,
    host=host,
    launch=launch,
    limits=physical_limits,
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
)
