"""Decode attention of a batch of sequences in PTX, one query token each, on the emulator or a real GPU."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench import ptx
from kernbench.bench import Bench, Expected, ShapesOnly, Size, Variant, normal, param
from kernbench.benches.batched_attention.decode_attention import HEAD_DIMS, DecodeAttention
from kernbench.benches.batched_attention.incremental_attention import (
    LOG2_E,
    MAX_HEAD_DIM,
    BatchedIncrementalAttentionKernel,
)
from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError
from kernbench.golden import attention
from kernbench.machine import Machine
from kernbench.ptx.devices.host import DEVICES
from kernbench.result.run import Run, Status

KERNELS = {
    "one_warp": "one warp a head, an element a load, f32",
    "multi_warp": "several warps a head, 16-byte loads",
    "shared_kv": "the heads of a group share the K and V a block loads",
    "split_kv": "keys split over blocks as well, and a kernel that merges them",
}


@dataclass(frozen=True)
class Parameters:
    """Model, batch and kernel."""

    kernel: str = param("shared_kv", "which kernel", choices=tuple(KERNELS))
    users: int = param(4, "sequences served together", low=1, high=4096)
    context: int = param(128, "keys a cache has room for", low=1)
    lengths: tuple[int, ...] = param((), "keys of each user, at most context; empty: all have the whole context", low=0)
    h_q: int = param(8, "query heads", low=1)
    h_kv: int = param(2, "KV heads; divides h_q", low=1)
    d_head: int = param(128, "size of a head", low=1)
    dtype: str = param("f16", "element type of Q, K, V and O", choices=("f32", "f16", "bf16"))
    warps: int = param(4, "warps of a block (but for one_warp)", low=1, high=16)
    unroll: int = param(0, "keys a lane loads before it computes; 0: the kernel's choice", low=0, high=16)
    splits: int = param(4, "slices of the keys (of split_kv)", low=1, high=1024)
    device: str = param("emulator", "where it runs", choices=DEVICES)
    arch: str = param("sm_90a", "the architecture the emulator is")
    gpu: str = param("h200", "the GPU whose time is predicted")

    def __post_init__(self) -> None:
        if self.h_q % self.h_kv:
            raise BenchError(f"h_q = {self.h_q} must be a multiple of h_kv = {self.h_kv}")
        if self.lengths and len(self.lengths) != self.users:
            raise BenchError(f"{self.users} users need {self.users} lengths; got {self.lengths}")
        if self.lengths and max(self.lengths) > self.context:
            raise BenchError(f"lengths {self.lengths} must not exceed context = {self.context}")
        if self.kernel == "one_warp" and (self.dtype != "f32" or self.d_head > MAX_HEAD_DIM):
            raise BenchError(f"one_warp is for f32 and heads of up to {MAX_HEAD_DIM}; got {self.dtype}, {self.d_head}")
        if self.kernel != "one_warp" and self.d_head not in HEAD_DIMS:
            raise BenchError(f"d_head = {self.d_head}: {self.kernel} has {', '.join(map(str, HEAD_DIMS))}")

    @property
    def key_lengths(self) -> tuple[int, ...]:
        """Keys of each user."""
        return self.lengths or (self.context,) * self.users


def inputs(p: Parameters, rng: np.random.Generator | ShapesOnly) -> dict[str, Array]:
    """Normal Q, K and V; every fifth query is 64 times as large, so that its exponentials overflow in a kernel that
    does not subtract the maximum; keys past a user's length are NaN, so that a kernel that reads them cannot be right.
    """
    q = normal(rng, (p.users, p.h_q, p.d_head), p.dtype)
    k, v = (normal(rng, (p.users, p.h_kv, p.context, p.d_head), p.dtype) for _ in range(2))
    if not isinstance(rng, ShapesOnly):
        steep = (np.arange(p.users)[:, None] + np.arange(p.h_q)) % 5 == 0
        q[steep] *= q.dtype.type(64)
        for user, length in enumerate(p.key_lengths):
            k[user, :, length:] = v[user, :, length:] = np.nan
    return {"q": q, "k": k, "v": v}


def golden(p: Parameters, x: Mapping[str, Array]) -> dict[str, Expected]:
    """Attention in float64."""
    k, v = (x[name].swapaxes(1, 2) for name in ("k", "v"))
    return {"o": Expected(attention(x["q"][:, None], k, v, key_lengths=np.array(p.key_lengths)))}


def intermediates(p: Parameters, x: Mapping[str, Array]) -> dict[str, Expected]:
    """Scores as the kernels have them, times log2(e); with one warp per head, the sum of the weights as well."""
    group = p.h_q // p.h_kv
    q, k = x["q"].astype(np.float64), np.repeat(x["k"].astype(np.float64), group, axis=1)
    scores = np.einsum("uhd,uhkd->uhk", q, k) * (LOG2_E / np.sqrt(p.d_head))
    found = {"scores": Expected(scores, reduction=p.d_head)}
    if p.kernel == "one_warp":
        weights = np.exp2(scores - np.nanmax(scores, axis=2, keepdims=True, initial=-np.inf))
        found["weights"] = Expected(np.nansum(weights, axis=2), reduction=p.context + p.d_head)
    return found


def host(p: Parameters, machine: Machine) -> ptx.Host:
    """The device."""
    return ptx.Host(p.device, p.arch, machine=machine)


def launch(p: Parameters, x: Mapping[str, Array], *, torch: ptx.Host) -> Run:
    """Each user's caches are separate arrays, found through arrays of pointers."""
    caches = {name: [torch.array(part, f"{name}[{i}]") for i, part in enumerate(x[name])] for name in ("k", "v")}
    pointers = [
        torch.array(np.array([cache.address for cache in caches[name]], np.uint64), f"{name} pointers")
        for name in ("k", "v")
    ]
    lengths = torch.array(np.array(p.key_lengths, np.uint32), "lengths")
    out = torch.empty((p.users, p.h_q, p.d_head), p.dtype, "o")
    return _LAUNCHES[p.kernel](p, torch, [torch.array(x["q"], "q"), *pointers], lengths, out)


