"""The last stage of the chunked gated delta rule in PTX: O = scale (e^G * (q H^T) + lower((q k^T) * Gamma) V')."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kernbench import ptx
from kernbench.bench import Bench, Expected, ShapesOnly, Size, Variant, normal, param
from kernbench.benches.chunk_output.layout import CHUNK, LARGEST, SPAN, VALUES, ChunkOutputKernel, Layout
from kernbench.benches.chunk_output.sm90 import HopperChunkOutput
from kernbench.benches.chunk_output.sm100 import BlackwellChunkOutput
from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError
from kernbench.golden import gated_delta_rule
from kernbench.golden.gated_delta_rule import Chunks
from kernbench.machine import Machine
from kernbench.ptx.devices.host import DEVICES
from kernbench.ptx.emulator.engine.machine import architecture
from kernbench.result.reading import Data
from kernbench.result.run import Run

KERNELS: dict[str, type[ChunkOutputKernel]] = {
    kernel.target: kernel for kernel in (HopperChunkOutput, BlackwellChunkOutput)
}


@dataclass(frozen=True)
class Parameters:
    """Sequences, heads and kernel."""

    kernel: str = param("sm_90a", "which kernel, by the architecture it is for", choices=tuple(KERNELS))
    lengths: tuple[int, ...] = param((128,), "rows of each sequence; they lie one behind the other", low=0)
    heads: int = param(2, "heads of q and k", low=1)
    value_heads: int = param(4, "heads of v; a multiple of heads", low=1)
    key_size: int = param(128, "size of a head of q and k: a multiple of 64", low=SPAN, high=LARGEST)
    value_size: int = param(128, "size of a head of v: a multiple of 64", low=SPAN, high=LARGEST)
    values: str = param("packed", "rows of v as those of q, or padded to whole chunks", choices=VALUES)
    stages: int = param(2, "tiles that are loaded ahead", low=1, high=8)
    flat: bool = param(True, "sm_90a: blocks take tiles of all heads in turn, not of one head each")
    sms: int = param(0, "blocks of the persistent grid; 0: one for each SM", low=0)
    device: str = param("emulator", "where it runs", choices=DEVICES)
    gpu: str = param("h200", "the GPU whose time is predicted")

    def __post_init__(self) -> None:
        _ = self.layout
        if not sum(self.lengths):
            raise BenchError(f"lengths {self.lengths}: at least one sequence has rows")

    @property
    def layout(self) -> Layout:
        """The sizes that the kernel is built for."""
        return Layout(self.heads, self.value_heads, self.key_size, self.value_size, self.values)

    @property
    def way(self) -> ChunkOutputKernel:
        """The kernel."""
        if self.kernel == HopperChunkOutput.target:
            return HopperChunkOutput(self.layout, self.stages, flat=self.flat)
        return KERNELS[self.kernel](self.layout, self.stages)

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks: tiles or chunks side by side, value heads."""
        return self.way.grid(self.sms or architecture(self.kernel).sms)

    @property
    def scale(self) -> float:
        """1 / sqrt(K)."""
        return float(self.key_size**-0.5)

    @property
    def cu_seqlens(self) -> Array:
        """The starts of the sequences, and the end of the last."""
        return np.cumsum([0, *self.lengths])


def inputs(p: Parameters, rng: np.random.Generator | ShapesOnly) -> dict[str, Array]:
    """Results of the earlier stages for normal q, k and v, keys of length one; memory that must not be used is NaN."""
    if isinstance(rng, ShapesOnly):
        raise BenchError("the kernel runs on data, whose values decide where it goes: leave --shapes-only away")
    rows = int(p.cu_seqlens[-1])
    q, k = (_unit(normal(rng, (rows, p.heads, p.key_size), "f32")) for _ in range(2))
    v = normal(rng, (rows, p.value_heads, p.value_size), "f32")
    gates, betas = (_sigmoid(normal(rng, (rows, p.value_heads), "f32") + shift) for shift in (3.0, 0.0))
    made = gated_delta_rule.kernel_inputs(
        q * np.float32(p.key_size**0.5), k, v, np.log(gates), betas, cu_seqlens=p.cu_seqlens, padding=np.nan
    )
    return {
        "q": made.q,
        "k": made.k,
        "v_new": _rows(made.v_new, made.chunks) if p.values == "packed" else made.v_new,
        "h": made.h,
        "g": made.g,
        "cu_seqlens": made.cu_seqlens,
        "chunk_indices": made.chunk_indices,
        "total_chunks": made.total_chunks,
    }


def _unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _rows(padded: Array, chunks: Chunks) -> Array:
    """The rows of whole chunks, without padding."""
    return chunks.unpad(padded[: chunks.total * chunks.size].reshape(chunks.total, chunks.size, *padded.shape[1:]))


