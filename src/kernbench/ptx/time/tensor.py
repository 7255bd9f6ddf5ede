"""The time tcgen05 instructions take of the tensor core and of tensor memory, from their recorded events."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.machine import Gpu
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.time.costs import needed

Floats = NDArray[np.float64]
# for every kind, an instruction multiplies 32 bytes of each row of A with 32 of each column of B: 16 elements of f16
_DEPTH = 16
_WARP = 32
# 32-bit registers of a lane for each repeat of a shape of tcgen05.ld and .st
_REGISTERS = {"16x64b": 1, "16x128b": 2, "16x256b": 4, "32x32b": 1, "16x32bx2": 1}
_ACCESS = re.compile(r"\.(\d+x\d+bx?2?)\.x(\d+)")
_COPY = re.compile(r"\.(\d+)x(\d+)b")


@dataclass(frozen=True)
class TensorCosts:
    """By event: cycles of the tensor core or the path to tensor memory, cycles of shared memory, and SMs involved."""

    work: Floats
    passes: Floats
    sms: Floats


def tensor_costs(recording: LaunchRecording, gpu: Gpu) -> TensorCosts:
    """One row per event; zeros for events of other instructions."""
    events, kind = recording.events, recording.events.kind
    count = len(events)
    work, passes, sms = np.zeros(count), np.zeros(count), np.ones(count)
    if not np.isin(kind, [int(one) for one in _KINDS]).any():
        return TensorCosts(work, passes, sms)
    texts = recording.instructions.opcode
    pair = np.array(["cta_group::2" in text for text in texts] or [False])[events.instruction]
    copies = kind == int(Kind.TENSOR_COPY)
    accessed = np.array([accessed_bytes(text) for text in texts] or [0])[events.instruction]
    nbytes = np.where(copies, np.array([copied_bytes(text) for text in texts] or [0])[events.instruction], accessed)
    sms[pair] = 2.0
    shared = float(gpu.shared.bytes_per_cycle)
    for one, rate in _KINDS.items():
        here = kind == int(one)
        if here.any():
            work[here] = nbytes[here] / needed(gpu, f"tensor.{rate}", _NAMES[one])
    passes[copies] = nbytes[copies] / shared
    products = kind == int(Kind.TENSOR_MMA)
    work[products] = flops(events.object[products]) / sms[products] / float(gpu.tensor.tcgen05)
    passes[products] = events.bytes[products] / shared
    work[kind == int(Kind.TENSOR_SHIFT)] = float(gpu.tensor.tcgen05_chain)
    return TensorCosts(work, passes, sms)


# kinds of events, and the rate in the GPU's file
_KINDS = {
    Kind.TENSOR_MMA: "tcgen05",
    Kind.TENSOR_COPY: "tcgen05_copy",
    Kind.TENSOR_LOAD: "memory_load",
    Kind.TENSOR_STORE: "memory_store",
}
_NAMES = {
    Kind.TENSOR_MMA: "tcgen05.mma",
    Kind.TENSOR_COPY: "tcgen05.cp",
    Kind.TENSOR_LOAD: "tcgen05.ld",
    Kind.TENSOR_STORE: "tcgen05.st",
}


def flops(shapes: NDArray[np.int32]) -> Floats:
    """Operations of products with shapes M << 16 | N, as if of f16: narrower kinds take no longer."""
    m, n = shapes >> 16, shapes & 0xFFFF
    return 2.0 * m * n * _DEPTH


def accessed_bytes(text: str) -> int:
    """Bytes that a warp's access with this shape and repeat moves; 0 if the opcode names none."""
    found = _ACCESS.search(text)
    return 4 * _WARP * _REGISTERS.get(found[1], 1) * int(found[2]) if found else 0


def copied_bytes(text: str) -> int:
    """Bytes of a copy from shared to tensor memory with this shape; 0 if the opcode names none."""
    found = _COPY.search(text)
    return int(found[1]) * int(found[2]) // 8 if found else 0
