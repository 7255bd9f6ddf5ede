"""Happens-before over pipes by vector clocks, and the check of every access against it. Compiled.

Each pipe of each lane is a thread of its own. An entry of a pipe starts after the entries before it; on all pipes but V
these are also done then. `set_flag` passes the clock of its pipe, with all entries before it done, to the pipe that
waits for it; after `pipe_barrier` the pipe's own entries are done. A message in a FIFO passes the clock of the pipe
that pushed it to the one that pops it, and a free slot passes one back. A post to other cores passes its clock to waits
of its block that depend on it (what it passes to other blocks is kept for `signal_order`). What the scalar pipe has
read or waited for is done before everything issued later, because the scalar pipe issues it. A block ends with the
programs of its cores, which the scalar pipes run: what these do not know to be done then may still be under way.

Memory is divided into cells: the pieces into which the edges of all tiles of a launch cut it (`cells`), so that every
tile consists of whole cells. At the start of a block nothing is ordered and all memory is unwritten.
"""

import numpy as np

from kernbench.common.compiled import inlined, part
from kernbench.common.deferred import deferred
from kernbench.npu.isa.operations import AWAIT, BARRIER, LOAD, OPERATIONS, POP, POST, PUSH, SCALAR, SET, STORE, WAIT
from kernbench.npu.isa.units import EVENTS, PER_LANE, PIPE_NUMBER, THREADS

# the pipe on which an entry may start before earlier ones are done, on chips that do not say otherwise
LOOSE = PIPE_NUMBER["V"]
_S = PIPE_NUMBER["S"]
_ADD = OPERATIONS["tstore_add"].code

# kinds of violations: codes of the rows of `violations`
RACE, UNINITIALISED, OVERLAP, SET_TWICE, NEVER_SET, NEVER_WAITED, SET_LATE, GM_RACE, UNDRAINED = range(9)
MOST = 4096


@part
def _emit(found, kind, row, other, tile):  # type: ignore[no-untyped-def]
    rows, count = found.rows, found.number
    last = count[0] - 1
    # an operation in place reads and writes its tile: report the pair once
    if 0 <= last < len(rows) and rows[last, 0] == kind and rows[last, 1] == row and rows[last, 2] == other >= 0:
        return
    if count[0] < len(rows):
        rows[count[0], 0], rows[count[0], 1], rows[count[0], 2], rows[count[0], 3] = kind, row, other, tile
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
    """A hash of two numbers of 64 bits."""
    value = (value ^ more) * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(29))


@part
def _relation(known, p, prefix, identity):  # type: ignore[no-untyped-def]
    """A hash of one access, how many its pipe made before it, and how many of each pipe are done when it begins."""
    value = _mixed(identity, np.uint64(p + 1))
    for q in range(THREADS):
        value = _mixed(value, np.uint64(prefix[q, known[p, q]]))
    return value


