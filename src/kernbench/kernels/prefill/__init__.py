"""Attention over whole prompts for Hopper: causal or full, grouped heads, sequences of any lengths.

shape = PrefillShape(heads=64, kv_heads=8, head_size=128, causal=True)
plan = PrefillPlan.of(shape, query_lengths, key_lengths, sms=132)
kernel = PrefillKernel(shape)
given = arguments(device, plan, q, k, v, out)
device.launch(kernel.build(), plan.ctas, kernel.threads, given, kernel.shared_bytes)
"""

from kernbench.kernels.prefill.arguments import arguments
from kernbench.kernels.prefill.plan import PrefillPlan
from kernbench.kernels.prefill.shape import PrefillShape
from kernbench.kernels.prefill.sm90 import PrefillKernel

__all__ = ["PrefillKernel", "PrefillPlan", "PrefillShape", "arguments"]
