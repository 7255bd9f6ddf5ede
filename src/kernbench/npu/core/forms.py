"""Checks that the operands of an operation fit together: one check for each form, run once for each set of tiles."""

from collections.abc import Callable

from kernbench.common.dtypes import DTYPES
from kernbench.common.errors import KernelError
from kernbench.npu.core.tiles import Tile
from kernbench.npu.isa.units import L0A, L0B, L0C, L1, MOVES, UB, V

__kernbench_internal__ = True
Check = Callable[..., None]
_CUBE_TYPES = {("f16", "f16"), ("bf16", "bf16"), ("f32", "f32"), ("i8", "i8"), ("f8e4m3", "f8e4m3")}


def _given(tiles: tuple[Tile, ...]) -> str:
    return ", ".join(t.describe() for t in tiles)


def _need(holds: bool, name: str, rule: str, tiles: tuple[Tile, ...], kind: str = "shape") -> None:
    if not holds:
        raise KernelError(kind, f"{name}: {rule}; got {_given(tiles)}", "operands are given as (destination, sources)")


def _one_type(name: str, *tiles: Tile) -> None:
    _need(len({t.dtype for t in tiles}) == 1, name, "all tiles must have one type (convert with tcvt)", tiles, "dtype")


def in_space(name: str, space: str, *tiles: Tile) -> None:
    """All tiles must lie in one memory."""
    _need(all(t.space == space for t in tiles), name, f"its tiles must lie in {space}", tiles, "misuse")


def _same(name: str, dst: Tile, *sources: Tile) -> None:
    _need(all(s.valid == dst.valid for s in sources), name, "valid parts must be equal", (dst, *sources))
    _one_type(name, dst, *sources)


def _integers(name: str, dst: Tile, *sources: Tile) -> None:
    _same(name, dst, *sources)
    _need(DTYPES[dst.dtype].kind != "float", name, "its tiles hold whole numbers", (dst, *sources), "dtype")


def _row_reduced(name: str, dst: Tile, a: Tile) -> None:
    _row_reduce(name, dst, a)
    _need(a.valid[1] > 0 or not a.valid[0], name, "a row of no elements has no result", (dst, a))


def _col_reduced(name: str, dst: Tile, a: Tile) -> None:
    _col_reduce(name, dst, a)
    _need(a.valid[0] > 0 or not a.valid[1], name, "a column of no elements has no result", (dst, a))


def _row_reduce(name: str, dst: Tile, a: Tile) -> None:
    _need(dst.valid == (a.valid[0], 1), name, "dst must be a column vector with a row for each of a", (dst, a))
    _one_type(name, dst, a)


def _col_reduce(name: str, dst: Tile, a: Tile) -> None:
    _need(dst.valid == (1, a.valid[1]), name, "dst must be a row vector with a column for each of a", (dst, a))
    _one_type(name, dst, a)


def _row_expand(name: str, dst: Tile, a: Tile) -> None:
    _row_reduce(name, a, dst)


def _col_expand(name: str, dst: Tile, a: Tile) -> None:
    _col_reduce(name, a, dst)


def _row_pair(name: str, dst: Tile, a: Tile, vector: Tile) -> None:
    _same(name, dst, a)
    _row_reduce(name, vector, a)


def _col_pair(name: str, dst: Tile, a: Tile, vector: Tile) -> None:
    _same(name, dst, a)
    _col_reduce(name, vector, a)


def _convert(name: str, dst: Tile, a: Tile) -> None:
    _need(dst.valid == a.valid, name, "valid parts must be equal", (dst, a))


def _compare(name: str, dst: Tile, a: Tile, b: Tile | None = None) -> None:
    sources = (a,) if b is None else (a, b)
    _same(name, *sources)
    _need(
        dst.valid == a.valid and dst.dtype in ("i8", "i1"),
        name,
        "dst must be an i8 mask of the same valid part",
        (dst, a),
    )


def _select(name: str, dst: Tile, mask: Tile, a: Tile, b: Tile) -> None:
    _same(name, dst, a, b)
    _need(mask.valid == dst.valid and mask.dtype in ("i8", "i1"), name, "the mask must be i8 and fit", (dst, mask))


