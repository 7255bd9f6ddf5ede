"""Checks that signals order the accesses of blocks to device memory, and that signals are used consistently.

Each wait depends on the posts that it cannot end without (`necessity`). A post carries the clock of its pipe; a row of
one block is done before a row of another if a post follows it, a wait that depends on the post precedes the other row,
or a chain of such pairs leads from one to the other.
"""

from collections import defaultdict
from itertools import pairwise

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.npu.isa.operations import AWAIT, CLASSES, LOAD, NAMES, POST, SCALAR, STORE
from kernbench.npu.isa.units import LANES, PER_LANE
from kernbench.npu.order.checks import inspect, memory_meets, posts_table
from kernbench.npu.order.necessity import Necessity, in_order
from kernbench.npu.tasks.signals import SETS, Post, Wait, unset
from kernbench.npu.tasks.task import Context
from kernbench.npu.tasks.tensors import extent
from kernbench.result.finding import Finding, Other

Element = tuple[int, int]


def conclude_signals(context: Context) -> None:
    """Record which posts waits depend on, and report what signals do not order, or order only by chance."""
    signals, recording = context.signals, context.recording
    if not signals.posts and not signals.waits:
        return
    order = _Order(context)
    order.settle()
    recording.rests_on = [tuple(sorted(order.rests[w.number])) for w in signals.waits]
    for element, posts in order.by_element.items():
        _check_element(context, order, element, posts)
        _check_values(context, order, element, posts)
    _check_residency(context, order)
    _check_memory(context)


class _Order:
    """Happens-before among posts and waits: a bit for each, posts first."""

    def __init__(self, context: Context):
        self.signals = context.signals
        self._count = len(self.signals.posts)
        self._necessity = Necessity(self.signals)
        self.by_element = self._necessity.posts
        self.rests: list[set[int]] = [set() for _ in self.signals.waits]
        self.before: dict[int, int] = {}
        # of each wait: what happens before it begins to wait
        self.begun: dict[int, int] = {}

    def bit(self, event: Post | Wait) -> int:
        """The bit position of a post or wait."""
        return event.number + (self._count if isinstance(event, Wait) else 0)

    def is_before(self, one: Post | Wait, two: Post | Wait) -> bool:
        """Whether one always happens before two."""
        return bool(self.before[self.bit(two)] >> self.bit(one) & 1)

    def settle(self) -> None:
        """Compute happens-before along programs, tasks and waits; a wait depends on the posts it needs of its own
        signals, and on other posts it needs that are not implied by these.
        """
        self._necessity.settle()
        last: dict[tuple[int, int], int] = {}
        of_task: dict[int, int] = defaultdict(int)
        for event in in_order(self.signals):
            key = (event.block.number, event.lane)
            known = last.get(key)
            if known is None:
                known = 0
                for number, bits in of_task.items():
                    known |= bits if event.block.task.after(number) else 0
            if isinstance(event, Wait):
                self.begun[event.number] = known
                known = self._rest(event, known)
            self.before[self.bit(event)] = known
            last[key] = known | 1 << self.bit(event)
            of_task[event.block.task.number] |= last[key]

    def _rest(self, wait: Wait, known: int) -> int:
        needed = self._necessity.needed[wait.number]
        own = {p.number for e in wait.elements for p in self.by_element.get(e, ()) if needed >> p.number & 1}
        for post in {*own, *wait.posts}:
            known |= self.before[post] | 1 << post
        missing = needed & ~known
        while missing:
            post = missing.bit_length() - 1
            own.add(post)
            known |= self.before[post] | 1 << post
            missing &= ~known
        self.rests[wait.number] = {*own, *wait.posts}
        return known

    def possible(self, wait: Wait, element: Element) -> list[Post]:
        """Notifications of an element that may come before a wait ends."""
        return [post for post in self.by_element.get(element, ()) if not self.is_before(wait, post)]


def _check_element(context: Context, order: _Order, element: Element, posts: list[Post]) -> None:
    """Report settings that are unordered, without effect, or overwritten unseen; and sums that pass a value waited
    for.
    """
    name = context.buffers[element[0]].describe()
    waits = [w for w in context.signals.waits if element in w.elements]
    for one, two in pairwise(posts):
        if SETS not in (one.op, two.op):
            continue
        if not order.is_before(one, two):
            message = f"two notifications of a signal of {name} that nothing orders: which one stays is not fixed"
            _report(context, "race", message, two, one, "wait for the first before the second, add, or use two signals")
        elif two.op == SETS and two.value == two.before:
            message = f"the signal of {name} is {two.value} already: this notification looks like the one before"
            _report(context, "flag-misuse", message, two, one, "set another value each time, or add")
        elif two.op == SETS and _is_missed(order, waits, one, two):
            message = f"the signal of {name} is set to {two.value} while nobody surely saw that it was {two.before}"
            _report(context, "flag-misuse", message, two, one, "wait for an answer before the next setting")
    _check_equal(context, order, element, waits)


