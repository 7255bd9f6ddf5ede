"""kernbench's attention kernels as torch operators: on Hopper GPUs, and on the emulator for tensors on the CPU.

import kernbench.torch as kt

shape = kt.DecodeShape(heads=64, kv_heads=8, cache=kt.PagedCache(16))
plan = kt.DecodePlan(shape, lengths, device="cuda")
out = kt.decode(q, k_pages, v_pages, plan, table=table)
"""

from kernbench.kernels.caches import DenseCache, PagedCache
from kernbench.kernels.decode import DecodeShape, Scales
from kernbench.kernels.gated_delta_rule import ForwardShape
from kernbench.kernels.prefill import PrefillShape
from kernbench.torch.appending import append, slots_of
from kernbench.torch.decoding import DecodePlan, decode
from kernbench.torch.delta_rule import GatedDeltaPlan, gated_delta_rule, gated_delta_step
from kernbench.torch.merging import merge
from kernbench.torch.prefilling import PrefillPlan, prefill

__all__ = [
    "DecodePlan",
    "DecodeShape",
    "DenseCache",
    "ForwardShape",
    "GatedDeltaPlan",
    "PagedCache",
    "PrefillPlan",
    "PrefillShape",
    "Scales",
    "append",
    "decode",
    "gated_delta_rule",
    "gated_delta_step",
    "merge",
    "prefill",
    "slots_of",
]