@part
def _mark(tile, i, p, tiles, cells):  # type: ignore[no-untyped-def]
    """Row i has written all cells of a tile."""
    base = tiles.bases[p // PER_LANE, tiles.space[tile]]
    for k in range(tiles.starts[tile], tiles.starts[tile + 1]):
        cells.writer[base + tiles.cells[k]] = i
        cells.by_tile[base + tiles.cells[k]] = tile


@part
def _nested(tiles, one, two):  # type: ignore[no-untyped-def]
    """Whether one tile lies inside the other, and both are contiguous."""
    if not (tiles.nests[one] and tiles.nests[two]):
        return False
    first, last = tiles.first, tiles.last
    inside = first[one] >= first[two] and last[one] <= last[two]
    return inside or (first[two] >= first[one] and last[two] <= last[one])


@part
def _touch(tile, writes, i, p, first, tiles, cells, clocks, found):  # type: ignore[no-untyped-def]
    """Check all cells of a tile that row i reads or writes; each violation is reported once.

    An operation in place reads its tile too: the write is checked first, and recorded last. Rows before `first`
    belong to earlier blocks, which left the memory unwritten.
    """
    known, seq = clocks.known, clocks.seq
    # a memory is read by the pipes of its own core; another core can only write to it
    lane = tiles.owners[p // PER_LANE, tiles.space[tile]] * PER_LANE
    base = tiles.bases[p // PER_LANE, tiles.space[tile]]
    race = overlap = -1
    blank = False
    for k in range(tiles.starts[tile], tiles.starts[tile + 1]):
        g = base + tiles.cells[k]
        w = cells.writer[g]
        if w >= first and w != i and seq[w] >= known[p, clocks.thread[w]]:
            race = w
        if writes:
            for q in range(PER_LANE):
                r = cells.readers[g, q]
                if r >= first and r != i and seq[r] >= known[p, lane + q]:
                    race = r
        else:
            if w < first:
                blank = True
            elif (
                tiles.roots[cells.by_tile[g]] != tiles.roots[tile]
                and clocks.thread[w] // PER_LANE == p // PER_LANE
                and not _nested(tiles, cells.by_tile[g], tile)
            ):
                overlap = w
            cells.readers[g, p % PER_LANE] = i
    if race >= 0:
        _emit(found, RACE, i, race, tile)
    if blank:
        _emit(found, UNINITIALISED, i, -1, tile)
    if overlap >= 0:
        _emit(found, OVERLAP, i, overlap, tile)


@inlined
def _operate(i, p, first, w, reads, tiles, cells, clocks, found):  # type: ignore[no-untyped-def]
    """Row i writes the tile w and reads others; -1 is no tile."""
    if w >= 0:
        _touch(w, True, i, p, first, tiles, cells, clocks, found)
    for tile in reads:
        if tile >= 0:
            _touch(tile, False, i, p, first, tiles, cells, clocks, found)
    if w >= 0:
        _mark(w, i, p, tiles, cells)


@inlined
def _set(i, key, src, dst, flags, clocks, found):  # type: ignore[no-untyped-def]
    """A flag is set: it carries the clock of its pipe, with all entries of the pipe so far done."""
    if flags.early[key] >= 0:
        _emit(found, SET_LATE, flags.early[key], i, -1)
        flags.early[key] = -1
        return
    waited = flags.wait_row[key]
    if flags.set_row[key] >= 0:
        _emit(found, SET_TWICE, i, flags.set_row[key], -1)
    elif waited >= 0 and clocks.seq[waited] >= clocks.known[src, dst]:
        # if the last wait for it may still be to come, the flag is set twice
        _emit(found, SET_TWICE, i, waited, -1)
    flags.set_row[key] = i
    _copy(flags.carried[key], clocks.known[src])
    flags.carried[key, src] = clocks.done[src]


@inlined
def _flag(i, what, block, touches, src, dst, event, flags, clocks, found):  # type: ignore[no-untyped-def]
    """A set or a wait: passes the clock on, and reports flags set twice, too late, or never.

    Returns how many flags the block has used so far.
    """
    key = (src * PER_LANE + dst % PER_LANE) * EVENTS + event
    if flags.stamp[key] != block:
        flags.stamp[key] = block
        flags.touched[touches] = key
        touches += 1
    if what == SET:
        _set(i, key, src, dst, flags, clocks, found)
    elif flags.set_row[key] < 0:
        flags.early[key] = i
    else:
        _join(clocks.known[dst], flags.carried[key])
        flags.set_row[key] = -1
        flags.wait_row[key] = i
    return touches


@inlined
def _end_block(flags, touches, memory, clocks, found):  # type: ignore[no-untyped-def]
    """Report flags that are left set, and clear all flags. Report the last store of each pipe, as it has them in order,
    if no core's program knows it to be done.
    """
    set_row, early = flags.set_row, flags.early
    for t in range(touches):
        key = flags.touched[t]
        if set_row[key] >= 0:
            _emit(found, NEVER_WAITED, set_row[key], -1, -1)
        if early[key] >= 0:
            _emit(found, NEVER_SET, early[key], -1, -1)
        set_row[key] = flags.wait_row[key] = early[key] = -1
    for p in range(THREADS):
        i = memory.stored_by[p]
        drained = i < 0 or p % PER_LANE == _S
        for lane in range(0, THREADS, PER_LANE):
            drained = drained or clocks.seq[i] < clocks.known[lane + _S, p]
        if not drained:
            _emit(found, UNDRAINED, i, -1, -1)


@inlined
def _barrier(p, whole_lane, clocks):  # type: ignore[no-untyped-def]
    """A pipe's own entries are done, or (no pipe named) those of all pipes of its lane, and all of them know it."""
    known, done = clocks.known, clocks.done
    if not whole_lane:
        known[p, p] = done[p]
        return
    base = p - p % PER_LANE
    for q in range(PER_LANE):
        _join(known[base], known[base + q])
        known[base, base + q] = done[base + q]
    for q in range(1, PER_LANE):
        _copy(known[base + q], known[base])


@inlined
def _memory(i, what, p, rows, classes, memory, clocks, found):  # type: ignore[no-untyped-def]
    """Record accesses of one block to device memory that its pipes make in no fixed order; overlaps are checked
    later.
    """
    buffer, low, high = rows.c[i], rows.x[i], clocks.ends[i]
    if what == STORE:
        memory.stored_by[p] = i
    r = memory.last[buffer]
    while r >= 0:
        both_add = rows.op[i] == _ADD and rows.op[r] == _ADD
        if (
            not both_add
            and (what == STORE or classes[rows.op[r]] == STORE)
            and low < clocks.ends[r]
            and rows.x[r] < high
            and clocks.seq[r] >= clocks.known[p, clocks.thread[r]]
        ):
            _emit(found, GM_RACE, i, r, -1)
        r = memory.before[r]
    memory.before[i] = memory.last[buffer]
    memory.last[buffer] = i


@inlined
def _receive(f, slot, lanes, messages, clock):  # type: ignore[no-untyped-def]
    """Join the clocks of the messages (or freed slots) of all lanes whose bits are set."""
    for other in range(3):
        if lanes >> other & 1:
            _join(clock, messages[f, other, slot])


@inlined
def _carry(messages, f, lane, slot, p, clocks):  # type: ignore[no-untyped-def]
    """A message (or a freed slot) carries the clock of its pipe, with the entry itself done."""
    _copy(messages[f, lane, slot], clocks.known[p])
    messages[f, lane, slot, p] = clocks.done[p] + 1


@inlined
def _await(wait, p, first, posts, known):  # type: ignore[no-untyped-def]
    """A wait joins the clocks of the posts of its own block."""
    for k in range(posts.starts[wait], posts.starts[wait + 1]):
        if posts.row_of[posts.sources[k]] >= first:
            _join(known[p], posts.carried[posts.sources[k]])


@inlined
def _post(i, post, p, posts, clocks):  # type: ignore[no-untyped-def]
    """A post carries the clock of its pipe, with all entries of the pipe so far done."""
    _copy(posts.carried[post], clocks.known[p])
    posts.carried[post, p] = clocks.done[p]
    posts.row_of[post] = i


@inlined
def _digested(i, what, p, digest, clocks):  # type: ignore[no-untyped-def]
    """The term of row i in the digest of the order; flags, barriers, posts and waits have none."""
    is_access = what not in (SET, WAIT, BARRIER, POST, AWAIT)
    done, prefix = clocks.done[p], digest.prefix
    so_far = prefix[p, done]
    prefix[p, done + 1] = so_far + is_access
    if not is_access:
        return np.uint64(0)
    return _relation(clocks.known, p, prefix, _mixed(digest.identity[i], np.uint64(so_far)))


@inlined
def _begin_block(block, first, end, rows, classes, memory, clocks):  # type: ignore[no-untyped-def]
    """Clear the clocks, and the lists of accesses to buffers that the block stores to."""
    clocks.known[:] = 0
    clocks.done[:] = 0
    memory.stored_by[:] = -1
    for i in range(first, end):
        if classes[rows.op[i]] == STORE and rows.c[i] >= 0:
            memory.stored_in[rows.c[i]] = block
            memory.last[rows.c[i]] = -1


@deferred(lambda firsts, rows, *_: 20 * len(rows.op), wraps=True)
def check_blocks(  # type: ignore[no-untyped-def]
    firsts, rows, classes, tiles, extents, fifos, posts, cells, flags, clocks, memory, digest, found, loose, before
):
    """Check some blocks; rows are numbered from their first, rows of posts also count the `before` earlier ones."""
    known, done, wanted = clocks.known, clocks.done, len(digest.identity) > 0
    # the sum of the digest, and the next row whose clock is needed
    total, looked = np.uint64(0), 0
    for block in range(len(firsts) - 1):
        first, touches = firsts[block], 0
        _begin_block(block, first, firsts[block + 1], rows, classes, memory, clocks)
        for i in range(first, firsts[block + 1]):
            what = classes[rows.op[i]]
            lane, pipe = np.int64(rows.lane[i]), np.int64(rows.pipe[i])
            p = lane * PER_LANE + pipe
            clocks.thread[i] = p
            clocks.seq[i] = done[p]
            # on all pipes but V, and there too on some chips, an entry starts when those before it are done
            if pipe != loose:
                known[p, p] = done[p]
            if what == AWAIT:
                _await(rows.x[i], p, before + first, posts, known)
            if looked < len(posts.wanted) and posts.wanted[looked] == i:
                _copy(posts.clocks[looked], known[p])
                looked += 1
            if what == POST:
                _post(before + i, rows.x[i], p, posts, clocks)
            elif what in (SET, WAIT):
                src, dst = lane * PER_LANE + np.int64(rows.a[i]), lane * PER_LANE + np.int64(rows.b[i])
                touches = _flag(i, what, block, touches, src, dst, np.int64(rows.c[i]), flags, clocks, found)
            elif what == BARRIER:
                _barrier(p, rows.a[i] < 0, clocks)
            elif what != AWAIT:
                # a message, or a slot that is free again, carries a clock
                f = rows.c[i]
                slot = rows.x[i] % max(1, fifos.shape[block, f, 0]) if what in (PUSH, POP) else 0
                if what == PUSH and rows.x[i] >= fifos.shape[block, f, 0]:
                    _receive(f, slot, fifos.shape[block, f, 2], fifos.popped, known[p])
                elif what == POP:
                    _receive(f, slot, fifos.shape[block, f, 1], fifos.pushed, known[p])
                # for operations on device memory and FIFOs `c` is no tile
                reads = np.int64(rows.a[i]), np.int64(rows.b[i]), np.int64(f if what < LOAD else -1)
                _operate(i, p, first, np.int64(rows.w[i]), reads, tiles, cells, clocks, found)
                if what in (LOAD, STORE, SCALAR) and f >= 0 and memory.stored_in[f] == block:
                    clocks.ends[i] = rows.x[i] + extents[rows.y[i]]
                    _memory(i, what, p, rows, classes, memory, clocks, found)
                if what == PUSH:
                    _carry(fifos.pushed, f, lane, slot, p, clocks)
                elif what == POP:
                    _carry(fifos.popped, f, lane, slot, p, clocks)
            if wanted:
                total += _digested(i, what, p, digest, clocks)
            done[p] += 1
            # what the scalar pipe has read is done before all that it issues later
            if pipe == _S and what in (SCALAR, WAIT, AWAIT):
                known[p, p] = done[p]
                for q in range(PER_LANE):
                    if q != _S:
                        _join(known[lane * PER_LANE + q], known[p])
        _end_block(flags, touches, memory, clocks, found)
    return total
