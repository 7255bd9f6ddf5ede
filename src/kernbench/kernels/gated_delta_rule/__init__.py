"""The gated delta rule on Hopper: whole sequences by chunks, and one token a sequence, its state updated in place.

shape = ForwardShape(heads=16, v_heads=32)
plan = ForwardPlan.of(shape, lengths)
first, second = InverseKernel(shape), ForwardKernel(shape)
given = arguments(device, plan, Arrays(q, k, v, g, beta, out, gates, inverses))
device.launch(first.build(), first.grid(len(plan.chunks)), first.threads, given[0], first.shared_bytes)
device.launch(second.build(), second.grid(len(lengths)), second.threads, given[1], second.shared_bytes)
"""

from kernbench.kernels.gated_delta_rule.arguments import Arrays, arguments
from kernbench.kernels.gated_delta_rule.forward import ForwardKernel
from kernbench.kernels.gated_delta_rule.inverse import InverseKernel
from kernbench.kernels.gated_delta_rule.shape import ForwardPlan, ForwardShape
from kernbench.kernels.gated_delta_rule.step import StepKernel, StepShape, step_arguments

__all__ = [
    "Arrays",
    "ForwardKernel",
    "ForwardPlan",
    "ForwardShape",
    "InverseKernel",
    "StepKernel",
    "StepShape",
    "arguments",
    "step_arguments",
]
