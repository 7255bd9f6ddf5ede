"""The pairs: a kernel with a fault, and the same work without it, each with its launch."""

from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

TEXT = Path(__file__).parent / "faults.ptx"
BF16 = np.dtype(ml_dtypes.bfloat16)
BYTE = np.dtype(np.uint8)
MANY = 1 << 20
# what every number of a table is that a kernel walks through
SAME = 7


@dataclass(frozen=True)
class Input:
    """An array that a kernel reads: random numbers, or all of them the same."""

    shape: tuple[int, ...]
    dtype: DTypeLike = np.float32
    same: bool = False


@dataclass(frozen=True)
class Output:
    """An array that a kernel writes, or adds to zeros."""

    shape: tuple[int, ...]
    dtype: DTypeLike = np.float32


Argument = Input | Output | int


@dataclass(frozen=True)
class Case:
    """A launch of a kernel of the file."""

    entry: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Argument, ...]
    shared: int = 0


@dataclass(frozen=True)
class Pair:
    """A fault, the kind of advice that names it, and both kernels.

    `alike`: they write the same; `needs_code`: the fault is in the machine code only.
    """

    fault: str
    kind: str
    faulty: Case
    mended: Case
    alike: bool = True
    needs_code: bool = False


def _two(before: tuple[str, tuple[int, ...]], after: tuple[str, tuple[int, ...]], block: tuple[int, ...],
         *given: Argument, shared: int = 0) -> tuple[Case, Case]:  # fmt: skip
    """Two launches with the same arguments."""
    return Case(*before, block, given, shared), Case(*after, block, given, shared)


def _transpose(n: int) -> tuple[Case, Case]:
    side = n // 32
    given = Input((n, n)), Output((n, n)), n
    return _two(("transpose_direct", (side, side)), ("transpose_tile", (side, side)), (32, 8), *given)


