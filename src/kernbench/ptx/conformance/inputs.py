"""Test inputs: each type's edge cases in all combinations, then random bits, then random numbers of usual size."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.ptx.conformance.cases import Case, Value
from kernbench.ptx.text.types import TYPES, ScalarType

Bits = Array

# exponent bits, fraction bits
FORMATS = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "tf32": (8, 23),
    "f32": (8, 23),
    "f64": (11, 52),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}
WARP = 32


def inputs_for(case: Case, count: int = 4096, seed: int = 0) -> list[Bits]:
    """One array of bits for each input, [registers, lanes]: `count` lanes, or all 2^16 values of a single 16-bit input.

    Matrix instructions get numbers around one, half of them with a wide range of exponents; others edge cases first.
    """
    random = np.random.default_rng(seed)
    if any(value.registers > 1 for value in (*case.inputs, case.output)):
        lanes = -(-count // WARP) * WARP
        return [_ordinary(value, lanes, random) for value in case.inputs]
    types = [TYPES[value.type] for value in case.inputs]
    if len(types) == 1 and types[0].bits == 16:
        return [np.arange(1 << 16, dtype=np.uint16)[None]]
    return [row[None] for row in _mixed(types, count, random)]


def _mixed(types: Sequence[ScalarType], count: int, random: np.random.Generator) -> list[Bits]:
    """Edge cases in all combinations, at most half of the lanes; the rest half random, half around one."""
    edges = _combinations([edge_bits(t) for t in types], count // 2, random)
    rest = count - len(edges[0])
    return [
        np.concatenate([edge, _random_bits(t, rest - rest // 2, random), _ordinary_bits(t, rest // 2, random, 3.0)])
        for t, edge in zip(types, edges, strict=True)
    ]


def _combinations(edges: list[Bits], most: int, random: np.random.Generator) -> list[Bits]:
    total = int(np.prod([len(e) for e in edges]))
    if total <= most:
        columns = list(zip(*product(*edges), strict=True))
        return [np.array(column, e.dtype) for column, e in zip(columns, edges, strict=True)]
    return [random.choice(e, most) for e in edges]


def edge_bits(scalar: ScalarType) -> Bits:
    """Bit patterns of edge cases: limits, signs, powers of two, and for floats every kind of special value."""
    lane = TYPES[scalar.lane] if scalar.lane else scalar
    found = _float_edges(*FORMATS[lane.name]) if lane.name in FORMATS else _integer_edges(lane.bits)
    patterns = np.array(sorted(found), np.uint64)
    return _packed(scalar, [np.roll(patterns, 7 * i) for i in range(scalar.lanes)])


def _integer_edges(bits: int) -> set[int]:
    top = 1 << (bits - 1)
    mask = (1 << bits) - 1
    small = {*range(10), 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256}
    large = {
        top - 1,
        top,
        top + 1,
        mask,
        mask - 1,
        mask - 31,
        0x0123456789ABCDEF,
        0x5555555555555555,
        0xAAAAAAAAAAAAAAAA,
    }
    return {n & mask for n in small | large}


def _float_edges(exponent: int, fraction: int) -> set[int]:
    """Zero, subnormals, around one, integers near the integer limits, largest, infinity and NaNs, of both signs."""
    one = ((1 << (exponent - 1)) - 1) << fraction
    infinity = ((1 << exponent) - 1) << fraction
    normal, quiet = 1 << fraction, 1 << max(0, fraction - 1)
    magnitudes = {0, 1, 2, normal >> 1, normal - 1, normal, normal + 1, infinity - 1, infinity, infinity + 1}
    magnitudes |= {infinity | quiet, infinity | (normal - 1), infinity | quiet | 1, infinity | (quiet >> 1)}
    magnitudes |= {
        one - 1,
        one,
        one + 1,
        one | quiet,
        one + normal,
        one + normal | quiet,
        one - normal,
        one - normal + 1,
    }
    for power in (2, 7, 8, 11, 15, 16, 23, 24, 31, 32, 63, 64):
        scaled = one + (power << fraction)
        if scaled < infinity:
            magnitudes |= {scaled, scaled - 1, scaled + 1}
    sign = 1 << (exponent + fraction)
    return {m & (sign - 1) for m in magnitudes} | {m & (sign - 1) | sign for m in magnitudes}


def _random_bits(scalar: ScalarType, count: int, random: np.random.Generator) -> Bits:
    high = (1 << scalar.bits) - 1
    return random.integers(0, high, count, dtype=np.uint64, endpoint=True).astype(scalar.storage)


def _ordinary(value: Value, lanes: int, random: np.random.Generator) -> Bits:
    """Registers of numbers around one; in the second half of the lanes with a wide range of exponents."""
    scalar = TYPES[value.type]
    halves = [_ordinary_bits(scalar, value.registers * lanes // 2, random, spread) for spread in (1.0, 8.0)]
    return np.concatenate([half.reshape(value.registers, -1) for half in halves], axis=1)


def _ordinary_bits(scalar: ScalarType, count: int, random: np.random.Generator, spread: float) -> Bits:
    """Numbers around one, with a binary exponent of standard deviation `spread`; integers are random bits."""
    lane = TYPES[scalar.lane] if scalar.lane else scalar
    if lane.name not in FORMATS:
        return _random_bits(scalar, count, random)
    return _packed(scalar, [_ordinary_floats(lane.name, count, random, spread) for _ in range(scalar.lanes)])


def _ordinary_floats(name: str, count: int, random: np.random.Generator, spread: float) -> NDArray[np.uint64]:
    exponent, fraction = FORMATS[name]
    bias = (1 << (exponent - 1)) - 1
    exponents = np.clip(np.rint(random.normal(0, spread, count)) + bias, 1, 2 * bias - 1).astype(np.uint64)
    fractions = random.integers(0, (1 << fraction) - 1, count, dtype=np.uint64, endpoint=True)
    signs = random.integers(0, 1, count, dtype=np.uint64, endpoint=True)
    bits: NDArray[np.uint64] = (
        (signs << np.uint64(exponent + fraction)) | (exponents << np.uint64(fraction)) | fractions
    )
    return bits


def _packed(scalar: ScalarType, lanes: Sequence[NDArray[np.uint64]]) -> Bits:
    """Elements packed into registers, the first in the low bits."""
    width = scalar.bits // scalar.lanes
    joined = np.zeros_like(lanes[0])
    for i, lane in enumerate(lanes):
        joined |= lane << np.uint64(i * width)
    return joined.astype(scalar.storage)
