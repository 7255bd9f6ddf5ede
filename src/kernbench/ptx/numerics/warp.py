"""Operations across the lanes of a warp: where a shuffle reads, votes, matches, reductions.

Rows hold whole warps, 32 lanes after 32 lanes. `members` is a bool row: the lanes that take part.
"""

from functools import cache
from typing import Any

import numpy as np

from kernbench.common.compiled import njit
from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.extremes import extreme
from kernbench.ptx.numerics.loops import Operation, Row

WARP = 32
_MODES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}


@njit(cache=True, nogil=True)
def _source(mode: Any, lane: Any, b: Any, c: Any) -> Any:
    amount, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    last = (lane & segment) | (clamp & ~segment & 31)
    if mode == 0:
        source = lane - amount
        inside = source >= last
    elif mode == 1:
        source = lane + amount
        inside = source <= last
    elif mode == 2:
        source = lane ^ amount
        inside = source <= last
    else:
        source = (lane & segment) | (amount & ~segment & 31)
        inside = source <= last
    return (source if inside else lane), inside


@njit(cache=True, nogil=True)
def _shuffle_uniform(mode: int, a: Row, b: int, c: int, out: Row, inside: Row) -> None:
    sources = np.empty(32, np.int64)
    flags = np.empty(32, np.bool_)
    for lane in range(32):
        sources[lane], flags[lane] = _source(mode, lane, b, c)
    for start in range(0, out.size, 32):
        for lane in range(32):
            out[start + lane] = a[start + sources[lane]]
            inside[start + lane] = flags[lane]


@njit(cache=True, nogil=True)
def _shuffle_rows(mode: int, a: Row, b: Row, c: Row, out: Row, inside: Row) -> None:
    for i in range(out.size):
        source, flag = _source(mode, i & 31, np.int64(b[i]), np.int64(c[i]))
        out[i] = a[i - (i & 31) + source]
        inside[i] = flag


def _mode(name: str) -> int:
    if name not in _MODES:
        raise MisuseError(unknown("shuffle mode", name, _MODES))
    return _MODES[name]


@cache
def shuffle(mode: str) -> Operation:
    """shfl: `operation(a, b, c, out, inside)`: `inside` tells where the source lane lies in its segment."""
    code = _mode(mode)

    def operation(a: Row, b: Row, c: Row, out: Row, inside: Row) -> None:
        source = a.copy() if a is out or np.shares_memory(a, out) else a
        if np.ndim(b) == 0 and np.ndim(c) == 0:
            _shuffle_uniform(code, source, int(b), int(c), out, inside)
        else:
            _shuffle_rows(code, source, np.broadcast_to(b, out.shape), np.broadcast_to(c, out.shape), out, inside)

    return operation


def source_lanes(mode: str, lanes: int, b: Row, c: Row) -> tuple[Row, Row]:
    """For each of `lanes` positions, the position a shuffle reads and whether it lies in the segment."""
    positions = np.arange(lanes, dtype=np.int64)
    sources, inside = np.empty(lanes, np.int64), np.empty(lanes, bool)
    shuffle(mode)(positions, b, c, sources, inside)
    return sources, inside


def ballot(predicate: Row, members: Row) -> Row:
    """One word a warp: the members whose predicate is true."""
    bits = (predicate & members).reshape(-1, WARP)
    return np.packbits(bits, axis=1, bitorder="little").view("<u4").reshape(-1).astype(np.uint32)


def member_words(members: Row) -> Row:
    """One word a warp: which lanes are members."""
    return ballot(members, members)


def vote(mode: str, predicate: Row, members: Row) -> Row:
    """vote.all, any, uni: one bool a warp."""
    true, all_members = ballot(predicate, members), member_words(members)
    results = {"all": true == all_members, "any": true != 0, "uni": (true == all_members) | (true == 0)}
    if mode not in results:
        raise MisuseError(unknown("vote mode", mode, results))
    return results[mode]


def spread(words: Row) -> Row:
    """One value a warp as a row: the same for its 32 lanes."""
    return np.repeat(words, WARP)


@njit(cache=True, nogil=True)
def _match_any(values: Row, members: Row, out: Row) -> None:
    for start in range(0, values.size, 32):
        for lane in range(32):
            word = np.uint32(0)
            for other in range(32):
                if members[start + other] and values[start + other] == values[start + lane]:
                    word |= np.uint32(1) << np.uint32(other)
            out[start + lane] = word


def match_any(values: Row, members: Row) -> Row:
    """match.any: for each lane, the members that hold its value."""
    out = np.empty(values.shape, np.uint32)
    _match_any(values, members, out)
    return out


def match_all(values: Row, members: Row) -> tuple[Row, Row]:
    """match.all: (word, predicate) rows: all members and true where they hold one value, else 0 and false."""
    same = match_any(values, members)
    words = spread(member_words(members))
    agreed = vote("all", same == words, members)
    flags = spread(agreed)
    return np.where(flags, words, np.uint32(0)), flags


_REDUCTIONS: dict[str, tuple[Any, int]] = {
    "add": (np.add, 0),
    "and": (np.bitwise_and, -1),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}


def redux(name: str, kind: str, values: Row, members: Row) -> Row:
    """redux of integers: one value a warp, as uint32 bits."""
    typed = values.view(np.int32) if kind == "s32" else values
    lanes, mask = typed.reshape(-1, WARP), members.reshape(-1, WARP)
    if name in _REDUCTIONS:
        ufunc, start = _REDUCTIONS[name]
        neutral = np.array(start, np.int64).astype(lanes.dtype)
        return ufunc.reduce(np.where(mask, lanes, neutral), axis=1, dtype=lanes.dtype).view(np.uint32)
    limits = np.iinfo(lanes.dtype)
    if name not in ("min", "max"):
        raise MisuseError(unknown("redux operation", name, (*_REDUCTIONS, "min", "max")))
    worst = limits.max if name == "min" else limits.min
    best = (np.min if name == "min" else np.max)(np.where(mask, lanes, lanes.dtype.type(worst)), axis=1)
    return best.view(np.uint32)


def redux_float(name: str, values: Row, members: Row, nan: bool = False, abs_: bool = False) -> Row:
    """redux.min or max of f32: one value a warp, as uint32 bits."""
    pick = extreme(name, "f32", False, nan, False, abs_)
    lanes, mask = values.reshape(-1, WARP), members.reshape(-1, WARP)
    # A member's own value stands in for lanes that take no part.
    first = lanes[np.arange(len(lanes)), mask.argmax(axis=1)]
    filled = np.where(mask, lanes, first[:, None])
    best = np.ascontiguousarray(filled[:, 0])
    for lane in range(WARP):
        pick(best, np.ascontiguousarray(filled[:, lane]), best)
    return best
