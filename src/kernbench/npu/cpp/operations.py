"""Maps each operation of a compiled kernel to a method of the core and its arguments.

Scratch tiles that the core does not need are dropped; of source tiles whose valid part is larger than the result's only
the result's part is read.
"""

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from kernbench.common.errors import KernelError, unknown
from kernbench.npu.core.scattering import OUTSIDE
from kernbench.npu.core.tiles import Tile
from kernbench.npu.cpp.decoding import FOUR_BITS, SCALES, Given, TensorWords
from kernbench.npu.isa.operations import OPERATIONS
from kernbench.npu.isa.units import ALL, PIPES

if TYPE_CHECKING:
    from kernbench.npu.cpp.kernel import Running

__kernbench_internal__ = True
# a method, its arguments, and whether the same record always has the same meaning
Call = tuple[Callable[..., object], tuple[object, ...], bool]
Handler = Callable[["Running", list[object]], Call]
MODES = ("rint", "rint", "round", "floor", "ceil", "trunc", "odd")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _tiles(given: list[object], count: int, name: str) -> list[Tile]:
    found = [one for one in given[:count] if isinstance(one, Tile)]
    if len(found) != count:
        raise KernelError("misuse", f"{name}: {count} tiles are wanted")
    return found


def _as_wide(tile: Tile, valid: tuple[int, int]) -> Tile:
    """A source cut to the valid part of the result."""
    fits = tile.valid[0] >= valid[0] and tile.valid[1] >= valid[1]
    return tile.view(valid=valid) if fits and tile.valid != valid else tile


def plain(name: str, tiles: int, method: str = "") -> Handler:
    """An operation on tiles with equal valid parts; further tiles are scratch."""

    def handle(running: "Running", given: list[object]) -> Call:
        dst, *sources = _tiles(given, tiles, name)
        narrowed = [_as_wide(source, dst.valid) for source in sources]
        return getattr(running.core, method or name.lower()), (dst, *narrowed), True

    return handle


def scalar(name: str) -> Handler:
    """An operation on a tile and a number."""

    def handle(running: "Running", given: list[object]) -> Call:
        dst, source = _tiles(given, 2, name)
        return getattr(running.core, name.lower()), (dst, _as_wide(source, dst.valid), given[2]), True

    return handle


def reduced(name: str, axis: int) -> Handler:
    """A reduction: the result has as many rows (or columns) as the source has valid ones."""

    def handle(running: "Running", given: list[object]) -> Call:
        dst, source = _tiles(given, 2, name)
        dst = _vector(dst, source.valid, axis)
        return getattr(running.core, name.lower()), (dst, source), True

    return handle


def _vector(tile: Tile, valid: tuple[int, int], axis: int) -> Tile:
    """A vector of row or column results: for rows n x 1, for columns 1 x n."""
    wanted = (valid[0], 1) if axis == 1 else (1, valid[1])
    return _as_wide(tile, wanted)


def expanded(name: str, axis: int) -> Handler:
    """An operation of a tile and a row or column vector."""

    def handle(running: "Running", given: list[object]) -> Call:
        dst, source, vector = _tiles(given, 3, name)
        narrowed = (dst, _as_wide(source, dst.valid), _line(vector, dst.valid, axis))
        return getattr(running.core, name.lower()), narrowed, True

    return handle


def _line(tile: Tile, valid: tuple[int, int], axis: int) -> Tile:
    """A vector operand; a column vector may be given as a row of the same elements."""
    count = valid[0] if axis == 1 else valid[1]
    wanted = (count, 1) if axis == 1 else (1, count)
    if axis == 1 and tile.valid[0] == 1 and tile.valid[1] >= count > 1 and tile.layout == "row":
        return tile.view((tile.shape[1], 1), valid=wanted, layout="col")
    return _as_wide(tile, wanted)


def _expand(name: str, axis: int) -> Handler:
    def handle(running: "Running", given: list[object]) -> Call:
        dst, vector = _tiles(given, 2, name)
        return getattr(running.core, name.lower()), (dst, _line(vector, dst.valid, axis)), True

    return handle


def _convert(running: "Running", given: list[object]) -> Call:
    dst, source = _tiles(given, 2, "TCVT")
    mode = next((one for one in given[2:] if isinstance(one, int)), 0)
    return running.core.tcvt, (dst, _as_wide(source, dst.valid), MODES[mode]), True


def _fill(running: "Running", given: list[object]) -> Call:
    dst, source = _tiles(given, 2, "TFILLPAD")
    value, is_padded = given[2], given[3]
    if not is_padded and dst.number == source.number:
        return nothing, (), True
    if not is_padded:
        return running.core.tmov, (dst, _as_wide(source, dst.valid)), True
    if isinstance(value, float) and not dst.dtype.startswith(("f", "b")):
        value = int(value)
    return running.core.tfillpad, (dst, source, value), True