def golden(p: Parameters, x: Mapping[str, Array]) -> dict[str, Expected]:
    """The last stage in float64; P is rounded to bf16 in the kernel."""
    chunks = Chunks(tuple(int(start) for start in p.cu_seqlens), CHUNK)
    v = _rows(x["v_new"], chunks) if p.values == "padded" else x["v_new"]
    states = x["h"].reshape(-1, p.value_heads, p.value_size, p.key_size)[: chunks.total]
    reference = gated_delta_rule.chunk_output(x["q"], x["k"], v, states, x["g"], cu_seqlens=p.cu_seqlens, scale=p.scale)
    return {"o": Expected(reference, compute_dtype="bf16")}


def intermediates(p: Parameters, x: Mapping[str, Array]) -> dict[str, Expected]:
    """q k^T and P of each row with those of its chunk, and e^G (q H^T) if the kernel has it by itself."""
    chunks = Chunks(tuple(int(start) for start in p.cu_seqlens), CHUNK)
    q, k = (np.repeat(x[name].astype(np.float64), p.value_heads // p.heads, axis=1) for name in ("q", "k"))
    gates, states = x["g"].astype(np.float64), x["h"].astype(np.float64)
    states = states.reshape(-1, p.value_heads, p.value_size, p.key_size)
    scores, weights = (np.zeros((len(q), p.value_heads, CHUNK)) for _ in range(2))
    carried = np.zeros((len(q), p.value_heads, p.value_size))
    for chunk in range(chunks.total):
        rows = chunks.rows(chunk)
        part = np.einsum("ihk,jhk->ihj", q[rows], k[rows])
        apart = (gates[rows][:, None] - gates[rows][None]).swapaxes(1, 2)
        lower = np.tri(len(part), dtype=bool)[:, None]
        scores[rows, :, : len(part)] = part
        weights[rows, :, : len(part)] = np.where(lower, part * np.exp(np.where(lower, apart, 0.0)), 0.0)
        carried[rows] = np.exp(gates[rows])[:, :, None] * np.einsum("ihk,hvk->ihv", q[rows], states[chunk])
    found = {"scores": Expected(scores, reduction=p.key_size), "p": Expected(weights, reduction=p.key_size)}
    return found | ({"carried": Expected(carried, reduction=p.key_size)} if p.kernel == "sm_90a" else {})


def host(p: Parameters, machine: Machine) -> ptx.Host:
    """The device."""
    return ptx.Host(p.device, p.kernel, machine=machine)


def launch(p: Parameters, x: Mapping[str, Array], *, torch: ptx.Host) -> Run:
    """One launch; the output is uninitialised memory."""
    way = p.way
    out = torch.empty((len(x["q"]), p.value_heads, p.value_size), "bf16", "o")
    args = p.layout.arguments(torch, x, out, p.scale)
    return torch.launch(way.build(), p.grid, way.threads, args, way.shared_bytes, outputs=[out])


def variants(p: Parameters) -> dict[str, Variant]:
    """The kernels, each on its own architecture."""
    return {name: Variant({"kernel": name}, kernel.idea) for name, kernel in KERNELS.items()}


_LENGTHS = (200, 0, 64, 1, 130)
_JOBS: dict[str, Data] = {
    "whole_chunks": {"lengths": (512,), "sms": 4},
    "ragged": {"lengths": _LENGTHS},
    "padded": {"lengths": _LENGTHS, "values": "padded"},
    "keys_64": {"lengths": _LENGTHS, "key_size": 64},
    "values_64": {"lengths": _LENGTHS, "value_size": 64},
}
# a GPU of each architecture
_GPUS = {"sm_90a": "h200", "sm_100a": "b200"}
_PANELS = {
    f"{kernel}_{job}": {"kernel": kernel, "gpu": _GPUS[kernel], **settings}
    for kernel in KERNELS
    for job, settings in _JOBS.items()
}


def _long(lengths: tuple[int, ...]) -> dict[str, object]:
    """4096 rows in equally many sequences."""
    rows = (4096,) if len(lengths) == 1 else (1000, 0, 2048, 1, 1047)
    return {"lengths": rows, "heads": 16, "value_heads": 32, "sms": 0}


bench = Bench(
    name="gated_delta_rule_chunk_output",
    summary="chunk output of the gated delta rule in PTX: bulk copies, tensor cores, warps with roles",
    parameters=Parameters,
    inputs=inputs,
    golden=golden,
    host=host,
    launch=launch,
    variants=variants,
    intermediates=intermediates,
    panels=_PANELS,
    # 4096: measures the emulator's speed
    sizes={"4096": Size({panel: _long(settings["lengths"]) for panel, settings in _PANELS.items()})},
)