def _rows(n: int) -> tuple[Case, Case]:
    faulty, mended = _two(
        ("rows_by_thread", (n // 128,)), ("columns_by_thread", (n // 128,)), (128,), Input((64 * n,)), Output((n,)), n
    )
    return faulty, mended


def _fields(entry: str, times: int, n: int = MANY) -> tuple[Case, Case]:
    return (
        Case(entry, (n // 256,), (256,), (Input((times * n,)), Output((n,)))),
        Case("each", (n // 256,), (256,), (Input((n,)), Output((n,)))),
    )


def _pitch(ways: int) -> tuple[Case, Case]:
    names = (f"pitch_{ways}", (264,)), (f"pitch_{ways + 1}", (264,))
    return _two(*names, (256,), Input((33 * 33,)), Output((264 * 256,)))


def _walk() -> tuple[Case, Case]:
    given = Input((65536,), np.int32, same=True), Output((1584 * 128,), np.int32), SAME
    return _two(("walk_96", (1584,)), ("walk_24", (1584,)), (128,), *given)


def _smooth() -> tuple[Case, Case]:
    given = Input((MANY,)), Output((MANY,)), MANY
    return (
        Case("smooth", (2112,), (128,), given, 72 * 1024),
        Case("smooth", (2112,), (128,), given, 12 * 1024),
    )


def _grid(few: int, many: int) -> tuple[Case, Case]:
    given = Input((MANY // 2,)), Output((MANY // 2,)), MANY // 2
    return _two(("scaled", (few,)), ("scaled", (many,)), (256,), *given)


def _tail() -> tuple[Case, Case]:
    # 297 pieces of 32 turns each, or 264 of 36; an SM holds two
    return (
        Case("iterated", (297,), (1024,), (Input((1024,)), Output((297 * 1024,)), 256)),
        Case("iterated", (264,), (1024,), (Input((1024,)), Output((264 * 1024,)), 288)),
    )


def _moments() -> tuple[Case, Case]:
    given = Input((MANY,)), Output((264 * 512,)), MANY
    return _two(("moments_few", (264,)), ("moments_enough", (264,)), (512,), *given)


def _counts() -> tuple[Case, Case]:
    n = 1056 * 128
    given = Input((8 * n,), np.uint32), Output((16 * n,), np.int32), n
    return _two(("counts_local", (1056,)), ("counts_shared", (1056,)), (128,), *given)


def _sum() -> tuple[Case, Case]:
    n, threads = 16 * 2112 * 128, 2112 * 128
    given = Input((n,)), Output((threads,)), n
    return _two(("sum_by_one", (2112,)), ("sum_by_four", (2112,)), (128,), *given)


def _bytes() -> tuple[Case, Case]:
    n = 4 * MANY
    given = Input((n,), BYTE), Output((n,), BYTE)
    return (
        Case("bytes_each", (n // 256,), (256,), given),
        Case("bytes_sixteen", (n // 4096,), (256,), given),
    )


def _add() -> tuple[Case, Case]:
    n = MANY // 2
    given = Input((n,)), Output((1,)), n
    return _two(("add_by_each", (264,)), ("add_by_block", (264,)), (256,), *given)


def _bins() -> tuple[Case, Case]:
    n = MANY // 2
    given = Input((n,), BYTE), Output((64,), np.int32), n
    return _two(("counted_in_memory", (264,)), ("counted_in_block", (264,)), (256,), *given)


def _stages(few: int, grid: int = 264) -> tuple[Case, Case]:
    given = Input((grid * 32 * 1024,)), Output((grid * 1024,)), 32
    return _two((f"staged_{few}", (grid,)), (f"staged_{few + 1}", (grid,)), (1024,), *given)


def _product() -> tuple[Case, Case]:
    m, n, depth = 1536, 2048, 64
    given = Input((m, depth), BF16), Input((depth, n), BF16), Output((m, n)), n, depth
    return _two(("product_by_fma", (32, 24)), ("product_by_mma", (32, 24)), (256,), *given)


def _series() -> tuple[Case, Case]:
    n = MANY // 2
    return _two(("series_double", (n // 256,)), ("series_single", (n // 256,)), (256,), Input((n,)), Output((n,)))


def _fences() -> tuple[Case, Case]:
    n = 1056 * 8
    return _two(("fenced", (1056,)), ("unfenced", (1056,)), (256,), Output((64 * n,)), n)


def _small() -> tuple[Case, Case]:
    given = Input((MANY,)), Output((MANY,))
    return Case("each", (MANY // 32,), (32,), given), Case("each", (MANY // 256,), (256,), given)


PAIRS = (
    Pair("uncoalesced stores (a transpose)", "uncoalesced access", *_transpose(2048)),
    Pair("uncoalesced loads (a row for each thread)", "uncoalesced access", *_rows(1056 * 32), alike=False),
    Pair("every fourth number", "uncoalesced access", *_fields("every_fourth", 4, 2 * MANY), alike=False),
    Pair("one field of a structure of eight", "uncoalesced access", *_fields("one_field", 8), alike=False),
    Pair("bank conflicts of 2 ways", "bank conflict", *_pitch(2), alike=False),
    Pair("bank conflicts of 8 ways", "bank conflict", *_pitch(8), alike=False),
    Pair("bank conflicts of 32 ways", "bank conflict", *_pitch(32), alike=False),
    Pair("low occupancy by registers (unrolled too far)", "low occupancy", *_walk(), alike=False),
    Pair("low occupancy by shared memory", "low occupancy", *_smooth()),
    Pair("a grid too small", "small grid", *_grid(33, 1056)),
    Pair("a tail wave", "tail wave", *_tail(), alike=False),
    Pair("spills (registers limited)", "spills", *_moments(), needs_code=True),
    Pair("an array of a thread, with an index known at run time", "local memory", *_counts()),
    Pair("exposed loads", "exposed wait", *_sum(), alike=False),
    Pair("missing vectorisation", "narrow access", *_bytes()),
    Pair("atomics on one address", "atomics", *_add(), alike=False),
    Pair("atomics on few addresses", "atomics", *_bins()),
    Pair("no stage ahead", "too few stages", *_stages(1)),
    Pair("one stage too few", "too few stages", *_stages(2)),
    Pair("bf16 through CUDA cores", "products by fma", *_product(), alike=False),
    Pair("double precision by accident", "double precision", *_series(), alike=False),
    Pair("a fence for each store", "fences", *_fences()),
    Pair("blocks too small", "small blocks", *_small()),
)
