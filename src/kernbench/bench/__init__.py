"""What a bench is: parameters, inputs, golden and launch in one file; how benches are found and run."""

from kernbench.bench.definition import Bench, Expected
from kernbench.bench.inputs import ShapesOnly, normal
from kernbench.bench.parameters import describe, param
from kernbench.bench.registry import find, known, load_file
from kernbench.bench.runner import run_bench

__all__ = [
    "Bench",
    "Expected",
    "ShapesOnly",
    "describe",
    "find",
    "known",
    "load_file",
    "normal",
    "param",
    "run_bench",
]
