"""Benches: parameters, inputs, golden and launch in one file; finding and running them."""

from kernbench.bench.definition.bench import Bench, Expected, Repeats, Size, Variant
from kernbench.bench.definition.inputs import ShapesOnly, normal
from kernbench.bench.definition.parameters import describe, param
from kernbench.bench.discovery.folders import default_cases, folder_bench, platform_chip
from kernbench.bench.discovery.registry import find, known, load_file
from kernbench.bench.running.runner import limit_of, parameters_of, run_bench, variants_of

__all__ = [
    "Bench",
    "Expected",
    "Repeats",
    "ShapesOnly",
    "Size",
    "Variant",
    "default_cases",
    "describe",
    "find",
    "folder_bench",
    "known",
    "limit_of",
    "load_file",
    "normal",
    "param",
    "parameters_of",
    "platform_chip",
    "run_bench",
    "variants_of",
]