def _transpose(name: str, dst: Tile, a: Tile) -> None:
    _need(dst.valid == a.valid[::-1], name, "the valid part of dst must be that of a, turned", (dst, a))
    _one_type(name, dst, a)


def _gather(name: str, dst: Tile, a: Tile, indices: Tile) -> None:
    fits = dst.valid == indices.valid and dst.valid[0] == a.valid[0] and indices.dtype == "i32"
    _need(fits, name, "i32 indices, one for each element of dst, rows as a has them", (dst, a, indices))
    _one_type(name, dst, a)


def _sort(name: str, dst: Tile, a: Tile, indices: Tile) -> None:
    _same(name, dst, a)
    _need(indices.valid == dst.valid and indices.dtype == "i32", name, "i32 indices of the same shape", (dst, indices))


def _fill(name: str, dst: Tile) -> None:
    """A number fits every tile."""


def _pad(name: str, dst: Tile, a: Tile) -> None:
    _need(dst.shape[0] >= a.valid[0] and dst.shape[1] >= a.valid[1], name, "dst must be large enough", (dst, a))
    _one_type(name, dst, a)


def _matmul(name: str, dst: Tile, a: Tile, b: Tile, bias: Tile | None = None) -> None:
    spaces = (dst.space, a.space, b.space)
    _need(spaces == (L0C, L0A, L0B), name, "dst must lie in L0C, a in L0A and b in L0B", (dst, a, b), "misuse")
    fits = a.valid[1] == b.valid[0] and dst.valid == (a.valid[0], b.valid[1])
    _need(fits, name, "[m, k] @ [k, n] gives [m, n]", (dst, a, b))
    wide = "i32" if a.dtype == "i8" else "f32"
    known = (a.dtype, b.dtype) in _CUBE_TYPES and dst.dtype == wide
    _need(known, name, "both operands of one type the cube knows, the result f32 (i32 for i8)", (dst, a, b), "dtype")
    if bias is not None:
        _need(
            bias.valid == (1, dst.valid[1]) and bias.dtype == wide, name, "bias is a row vector like dst", (dst, bias)
        )
        in_space(name, L1, bias)


def _move(name: str, dst: Tile, a: Tile) -> None:
    move_pipe(name, dst, a)
    _need(dst.valid == a.valid, name, "valid parts must be equal", (dst, a))
    if a.space != L0C:
        _one_type(name, dst, a)


def move_pipe(name: str, dst: Tile, a: Tile) -> str:
    """The pipe that moves from one memory to another."""
    if dst.space == a.space == UB:
        return V
    found = MOVES.get((a.space, dst.space))
    ways = ", ".join(f"{f} to {t}" for f, t in MOVES if "GM" not in (f, t))
    _need(
        found is not None, name, f"there is no way from {a.space} to {dst.space}; there are {ways}", (dst, a), "misuse"
    )
    assert found is not None
    return found[0]


# form -> how many tiles are read, whether a further argument follows, the check
FORMS: dict[str, tuple[int, bool, Check]] = {
    "same1": (1, False, _same),
    "same2": (2, False, _same),
    "scalar": (1, True, _same),
    "update": (1, True, _same),
    "integers1": (1, False, _integers),
    "integers2": (2, False, _integers),
    "row_reduce": (1, False, _row_reduced),
    "col_reduce": (1, False, _col_reduced),
    "row_expand": (1, False, _row_expand),
    "col_expand": (1, False, _col_expand),
    "row_pair": (2, False, _row_pair),
    "col_pair": (2, False, _col_pair),
    "convert": (1, True, _convert),
    "compare": (2, True, _compare),
    "compare_scalar": (1, True, _compare),
    "select": (3, False, _select),
    "transpose": (1, False, _transpose),
    "gather": (2, False, _gather),
    "fill": (0, True, _fill),
    "matmul": (2, False, _matmul),
    "move": (1, False, _move),
    "sort": (2, False, _sort),
    "pad": (1, True, _pad),
}
