"""Two devices compared instruction by instruction: cases, edge-case inputs, and distances between results."""

from kernbench.ptx.conformance.cases import CASES, Case, expand
from kernbench.ptx.conformance.compare import Agreement, compare
from kernbench.ptx.conformance.inputs import inputs_for
from kernbench.ptx.conformance.kernel import run_case, source

__all__ = ["CASES", "Agreement", "Case", "compare", "expand", "inputs_for", "run_case", "source"]