def _expands(running: "Running", given: list[object]) -> Call:
    (dst,) = _tiles(given, 1, "TEXPANDS")
    return running.core.texpands, (dst, given[1]), True


def _matmul(method: str) -> Handler:
    def handle(running: "Running", given: list[object]) -> Call:
        tiles = [one for one in given if isinstance(one, Tile)]
        # dst, accumulator, a, b: the accumulator is dst
        dst, a, b = (tiles[0], *tiles[-2:]) if method != "tmatmul_bias" else (tiles[0], tiles[1], tiles[2])
        depth = min(a.valid[1], b.valid[0])
        a, b = _as_wide(a, (dst.valid[0], depth)), _as_wide(b, (depth, dst.valid[1]))
        more = (tiles[3],) if method == "tmatmul_bias" else ()
        return getattr(running.core, method), (dst, a, b, *more), True

    return handle


def _matmul_mx(running: "Running", given: list[object]) -> Call:
    dst, a, a_scale, b, b_scale = _tiles(given, 5, "TMATMUL_MX")
    kinds = [FOUR_BITS.get(kind) for kind in given[5:7] if isinstance(kind, int)]
    return running.core.tmatmul_mx, (dst, a, a_scale, b, b_scale, *kinds), True


def _move(running: "Running", given: list[object]) -> Call:
    dst, source = _tiles(given, 2, "TMOV")
    return running.core.tmov, (dst, _as_wide(source, dst.valid)), True


def _extract(running: "Running", given: list[object]) -> Call:
    dst, source = _tiles(given, 2, "TEXTRACT")
    return running.core.textract, (dst, source, given[2], given[3]), True


def _send(running: "Running", given: list[object]) -> Call:
    dst, source = _tiles(given, 2, "TPUSH")
    return running.core.tsend, (dst, source, given[2], given[3]), True


def _set_value(running: "Running", given: list[object]) -> Call:
    (tile,) = _tiles(given, 1, "SetValue")
    element, value = given[1:]
    assert isinstance(element, int)
    return running.core.set_value, (tile.whole, *position(tile, element), value), True


def position(tile: Tile, element: int) -> tuple[int, int]:
    """Row and column of an element given by its index in memory order."""
    rows, columns = tile.shape
    return divmod(element, columns) if tile.layout == "row" else divmod(element, rows)[::-1]


def _load(running: "Running", given: list[object]) -> Call:
    if isinstance(given[1], TensorWords) and given[1].layout in SCALES:
        tile, tensor = running.scales(given[0], given[1])
        return running.core.tload, (tile, tensor, None, 2), False
    tile, tensor = running.transfer(given[0], given[1], False)
    return running.core.tload, (tile, tensor), False


def _store(method: str) -> Handler:
    def handle(running: "Running", given: list[object]) -> Call:
        tile, tensor = running.transfer(given[1], given[0], True)
        return getattr(running.core, method), (tensor, tile), False

    return handle


def _pipe(number: object) -> str:
    assert isinstance(number, int)
    return (*PIPES, ALL)[number] if 0 <= number <= len(PIPES) else str(number)


def _flag(method: str) -> Handler:
    def handle(running: "Running", given: list[object]) -> Call:
        return getattr(running.core, method), (_pipe(given[0]), _pipe(given[1]), given[2]), True

    return handle


def _barrier(running: "Running", given: list[object]) -> Call:
    pipe = _pipe(given[0])
    if pipe in PIPES:
        running.core.check_barrier(pipe)
    if pipe == "S":
        # the scalar unit executes in order
        return nothing, (), True
    return running.core.pipe_barrier, (pipe,), True


def nothing() -> None:
    """No operation."""


def _transpose(running: "Running", given: list[object]) -> Call:
    dst, source = _tiles(given, 2, "TTRANS")
    return running.core.ttrans, (dst, _as_wide(source, (dst.valid[1], dst.valid[0]))), True


def _gather(running: "Running", given: list[object]) -> Call:
    dst, source, indices = _tiles(given, 3, "TGATHER")
    return running.core.tgather, (dst, source, _as_wide(indices, dst.valid)), True


def _sort(running: "Running", given: list[object]) -> Call:
    tiles = tuple(one for one in given if isinstance(one, Tile))
    return running.core.tsort32, tiles, True


def _merge(running: "Running", given: list[object]) -> Call:
    dst, source = _tiles(given, 2, "TMRGSORT")
    return running.core.tmrgsort, (dst, source, given[2]), True


def _compare(running: "Running", given: list[object]) -> Call:
    tiles = [one for one in given if isinstance(one, Tile)]
    numbers = [one for one in given if not isinstance(one, Tile)]
    mode = numbers[-1]
    assert isinstance(mode, int)
    method = running.core.tcmps if len(tiles) == 2 else running.core.tcmp
    return method, (*tiles, *numbers[:-1], COMPARISONS[mode]), True


