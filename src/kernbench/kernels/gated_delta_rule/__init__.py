"""The gated delta rule on GPUs: one token a sequence, its state updated in place.

from kernbench.kernels.gated_delta_rule import StepKernel, StepShape, step_arguments
"""

from kernbench.kernels.gated_delta_rule.step import StepKernel, StepShape, step_arguments

__all__ = ["StepKernel", "StepShape", "step_arguments"]