def _one_warp(p: Parameters, torch: ptx.Host, given: list[object], lengths: object, out: Any) -> Run:
    way = BatchedIncrementalAttentionKernel(p.context, p.d_head, p.h_q, p.h_kv, p.users)
    return torch.launch(way.build_ptx(), way.grid, way.block, [*given, out, lengths], outputs=[out])


def _way(p: Parameters, splits: int = 1) -> DecodeAttention:
    shared = p.kernel != "multi_warp"
    return DecodeAttention(p.context, p.d_head, p.h_q, p.h_kv, p.users, p.dtype, p.warps, splits, shared, p.unroll)


def _decode(p: Parameters, torch: ptx.Host, given: list[object], lengths: object, out: Any) -> Run:
    way = _way(p)
    return torch.launch(way.kernel(), way.grid, way.block, [*given, out, lengths], outputs=[out])


def _split(p: Parameters, torch: ptx.Host, given: list[object], lengths: object, out: Any) -> Run:
    if p.splits == 1:
        return _decode(p, torch, given, lengths, out)
    way = _way(p, p.splits)
    partial = torch.empty(way.partial_shape, "f32", "partial")
    stats = torch.empty((*way.partial_shape[:3], 2), "f32", "stats")
    first = torch.launch(way.kernel(), way.grid, way.block, [*given, partial, stats, lengths])
    if first.status is not Status.FINISHED:
        return first
    return torch.launch(way.reduce_kernel(), way.reduce_grid, way.block, [partial, stats, out], outputs=[out])


_LAUNCHES: dict[str, Callable[..., Run]] = {
    "one_warp": _one_warp,
    "multi_warp": _decode,
    "shared_kv": _decode,
    "split_kv": _split,
}


def variants(p: Parameters) -> dict[str, Variant]:
    """The kernels that support the panel's type and heads."""
    fits = {"one_warp": p.dtype == "f32" and p.d_head <= MAX_HEAD_DIM}
    many = p.d_head in HEAD_DIMS
    return {name: Variant({"kernel": name}, idea) for name, idea in KERNELS.items() if fits.get(name, many)}


def _panel(kernel: str, dtype: str, d_head: int = 128, **more: object) -> dict[str, object]:
    return {"kernel": kernel, "dtype": dtype, "d_head": d_head, "lengths": (128, 77, 1, 0), **more}


_PANELS = {
    "one_warp": _panel("one_warp", "f32"),
    "multi_warp": _panel("multi_warp", "f16"),
    "shared_kv": _panel("shared_kv", "bf16"),
    "split_kv": _panel("split_kv", "f16"),
    "head_dim_64": _panel("shared_kv", "f16", 64),
    "head_dim_80": _panel("split_kv", "bf16", 80),
    "head_dim_96": _panel("shared_kv", "f32", 96),
    "head_dim_256": _panel("split_kv", "f16", 256),
}


def _size(users: int, context: int, h_q: int, h_kv: int) -> Size:
    settings = {"users": users, "context": context, "h_q": h_q, "h_kv": h_kv, "lengths": ()}
    return Size(dict.fromkeys(_PANELS, settings))


bench = Bench(
    name="batched_incremental_attention",
    summary="decode attention of a batch in PTX: one warp a head, several, shared K/V, split keys",
    parameters=Parameters,
    inputs=inputs,
    golden=golden,
    host=host,
    launch=launch,
    variants=variants,
    intermediates=intermediates,
    panels=_PANELS,
    # 512: measures the emulator's speed; 8k: a batch for a real GPU
    sizes={"512": _size(32, 512, 8, 2), "8k": _size(16, 8192, 32, 8)},
)
