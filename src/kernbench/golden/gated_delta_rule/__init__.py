"""The gated delta rule in float64: token by token, by chunks with every stage, and the references of kernels.

Queries and keys [T, H, K], values [T, Hv, V], natural logarithms of the gates and betas [T, Hv], states [N, Hv, V, K].
Value head j uses query and key head j // (Hv / H). Sequences are concatenated; `cu_seqlens` has their
starts. Inputs are used exactly: pass the numbers the kernel reads, already rounded to its type.

- `recurrent`: the rule itself, one token after the other
- `chunked`: the same by chunks, with all intermediates of kernels, rounded where kernels round them (`Rounding`)
- `references`: output and final state with the sizes of a chunked kernel's errors, for `compare`
- `chunk_output`: the last stage alone, for `compare`; `kernel_inputs` prepares the inputs of its kernel
"""

from kernbench.golden.gated_delta_rule.chunked import Stages, chunked
from kernbench.golden.gated_delta_rule.chunks import Chunks, make_chunks
from kernbench.golden.gated_delta_rule.kernel_inputs import KernelInputs, kernel_inputs
from kernbench.golden.gated_delta_rule.output import chunk_output
from kernbench.golden.gated_delta_rule.recurrence import RuleResult, recurrent
from kernbench.golden.gated_delta_rule.rounding import BF16, EXACT, Rounding
from kernbench.golden.gated_delta_rule.rounding_errors import RuleReferences, references

__all__ = [
    "BF16",
    "EXACT",
    "Chunks",
    "KernelInputs",
    "Rounding",
    "RuleReferences",
    "RuleResult",
    "Stages",
    "chunk_output",
    "chunked",
    "kernel_inputs",
    "make_chunks",
    "recurrent",
    "references",
]