def _check_values(context: Context, order: _Order, element: Element, posts: list[Post]) -> None:
    """Report uses of a signal that had a value in this run only by chance: a notification that came first gave it."""
    buffer = context.buffers[element[0]]
    if buffer.external or buffer.shadow.holds(element[1]):
        return
    gives = sum(1 << order.bit(post) for post in posts if post.op == SETS)
    waits = [w for w in context.signals.waits if element in w.elements and not w.is_unset]
    late: list[tuple[str, Post | Wait]]
    late = [("a wait looks at", wait) for wait in waits if not order.begun[wait.number] & gives]
    adds = [post for post in posts if post.op != SETS and not post.is_unset]
    late += [("tnotify adds to", post) for post in adds if not order.before[order.bit(post)] & gives]
    for verb, event in late:
        context.report(*unset(verb, buffer), event.block, buffer.name, where=event.where)


def _is_missed(order: _Order, waits: list[Wait], one: Post, two: Post) -> bool:
    """Whether somebody waits for the value of one, and may find that of two instead."""
    wanted = [w for w in waits if w.holds(two.before) and not w.holds(two.value)]
    return bool(wanted) and not any(order.is_before(one, w) and order.is_before(w, two) for w in wanted)


def _check_equal(context: Context, order: _Order, element: Element, waits: list[Wait]) -> None:
    """Report a wait for one exact sum that may have changed before the wait looks."""
    start, name = context.signals.initial[element], context.buffers[element[0]].describe()
    for wait in waits:
        posts = order.possible(wait, element)
        total = start + sum(post.value for post in posts)
        adds = posts and all(post.op != SETS and post.value > 0 for post in posts)
        if adds and wait.op == "eq" and total > wait.target:
            message = f"twait for exactly {wait.target}: the signal of {name} may reach {total} before it looks"
            hint = "wait for ge, or let nobody add before the wait is over"
            others = (Other("adds to it", posts[-1].where),)
            context.log.add(Finding("flag-misuse", message, wait.where, others, hint), element)


def _report(context: Context, kind: str, message: str, post: Post, other: Post, hint: str) -> None:
    where = f" [{post.block.task.describe()}, block {post.block.index}]"
    context.log.add(Finding(kind, message + where, post.where, (Other("the one before", other.where),), hint), message)


def _check_residency(context: Context, order: _Order) -> None:
    """Report waits for blocks that need not have started."""
    for wait in context.signals.waits:
        mine = wait.block
        for post in (context.signals.posts[p] for p in order.rests[wait.number]):
            theirs = post.block
            same = theirs.task is mine.task
            fine = theirs is mine or mine.task.after(theirs.task.number)
            fine = fine or (same and (mine.task.record.sync_start or theirs.index < mine.index))
            if not fine and post.element is not None:
                who = f"block {theirs.index}" if same else theirs.task.describe()
                context.log.add(
                    Finding(
                        "deadlock",
                        f"{mine.task.describe()}, block {mine.index} waits for {who}, and nothing makes that begin: "
                        "where blocks that wait have all cores, nobody goes on",
                        wait.where,
                        (Other("the notification", post.where),),
                        "submit the blocks as one task with sync_start=True, or wait by a dependence (deps=)",
                    ),
                    (mine.task.number, theirs.task.number),
                )


# Device memory


def _check_memory(context: Context) -> None:
    """Accesses of blocks that use signals, and that no task orders, must be ordered by signals."""
    recording, signals = context.recording, context.signals
    rows = recording.array()
    kinds = CLASSES[rows["op"]]
    block = np.repeat(np.arange(len(recording.block_task)), np.diff(recording.firsts()))
    part = np.isin(block, sorted(signals.posted | signals.waited))
    accesses = np.flatnonzero(part & np.isin(kinds, (LOAD, STORE, SCALAR)) & (rows["c"] >= 0))
    pairs = [(a, b) for a, b in _meetings(context, rows, kinds, accesses, block) if _is_open(context, block, a, b)]
    if not pairs:
        return
    known = _Known(context, sorted({row for pair in pairs for row in pair}), block)
    reported = set()
    site = rows["site"]
    for one, two in pairs:
        if known.orders(one, two) or known.orders(two, one):
            continue
        key = (int(site[one]), int(site[two]))
        if key not in reported:
            reported.add(key)
            context.log.add(_unordered(context, rows, block, one, two), key)


