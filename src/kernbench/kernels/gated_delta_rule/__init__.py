"""The gated delta rule on Hopper: whole sequences by chunks, and one token per sequence, its state updated in place.

shape = ForwardShape(heads=16, v_heads=32)
plan = ForwardPlan.of(shape, lengths, sms=132)
forward = ForwardPass(device, plan, {"f32": np.float32, "bf16": ml_dtypes.bfloat16})
for launch, given in forward.arguments({"q": q, "k": k, "v": v, "g": g, "beta": beta, "out": out}):
    kernel = launch.kernel
    device.launch(kernel.build(), launch.grid, kernel.threads, given, kernel.shared_bytes)
"""

from kernbench.kernels.gated_delta_rule.arguments import ForwardPass, Launch
from kernbench.kernels.gated_delta_rule.chain import ChainKernel
from kernbench.kernels.gated_delta_rule.forward import ForwardKernel
from kernbench.kernels.gated_delta_rule.inverse import InverseKernel
from kernbench.kernels.gated_delta_rule.shape import ForwardPlan, ForwardShape
from kernbench.kernels.gated_delta_rule.step import StepKernel, StepShape, step_arguments

__all__ = [
    "ChainKernel",
    "ForwardKernel",
    "ForwardPass",
    "ForwardPlan",
    "ForwardShape",
    "InverseKernel",
    "Launch",
    "StepKernel",
    "StepShape",
    "step_arguments",
]
