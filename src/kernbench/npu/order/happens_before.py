"""Happens-before over pipes: what each row may rely on, by vector clocks, and what it touches. Compiled.

Each pipe of each lane is a thread of its own. An entry of a pipe starts after the entries before it; on all pipes but V
they are also done then. `set_flag` carries what its pipe knows, and that all entries before it are done, to the pipe
that waits for it; `pipe_barrier` tells a pipe that its own entries are done. A message in a FIFO carries knowledge from
the pipe that pushed it to the one that pops it, and a free slot carries it back. A post to other cores carries it to
waits of its block that rest on it (what it carries to other blocks is kept for `signal_order`). What the scalar pipe
has read or waited for is known to everything issued later, because it issues it.

Memory is looked at in cells: the pieces into which the edges of all tiles of a launch cut it (`cells`), so that every
tile is made of whole ones. A block starts with nothing known and all memory unwritten.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import loop, part
from kernbench.npu.isa.operations import AWAIT, BARRIER, LOAD, OPERATIONS, POP, POST, PUSH, SCALAR, SET, STORE, WAIT
from kernbench.npu.isa.places import EVENTS, PER_LANE, PIPE_NUMBER, THREADS

Ints = NDArray[np.int64]

_V, _S = PIPE_NUMBER["V"], PIPE_NUMBER["S"]
_ADD = OPERATIONS["tstore_add"].code

# what can be wrong: codes of the rows of `violations`
RACE, UNINITIALISED, OVERLAP, SET_TWICE, NEVER_SET, NEVER_WAITED, SET_LATE, GM_RACE = range(8)
MOST = 4096
# no wait, no post, no row whose clock is wanted
NO_POSTS: Any = (
    np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros((0, THREADS), np.int64), np.zeros(0, np.int64),
    np.zeros(0, np.int64), np.zeros((0, THREADS), np.int64),
)  # fmt: skip


@part
def _emit(found, count, kind, row, other, tile):  # type: ignore[no-untyped-def]
    last = count[0] - 1
    # an operation in place reads and writes its tile: that is one pair of operations
    if 0 <= last < len(found) and found[last, 0] == kind and found[last, 1] == row and found[last, 2] == other >= 0:
        return
    if count[0] < len(found):
        found[count[0], 0], found[count[0], 1], found[count[0], 2], found[count[0], 3] = kind, row, other, tile
    count[0] += 1


@part
def _join(into, other):  # type: ignore[no-untyped-def]
    for q in range(THREADS):
        into[q] = max(into[q], other[q])


@part
def _copy(into, other):  # type: ignore[no-untyped-def]
    for q in range(THREADS):
        into[q] = other[q]


@part
def _mixed(value, more):  # type: ignore[no-untyped-def]
    """Two numbers of 64 bits as one, so that different pairs hardly ever give the same."""
    value = (value ^ more) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@part
def _relation(clock, p, prefix, identity):  # type: ignore[no-untyped-def]
    """One access, how many its pipe made before it, and how many of each pipe are surely done when it begins."""
    value = _mixed(identity, np.uint64(p + 1))
    for q in range(THREADS):
        value = _mixed(value, np.uint64(prefix[q, clock[p, q]]))
    return value


@part
def _mark(tile, i, p, tiles, state):  # type: ignore[no-untyped-def]
    """Row i has written all cells of a tile."""
    starts, cells, bases, space, _ = tiles
    base = bases[p // PER_LANE, space[tile]]
    for k in range(starts[tile], starts[tile + 1]):
        state[0][base + cells[k]] = i
        state[1][base + cells[k]] = tile


@part
def _touch(tile, writes, i, p, first, tiles, state, clock, seq, thread, found, count):  # type: ignore[no-untyped-def]
    """Look at all cells of a tile that row i reads or is going to write; each thing that is wrong is told once.

    An operation in place reads its tile too: what it writes is looked at first, and marked last.
    """
    starts, cells, bases, space, roots = tiles
    written, by_tile, readers = state
    lane = p - p % PER_LANE
    base = bases[p // PER_LANE, space[tile]]
    race = overlap = -1
    blank = False
    for k in range(starts[tile], starts[tile + 1]):
        g = base + cells[k]
        w = written[g]
        if w >= first and w != i and seq[w] >= clock[p, thread[w]]:
            race = w
        if writes:
            for q in range(PER_LANE):
                r = readers[g, q]
                if r >= first and r != i and seq[r] >= clock[p, lane + q]:
                    race = r
        else:
            if w < first:
                blank = True
            elif roots[by_tile[g]] != roots[tile]:
                overlap = w
            readers[g, p % PER_LANE] = i
    if race >= 0:
        _emit(found, count, RACE, i, race, tile)
    if blank:
        _emit(found, count, UNINITIALISED, i, -1, tile)
    if overlap >= 0:
        _emit(found, count, OVERLAP, i, overlap, tile)


@part
def _flags(i, what, lane, a, b, event, flags, clock, done, seq, found, count):  # type: ignore[no-untyped-def]
    """A set or a wait: moves knowledge, and sees flags set twice, too late, or waited for in vain."""
    set_row, wait_row, early, carried = flags
    src, dst = lane * PER_LANE + a, lane * PER_LANE + b
    key = ((lane * PER_LANE + a) * PER_LANE + b) * EVENTS + event
    if what == SET:
        if early[key] >= 0:
            _emit(found, count, SET_LATE, early[key], i, -1)
            early[key] = -1
            return
        if set_row[key] >= 0:
            _emit(found, count, SET_TWICE, i, set_row[key], -1)
        elif wait_row[key] >= 0 and seq[wait_row[key]] >= clock[src, dst]:
            _emit(found, count, SET_TWICE, i, wait_row[key], -1)
        set_row[key] = i
        _copy(carried[key], clock[src])
        carried[key, src] = done[src]
        return
    if set_row[key] < 0:
        early[key] = i
        return
    _join(clock[dst], carried[key])
    set_row[key] = -1
    wait_row[key] = i


@part
def _end_block(flags, touched, touches, found, count):  # type: ignore[no-untyped-def]
    """Flags that are left over; then all flags are down again."""
    set_row, wait_row, early, _ = flags
    for t in range(touches):
        key = touched[t]
        if set_row[key] >= 0:
            _emit(found, count, NEVER_WAITED, set_row[key], -1, -1)
        if early[key] >= 0:
            _emit(found, count, NEVER_SET, early[key], -1, -1)
        set_row[key] = wait_row[key] = early[key] = -1


@part
def _memory(i, what, p, buffer, low, high, gm, clock, seq, thread, classes, op, rows_x, ends, found, count):  # type: ignore[no-untyped-def]
    """Accesses of one block to device memory that its pipes make in no fixed order; whether they meet is seen later."""
    last, before = gm
    r = last[buffer]
    while r >= 0:
        other = classes[op[r]]
        both_add = op[i] == _ADD and op[r] == _ADD
        if (
            not both_add
            and (what == STORE or other == STORE)
            and low < ends[r]
            and rows_x[r] < high
            and seq[r] >= clock[p, thread[r]]
        ):
            _emit(found, count, GM_RACE, i, r, -1)
        r = before[r]
    before[i] = last[buffer]
    last[buffer] = i


def check(
    firsts: Ints,
    rows: Any,
    classes: Any,
    tiles: Any,
    cells: int,
    extents: Ints,
    buffers: int,
    fifos: Ints,
    identity: Any,
    posts: Any = NO_POSTS,
) -> tuple[Ints, int]:
    """All blocks. `rows` are columns (op, lane, pipe, w, a, b, c, x, y); gives violations.

    `fifos` are, for each block and FIFO: depth, bits of the lanes that push, bits of those that pop. Where `identity`
    has a number for each row, the second result is a digest of the order of all accesses: equal for two launches in
    which the same accesses have the same others surely done before them, by whatever flags and barriers. 0 without.
    `posts` are, for each wait between cores, where its posts begin among all of them, these, and room for what each
    post carries; then the rows of which the clock is wanted, and room for these clocks.
    """
    n = len(rows[0])
    found, count = np.empty((MOST, 4), np.int64), np.zeros(1, np.int64)
    cell_state = np.full(cells, -1, np.int64), np.zeros(cells, np.int32), np.full((cells, PER_LANE), -1, np.int64)
    keys = THREADS * PER_LANE * EVENTS
    flags = (*np.full((3, keys), -1, np.int64), np.zeros((keys, THREADS), np.int64))
    touched = np.empty(keys, np.int64), np.full(keys, -1, np.int64)
    known = np.zeros((THREADS, THREADS), np.int64), np.zeros(THREADS, np.int64), *np.zeros((3, n), np.int64)
    memory = np.full(buffers, -1, np.int64), np.full(n, -1, np.int64), np.full(buffers, -1, np.int64)
    deepest = max(1, int(fifos[:, :, 0].max(initial=1)))
    messages = np.zeros((2, max(1, fifos.shape[1]), 3, deepest, THREADS), np.int64)
    # for each pipe and number of its entries: how many of them are accesses
    longest = int(np.diff(firsts).max(initial=0)) if len(identity) else 0
    prefix = np.zeros((THREADS, longest + 1), np.int64)
    state = (cell_state, flags, touched, known, memory, (messages[0], messages[1]), prefix)
    digest = _check(firsts, rows, classes, tiles, extents, fifos, identity, posts, state, found, count)
    return found[: min(int(count[0]), MOST)], int(digest)


@part
def _await(wait, p, first, posts, clock):  # type: ignore[no-untyped-def]
    """A wait knows what the posts of its own block knew."""
    starts, sources, carried, row_of, _, _ = posts
    for k in range(starts[wait], starts[wait + 1]):
        if row_of[sources[k]] >= first:
            _join(clock[p], carried[sources[k]])


@loop
def _check(firsts, rows, classes, tiles, extents, fifos, identity, posts, room, found, count):  # type: ignore[no-untyped-def]
    op, lane, pipe, w, a, b, c, x, y = rows
    state, flags, (touched, touch_stamp), known, memory, (pushed, popped), prefix = room
    # what each pipe knows, how many entries it has had, and for each row its number, its thread, and where it ends
    clock, done, seq, thread, ends = known
    gm, stored_in = (memory[0], memory[1]), memory[2]
    wanted = len(identity) > 0
    digest = np.uint64(0)
    # the next row whose clock is wanted
    looked = 0
    for block in range(len(firsts) - 1):
        first = firsts[block]
        clock[:] = 0
        done[:] = 0
        touches = 0
        # buffers that this block stores to: only there can its accesses race
        for i in range(first, firsts[block + 1]):
            if classes[op[i]] == STORE and c[i] >= 0:
                stored_in[c[i]] = block
                gm[0][c[i]] = -1
        for i in range(first, firsts[block + 1]):
            what = classes[op[i]]
            p = lane[i] * PER_LANE + pipe[i]
            thread[i] = p
            seq[i] = done[p]
            if pipe[i] != _V:
                clock[p, p] = done[p]
            if what == AWAIT:
                _await(x[i], p, first, posts, clock)
            if looked < len(posts[4]) and posts[4][looked] == i:
                for q in range(THREADS):
                    posts[5][looked, q] = clock[p, q]
                looked += 1
            if what == POST:
                _copy(posts[2][x[i]], clock[p])
                posts[2][x[i], p] = done[p]
                posts[3][x[i]] = i
            elif what == AWAIT:
                pass
            elif what in (SET, WAIT):
                key = (lane[i] * PER_LANE + a[i]) * PER_LANE * EVENTS + b[i] * EVENTS + c[i]
                if touch_stamp[key] != block:
                    touch_stamp[key] = block
                    touched[touches] = key
                    touches += 1
                _flags(
                    i,
                    what,
                    np.int64(lane[i]),
                    np.int64(a[i]),
                    np.int64(b[i]),
                    np.int64(c[i]),
                    flags,
                    clock,
                    done,
                    seq,
                    found,
                    count,
                )
            elif what == BARRIER:
                base = lane[i] * PER_LANE
                if a[i] >= 0:
                    clock[p, p] = done[p]
                else:
                    for q in range(PER_LANE):
                        _join(clock[base], clock[base + q])
                        clock[base, base + q] = done[base + q]
                    for q in range(1, PER_LANE):
                        _copy(clock[base + q], clock[base])
            else:
                # a message, or a slot that is free again, brings knowledge
                f = c[i]
                slot = x[i] % max(1, fifos[block, f, 0]) if what in (PUSH, POP) else 0
                if what == PUSH and x[i] >= fifos[block, f, 0]:
                    for other in range(3):
                        if fifos[block, f, 2] >> other & 1:
                            _join(clock[p], popped[f, other, slot])
                elif what == POP:
                    for other in range(3):
                        if fifos[block, f, 1] >> other & 1:
                            _join(clock[p], pushed[f, other, slot])
                # tiles that it writes and reads, then device memory
                if w[i] >= 0:
                    _touch(w[i], True, i, p, first, tiles, state, clock, seq, thread, found, count)
                if a[i] >= 0:
                    _touch(a[i], False, i, p, first, tiles, state, clock, seq, thread, found, count)
                if b[i] >= 0:
                    _touch(b[i], False, i, p, first, tiles, state, clock, seq, thread, found, count)
                if what < LOAD and c[i] >= 0:
                    _touch(c[i], False, i, p, first, tiles, state, clock, seq, thread, found, count)
                if w[i] >= 0:
                    _mark(w[i], i, p, tiles, state)
                if what in (LOAD, STORE, SCALAR) and c[i] >= 0 and stored_in[c[i]] == block:
                    ends[i] = x[i] + extents[y[i]]
                    _memory(i, what, p, c[i], x[i], ends[i], gm, clock, seq, thread, classes, op, x, ends, found, count)
                # its own message, or the slot it frees, carries what it knows
                if what == PUSH:
                    _copy(pushed[f, lane[i], slot], clock[p])
                    pushed[f, lane[i], slot, p] = done[p] + 1
                elif what == POP:
                    _copy(popped[f, lane[i], slot], clock[p])
                    popped[f, lane[i], slot, p] = done[p] + 1
            # the digest of the order
            if wanted:
                is_access = what not in (SET, WAIT, BARRIER, POST, AWAIT)
                count_now = prefix[p, done[p]]
                if is_access:
                    digest += _relation(clock, p, prefix, _mixed(identity[i], np.uint64(count_now)))
                prefix[p, done[p] + 1] = count_now + is_access
            done[p] += 1
            # what the scalar pipe has seen is known to all that it issues later
            if pipe[i] == _S and what in (SCALAR, WAIT, AWAIT):
                clock[p, p] = done[p]
                for q in range(PER_LANE):
                    if q != _S:
                        _join(clock[lane[i] * PER_LANE + q], clock[p])
        _end_block(flags, touched, touches, found, count)
    return digest