def _meetings(context: Context, rows: Array, kinds: Array, accesses: Array, block: Array) -> list[tuple[int, int]]:
    """Pairs of rows of different blocks that touch the same elements, at least one a store."""
    patterns, found = context.recording.tables.patterns, []
    reach = np.array([(extent(0, p.shape, p.strides)[1]) * p.itemsize for p in patterns], np.int64)
    by_buffer: dict[int, list[int]] = defaultdict(list)
    buffer, start, pattern, op = rows["c"], rows["x"], rows["y"], rows["op"]
    for row in accesses.tolist():
        by_buffer[int(buffer[row])].append(row)
    add = NAMES.index("tstore_add")
    for members in by_buffer.values():
        members.sort(key=lambda r: int(start[r]))
        live: list[int] = []
        for row in members:
            low = int(start[row])
            live = [r for r in live if int(start[r]) + int(reach[pattern[r]]) > low]
            for other in live:
                stores = STORE in (kinds[row], kinds[other])
                both_add = op[row] == op[other] == add
                conflict = block[row] != block[other] and stores and not both_add
                if conflict and memory_meets(context.recording, rows[row], rows[other]):
                    found.append((min(row, other), max(row, other)))
            live.append(row)
    return found


def _is_open(context: Context, block: Array, one: int, two: int) -> bool:
    """Whether tasks leave two rows unordered, so that signals must order them."""
    first, second = int(block[one]), int(block[two])
    tasks = context.task_of(first), context.task_of(second)
    if tasks[0].after(tasks[1].number) or tasks[1].after(tasks[0].number):
        return False
    may = context.signals.may_order
    return may(first, second) or may(second, first)


class _Known:
    """Happens-before between rows of different blocks: clocks of the rows, and the waits that each post leads to."""

    def __init__(self, context: Context, watched: list[int], block: Array):
        recording = context.recording
        self._posts, self._waits = recording.numbered(POST), recording.numbered(AWAIT)
        wanted = sorted({*watched, *self._posts.values()})
        table = posts_table(recording, wanted)
        inspect(recording, context.chip, len(context.buffers), posts=table)
        self._clock = dict(zip(wanted, table.clocks, strict=True))
        for number, row in self._posts.items():
            self._clock[row] = table.carried[number]
        rows = recording.array()
        lane, pipe = rows["lane"], rows["pipe"]
        self._thread = lane.astype(np.int64) * PER_LANE + pipe
        self._seq = _sequence(self._thread, block)
        self._block = block
        self._of_block: dict[int, list[int]] = defaultdict(list)
        for number, row in self._posts.items():
            self._of_block[int(block[row])].append(number)
        self._reach = self._reached(recording.rests_on)

    def _done(self, row: int, at: int) -> bool:
        """Whether a row of the same block is done when row `at` begins."""
        return bool(self._seq[row] < self._clock[at][self._thread[row]])

    def _reached(self, rests_on: list[tuple[int, ...]]) -> dict[int, set[int]]:
        """For each post the waits that come after it, directly or through others."""
        after: dict[int, list[int]] = defaultdict(list)
        for wait, posts in enumerate(rests_on):
            for post in posts if wait in self._waits else ():
                after[post].append(wait)
        reach: dict[int, set[int]] = {}
        for post in sorted(self._posts, reverse=True):
            found: set[int] = set()
            for wait in after[post]:
                row = self._waits[wait]
                found.add(wait)
                for other in self._of_block[int(self._block[row])]:
                    if other in reach and self._done(row, self._posts[other]):
                        found |= reach[other]
            reach[post] = found
        return reach

    def orders(self, one: int, two: int) -> bool:
        """Whether row one is always done before row two of another block begins."""
        here = int(self._block[two])
        for post in self._of_block[int(self._block[one])]:
            if self._done(one, self._posts[post]):
                for wait in self._reach[post]:
                    row = self._waits[wait]
                    if int(self._block[row]) == here and self._done(row, two):
                        return True
        return False


def _sequence(thread: Array, block: Array) -> Array:
    """For each row how many rows of its block and pipe come before it."""
    order = np.lexsort((thread, block))
    same = (np.diff(thread[order]) == 0) & (np.diff(block[order]) == 0)
    starts = np.flatnonzero(np.concatenate([[True], ~same]))
    sequence = np.empty(len(thread), np.int64)
    lengths = np.diff([*starts.tolist(), len(thread)])
    sequence[order] = np.arange(len(thread)) - np.repeat(starts, lengths)
    return sequence


def _unordered(context: Context, rows: Array, block: Array, one: int, two: int) -> Finding:
    sites, recording = context.recording.tables.sites, context.recording
    op, lane, site, buffer = rows["op"], rows["lane"], rows["site"], rows["c"]
    acts = [f"{NAMES[op[r]]} of {LANES[lane[r]]} in block {recording.block_index[block[r]]}" for r in (one, two)]
    task = context.task_of(int(block[two]))
    return Finding(
        "race",
        f"{acts[1]} and {acts[0]} touch the same elements of {context.buffers[buffer[two]].describe()}, and no "
        f"signal surely orders them [{task.describe()}]",
        sites[site[two]],
        (Other("the other operation", sites[site[one]]),),
        "post only what is done: set_flag and wait_flag to the posting pipe (or pipe_barrier(ALL)) before it; and wait "
        "before the access, for each post that it needs",
    )
