"""The golden: slow, obvious float64 references for attention and the gated delta rule, and the verdict on a kernel."""

from kernbench.golden import gated_delta_rule
from kernbench.golden.attention import attention
from kernbench.golden.basis.reference import Reference
from kernbench.golden.compare import compare
from kernbench.golden.merge import Partial, finish, merge, partial

__all__ = ["Partial", "Reference", "attention", "compare", "finish", "gated_delta_rule", "merge", "partial"]
