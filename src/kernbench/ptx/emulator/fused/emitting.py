"""From a step's function over rows to LLVM values, for the instructions that machine code supports."""

from collections.abc import Mapping
from functools import cache

import numpy as np
from llvmlite import binding as llvm

from kernbench.ptx.emulator.fused.floats import FLOATS
from kernbench.ptx.emulator.fused.integers import (
    INTEGERS,
    Emit,
    Mods,
    Values,
    by_numpy,
    by_table,
    copied,
    packed,
    unpacked,
)
from kernbench.ptx.emulator.fused.values import NotFused
from kernbench.ptx.emulator.lanes.packing import Packs, Unpacks
from kernbench.ptx.emulator.program.steps import Compute, WithTable, copy, cut, sign_extend
from kernbench.ptx.numerics.table import operations_so_far

_MEANINGS: Mapping[str, Emit] = {**INTEGERS, **FLOATS}
# by identity: operations live as long as the process
_KNOWN: dict[int, tuple[str, Mods]] = {}


def emit(function: Compute, given: Values, wanted: list[int]) -> Values:
    """The values that a step's function computes from its sources, one of `wanted` bits for each target.

    Raises `NotFused` for unknown functions.
    """
    found = _results(function, given, wanted)[: len(wanted)]
    if [value.bits for value in found] != wanted:
        raise NotFused("results of other widths than their registers")
    return found


def _results(function: Compute, given: Values, wanted: list[int]) -> Values:
    if isinstance(function, np.ufunc):
        return [by_numpy(function.__name__, given)]
    if function is copy or function is cut:
        return [copied(given[0], wanted[0])]
    if function is sign_extend:
        if given[0].bits == 1:
            raise NotFused("a predicate as a number")
        return [given[0].wide(wanted[0], True)]
    if isinstance(function, WithTable):
        return by_table(function.table, given)
    if isinstance(function, (Packs, Unpacks)):
        return _moved(function, given, wanted)
    return _operation(function, given)


def _moved(function: Packs | Unpacks, given: Values, wanted: list[int]) -> Values:
    if isinstance(function, Packs):
        return packed(function.width, given, wanted[0])
    return unpacked(function.width, given, len(wanted))


def _operation(function: Compute, given: Values) -> Values:
    """An operation of `numerics`."""
    meaning, mods = _known(function)
    if meaning not in _MEANINGS or (meaning == "fma" and not fuses()):
        raise NotFused(meaning)
    if mods.get("type") == "f32x2":
        return _in_halves(meaning, {**mods, "type": "f32"}, given)
    return _MEANINGS[meaning](mods, given)


def _in_halves(meaning: str, mods: Mods, given: Values) -> Values:
    """An f32 instruction on both numbers of each register."""
    low, high = (_MEANINGS[meaning](mods, [unpacked(32, [one], 2)[half] for one in given])[0] for half in (0, 1))
    return packed(32, [low, high], 64)


def _known(function: Compute) -> tuple[str, Mods]:
    """The meaning and modifiers of an operation of `numerics`."""
    if id(function) not in _KNOWN:
        for (meaning, mods), made in operations_so_far().items():
            for one in (made, getattr(made, "single", made)):
                _KNOWN[id(one)] = meaning, dict(mods)
    if id(function) not in _KNOWN:
        raise NotFused("a function without a name")
    return _KNOWN[id(function)]


@cache
def fuses() -> bool:
    """Whether this machine has a fused multiply-add; elsewhere LLVM would call a function that is not linked."""
    features = llvm.get_host_cpu_features()
    return "aarch64" in llvm.get_process_triple() or "arm64" in llvm.get_process_triple() or bool(features.get("fma"))
