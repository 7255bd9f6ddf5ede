"""What a bench is: parameters, inputs, golden and launch in one file; how benches are found and run."""

from kernbench.bench.definition import Bench, Expected, Repeats, Size, Variant
from kernbench.bench.inputs import ShapesOnly, normal
from kernbench.bench.parameters import describe, param
from kernbench.bench.registry import find, known, load_file
from kernbench.bench.runner import parameters_of, run_bench

__all__ = [
    "Bench",
    "Expected",
    "Repeats",
    "ShapesOnly",
    "Size",
    "Variant",
    "describe",
    "find",
    "known",
    "load_file",
    "normal",
    "param",
    "parameters_of",
    "run_bench",
]
