"""The golden: slow, obvious float64 references for attention, and the verdict on what a kernel computed."""

from kernbench.golden.attention import attention
from kernbench.golden.compare import compare
from kernbench.golden.merge import Partial, finish, merge, partial
from kernbench.golden.reference import Reference

__all__ = ["Partial", "Reference", "attention", "compare", "finish", "merge", "partial"]