def _post(running: "Running", given: list[object]) -> Call:
    config = given[1]
    assert isinstance(config, int)
    return running.core.ffts_cross_core_sync, (_pipe(given[0]), config >> 8 & 15, config >> 4 & 3), True


def _await(running: "Running", given: list[object]) -> Call:
    return running.core.wait_flag_dev, (given[0],), True


def _intra(method: str) -> Handler:
    def handle(running: "Running", given: list[object]) -> Call:
        return getattr(running.core, method), (_pipe(given[0]), given[1]), True

    return handle


def _clean(running: "Running", given: list[object]) -> Call:
    address, lines = given
    assert isinstance(address, int)
    return running.core.dcci, () if lines else (running.line_at(address),), False


def _notify(running: "Running", given: list[object]) -> Call:
    address, value, adds = given
    assert isinstance(address, int)
    return running.core.tnotify, (running.signal_at(address, True), value, "add" if adds else "set"), False


def _scatter(running: "Running", given: list[object]) -> Call:
    tensor, src, indices, by_element, adds, outside = given
    if not (isinstance(tensor, TensorWords) and isinstance(src, Tile) and isinstance(outside, int)):
        raise KernelError("misuse", "MSCATTER: a tensor, a tile, and a tile of indices are wanted")
    count, columns = prod(tensor.shape), src.valid[1]
    shape, strides = ((count,), (1,)) if by_element else ((count // columns, columns), (columns, 1))
    target = running.view(tensor.address, tensor.element, shape, strides, True)
    return running.core.mscatter, (target, src, indices, OUTSIDE[outside], bool(adds)), False


def _concat(running: "Running", given: list[object]) -> Call:
    return running.core.tconcat, tuple(given), True


_TWO = ("TADD", "TSUB", "TMUL", "TDIV", "TMAX", "TMIN", "TAND", "TOR", "TXOR", "TSHL", "TSHR", "TREM")
_ONE = ("TEXP", "TLOG", "TSQRT", "TRSQRT", "TRECIP", "TABS", "TNEG", "TRELU", "TNOT")
_SCALARS = ("TADDS", "TSUBS", "TMULS", "TDIVS", "TMAXS", "TMINS", "TAXPY")
_KINDS = ("ADD", "SUB", "MUL", "DIV", "MAX", "MIN")
HANDLERS: dict[str, Handler] = {
    **{name: plain(name, 3) for name in _TWO},
    **{name: plain(name, 2) for name in _ONE},
    **{name: scalar(name) for name in _SCALARS},
    **{f"TROW{k}": reduced(f"TROW{k}", 1) for k in ("SUM", "MAX", "MIN", "PROD")},
    **{f"TCOL{k}": reduced(f"TCOL{k}", 0) for k in ("SUM", "MAX", "MIN", "PROD")},
    **{f"TROWEXPAND{k}": expanded(f"TROWEXPAND{k}", 1) for k in _KINDS},
    **{f"TCOLEXPAND{k}": expanded(f"TCOLEXPAND{k}", 0) for k in _KINDS},
    "TROWEXPAND": _expand("TROWEXPAND", 1),
    "TCOLEXPAND": _expand("TCOLEXPAND", 0),
    "TCVT": _convert,
    "TFILLPAD": _fill,
    "TEXPANDS": _expands,
    "TMATMUL": _matmul("tmatmul"),
    "TMATMUL_ACC": _matmul("tmatmul_acc"),
    "TMATMUL_BIAS": _matmul("tmatmul_bias"),
    "TMATMUL_MX": _matmul_mx,
    "TMOV": _move,
    "TEXTRACT": _extract,
    "TSEND": _send,
    "SetValue": _set_value,
    "TLOAD": _load,
    "TSTORE": _store("tstore"),
    "TSTORE_ADD": _store("tstore_add"),
    "TTRANS": _transpose,
    "TGATHER": _gather,
    "TSORT32": _sort,
    "TMRGSORT": _merge,
    "TCMP": _compare,
    "TCMPS": _compare,
    "TCONCAT": _concat,
    "set_flag": _flag("set_flag"),
    "wait_flag": _flag("wait_flag"),
    "pipe_barrier": _barrier,
    "dcci": _clean,
    "st_dev": _notify,
    "MSCATTER": _scatter,
    "ffts_cross_core_sync": _post,
    "wait_flag_dev": _await,
    "set_intra_block": _intra("set_intra_block"),
    "wait_intra_block": _intra("wait_intra_block"),
}


def handler(name: str) -> Handler:
    """The handler of an operation; unknown operations are refused."""
    found = HANDLERS.get(name)
    if found is None:
        known = [name for name in HANDLERS if name.lower() in OPERATIONS]
        raise KernelError("misuse", f"the machine has no operation for {unknown('operation', name, known)}")
    return found


def as_given(values: "list[Given]", running: "Running") -> list[object]:
    """Arguments, with tile descriptions replaced by tiles of the core."""
    return [running.operand(value) for value in values]
