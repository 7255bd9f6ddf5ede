"""The operations by which cores signal each other: flags between cores, tnotify and twait, and tput."""

from collections.abc import Callable
from sys import _getframe
from types import FrameType
from typing import Any

from kernbench.common.errors import unknown
from kernbench.npu.core.microscaling import Scaled
from kernbench.npu.isa.mistakes import refusing
from kernbench.npu.isa.operations import OPERATIONS, Operation
from kernbench.npu.isa.units import AIC, AIV0, AIV1, LANES, PIPE_NUMBER, PIPES, S
from kernbench.npu.recording.record import NONE, ROW
from kernbench.npu.tasks.predicates import OPERATORS
from kernbench.npu.tasks.signals import ADDS, MOST_COUNT, MOST_FLAGS, SETS, Key, elements_of, unset
from kernbench.npu.tasks.tensors import Tensor

__kernbench_internal__ = True
ALL_CORES, VECTORS, CLUSTER = 0, 1, 2
_S = PIPE_NUMBER[S]
_FFTS, _INTRA, _NOTIFY, _WAIT_DEV, _WAIT_INTRA, _WAIT, _POLL = (
    OPERATIONS[name]
    for name in (
        "ffts_cross_core_sync", "set_intra_block", "tnotify", "wait_flag_dev", "wait_intra_block", "twait", "poll",
    )
)  # fmt: skip
# most rows between two polls of one loop
_BETWEEN_POLLS = 8


class Signalling(Scaled):
    """Posts and waits."""

    wait: Callable[..., None]
    """Set by the executor of the block: yields to other lanes until a condition holds."""

    _polled: dict[tuple[int, int], tuple[tuple[int, int], int, int]]
    """By block and lane: the element that was polled last, its value, and the number of rows at that time."""

    # Flags between cores

    def ffts_cross_core_sync(self, pipe: str, flag: int, mode: int = CLUSTER) -> None:
        """Increment flag `flag` when all that `pipe` was given so far is done: mode 2 for the other side of the cluster
        (the AIC reaches both AIVs), 1 for the AIVs of the cluster, 0 for all cores of this kind of all blocks.
        """
        frame = self._here(_FFTS, "broadcast")
        self._check_flag(_FFTS, pipe, flag, MOST_FLAGS)
        lanes = self.block.task.record.lanes
        if mode == CLUSTER:
            targets = [lane for lane in lanes if (lane == AIC) != (self.lane == AIC)]
            keys = [(self.block.number, lane, flag) for lane in targets]
        elif mode in (ALL_CORES, VECTORS):
            if mode == VECTORS and self.lane == AIC:
                self.context.fail("misuse", "ffts_cross_core_sync: mode 1 is between the AIVs of a cluster")
            keys = self._of_kind(mode, flag)
        else:
            self.context.fail("misuse", f"ffts_cross_core_sync: mode {mode!r}; it is 0, 1 or 2")
        if not keys:
            self.context.fail("misuse", f"ffts_cross_core_sync: no core of {self.block.task.describe()} is reached")
        self._raise(_FFTS, frame, pipe, keys, flag)

    def _of_kind(self, mode: int, flag: int) -> list[Key]:
        """The flags that a post to all cores of a kind reaches: of the block, or of all blocks of the task."""
        task, cube = self.block.task, self.lane == AIC
        lanes = [lane for lane in task.record.lanes if (lane == AIC) == cube]
        if mode == VECTORS:
            return [(self.block.number, lane, flag) for lane in lanes]
        if not task.record.sync_start and task.record.blocks > 1:
            self.report(
                "deadlock",
                f"all {task.record.blocks} blocks of {task.describe()} wait for each other, and nothing starts them "
                "together: where some have no core, those that have one wait for ever",
                "submit with sync_start=True",
                "together",
            )
        return [("all", task.number, index, lane, flag) for index in range(task.record.blocks) for lane in lanes]

    def wait_flag_dev(self, flag: int) -> None:
        """Stall the core until the flag was incremented by all cores that it comes from, and decrement it for each."""
        frame = self._here(_WAIT_DEV, "broadcast")
        self._check_flag(_WAIT_DEV, S, flag, MOST_FLAGS)
        self._lower(_WAIT_DEV, frame, S, flag, self._sources(flag))

    def _sources(self, flag: int) -> "list[tuple[tuple[object, ...], tuple[object, ...]]]":
        """The flags of this core that may end the wait, and the posts that each needs."""
        task, here = self.block.task, self.block.number
        lanes = task.record.lanes
        across = tuple((here, lane) for lane in lanes if (lane == AIC) != (self.lane == AIC))
        beside = tuple((here, lane) for lane in lanes if lane in (AIV0, AIV1) and self.lane != AIC)
        kind = [lane for lane in lanes if (lane == AIC) == (self.lane == AIC)]
        everyone = tuple(("all", index, lane) for index in range(task.record.blocks) for lane in kind)
        own = (here, self.lane, flag)
        everywhere = ("all", task.number, self.block.index, self.lane, flag)
        return [(own, across), (own, beside), (everywhere, everyone)]

    def set_intra_block(self, pipe: str, flag: int) -> None:
        """Increment a flag when all that `pipe` was given so far is done: on an AIC 0 to 15 are those of AIV0 and 16 to
        31 those of AIV1; an AIV has 0 to 15, which the AIC knows by the same numbers.
        """
        frame = self._here(_INTRA, "single")
        self._check_flag(_INTRA, pipe, flag, 2 * MOST_FLAGS if self.lane == AIC else MOST_FLAGS)
        vector = (AIV1 if flag >= MOST_FLAGS else AIV0) if self.lane == AIC else self.lane
        target = vector if self.lane == AIC else AIC
        if target not in self.block.task.record.lanes:
            self.context.fail("misuse", f"set_intra_block: {self.block.task.describe()} has no {LANES[target]}")
        number = flag % MOST_FLAGS + (MOST_FLAGS if vector == AIV1 and target == AIC else 0)
        self._raise(_INTRA, frame, pipe, [(self.block.number, target, number)], flag)

    def wait_intra_block(self, pipe: str, flag: int) -> None:
        """Stall `pipe` until the flag was incremented, and decrement it; numbers are those of set_intra_block."""
        frame = self._here(_WAIT_INTRA, "single")
        self._check_flag(_WAIT_INTRA, pipe, flag, 2 * MOST_FLAGS if self.lane == AIC else MOST_FLAGS)
        source = (AIV1 if flag >= MOST_FLAGS else AIV0) if self.lane == AIC else AIC
        own = (self.block.number, self.lane, flag)
        self._lower(_WAIT_INTRA, frame, pipe, flag, [(own, ((self.block.number, source),))])

    def _here(self, op: Operation, wanted: str) -> FrameType:
        """The frame of the kernel; the operation is refused on chips of the other kind."""
        frame = _getframe(2)
        if frame is not self._frame:
            self._entered(frame)
        chip = self.context.chip
        if chip.isa.cross_core != wanted:
            others = "set_intra_block and wait_intra_block", "ffts_cross_core_sync and wait_flag_dev"
            names = others[chip.isa.cross_core == "broadcast"]
            self.context.fail("misuse", f"{op.name}: chip {chip.name} has none; its cores signal each other by {names}")
        return frame

    @refusing
    def _check_flag(self, op: Operation, pipe: str, flag: object, most: int) -> None:
        self._check_pipe(op.name, pipe)
        if isinstance(flag, bool) or not isinstance(flag, int) or not 0 <= flag < most:
            self.context.fail("misuse", f"{op.name}: flag {flag!r}; flags are 0 to {most - 1}")

    def _raise(self, op: Operation, frame: FrameType, pipe: str, keys: list[Key], flag: int) -> None:
        """Post to the flags of other cores."""
        signals, site = self.context.signals, self.sites.here(2)
        where = self.sites.locations[site]
        post = signals.post(self.block, self.lane, PIPE_NUMBER[pipe], where)
        self._append(ROW.pack(op.code, self.lane, PIPE_NUMBER[pipe], site, NONE, NONE, NONE, NONE, post.number, 0))
        for key in keys:
            who = ("all", self.block.index, self.lane) if key[0] == "all" else (self.block.number, self.lane)
            up = signals.flag(key).posts.setdefault(who, [])
            if up and up[-1].pipe != post.pipe:
                message = (
                    f"flag {flag} is counted up by pipes {PIPES[up[-1].pipe]} and {PIPES[post.pipe]} of one core, and "
                    "nothing says which comes first"
                )
                self.report("flag-misuse", message, "use another flag for each pipe", flag)
            up.append(post)
            if len(up) > MOST_COUNT:
                message = f"flag {flag} is counted up {len(up)} times and not waited for; a counter holds {MOST_COUNT}"
                self.report("flag-misuse", message, "wait for it on the other side before counting on", flag)

    def _lower(self, op: Operation, frame: FrameType, pipe: str, flag: int, ways: list[Any]) -> None:
        """Wait for the flags of other cores, in one of the modes in which they may come."""
        signals, site = self.context.signals, self.sites.here(2)
        where = self.sites.locations[site]

        def way() -> Any:
            for key, who in ways:
                up = signals.flag(key).posts
                if who and all(up.get(w) for w in who):
                    return key, who
            return None

        if way() is None:
            is_local, explain = ways[-1][0][0] != "all", lambda: self._missing(flag, ways)
            self.wait(None, f"{op.name}({flag})", lambda: way() is not None, where, explain, is_local)
        key, who = way()
        posts = tuple(signals.flag(key).posts[w].pop(0).number for w in who)
        made = signals.wait(self.block, self.lane, where, posts=posts)
        self._append(ROW.pack(op.code, self.lane, PIPE_NUMBER[pipe], site, NONE, NONE, NONE, NONE, made.number, 0))

    def _missing(self, flag: int, ways: list[Any]) -> str:
        """Why a wait for a flag has not ended."""
        for key, who in ways:
            up = self.context.signals.flag(key).posts
            if who and any(up.get(w) for w in who):
                names = ", ".join(_name(w) for w in who if not up.get(w))
                return f"flag {flag} was not counted up by {names}"
        return f"nobody counts flag {flag} up for it"

    # Signals in device memory

    def tnotify(self, signal: Tensor, value: int, op: str = SETS) -> None:
        """Set a signal, one i32 element of a tensor, or add to it (`op="add"`). It is sent when the scalar unit reaches
        it: earlier work of other pipes must be waited for before.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._check_signal("tnotify", signal, value)
        if op not in (SETS, ADDS):
            self.context.fail("misuse", unknown("operation of tnotify", op, (SETS, ADDS)))
        if signal.shape and elements_count(signal) != 1:
            self.context.fail("shape", f"tnotify: one element is wanted; got {signal!r}")
        if signal.binding is not None and not signal.binding.writes:
            self.report("argument-direction", f"{signal.buffer.describe()} is declared IN, and notified",
                        "declare it INOUT", signal.name)  # fmt: skip
        self._mark_written(signal)
        site, (element,) = self.sites.here(), elements_of(signal)
        array = signal.buffer.array
        assert array is not None
        before = int(array[signal.offset])
        is_unset = op == ADDS and self._lack_value("tnotify adds to", signal, (element,))
        signal.buffer.shadow.notify(signal, self.block, self.sites.here())
        signals = self.context.signals
        signals.initial.setdefault(element, before)
        array[signal.offset] = value if op == SETS else _wrapped(before + value)
        where = self.sites.locations[site]
        post = signals.post(self.block, self.lane, _S, where, element=element, op=op, value=value, before=before,
                            is_unset=is_unset)  # fmt: skip
        self._append(ROW.pack(_NOTIFY.code, self.lane, _S, site, NONE, NONE, NONE, NONE, post.number, 0))

    def twait(self, signals: Tensor, value: int, cmp: str = "eq") -> None:
        """Stall until all elements of a view of i32 signals compare (eq, ne, gt, ge, lt, le) with `value`."""
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._check_signal("twait", signals, value)
        if cmp not in OPERATORS:
            self.context.fail("misuse", unknown("comparison of twait", cmp, OPERATORS))
        site = self.sites.here()
        where, known, elements = self.sites.locations[site], self.context.signals, elements_of(signals)
        array = signals.buffer.array
        assert array is not None
        for number, offset in elements:
            known.initial.setdefault((number, offset), int(array[offset]))
        compare = OPERATORS[cmp]
        is_unset = self._begins_to_wait(signals, elements)

        def can_go() -> bool:
            return all(compare(int(array[offset]), value) for _, offset in elements)

        if not can_go():
            self.wait(None, "twait", can_go, where, lambda: self._unsatisfied(signals, elements, cmp, value), False)
        made = known.wait(self.block, self.lane, where, elements=elements, op=cmp, target=value, is_unset=is_unset)
        self._append(ROW.pack(_WAIT.code, self.lane, _S, site, NONE, NONE, NONE, NONE, made.number, 0))

    def poll(self, signal: Tensor) -> int:
        """The current value of one i32 element of a tensor in memory, bypassing the cache. A program that polls again
        with hardly any work in between waits until the element is notified: a loop of polls is a wait.

        What follows the poll is ordered after the notifications that its value requires.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._check_signal("poll", signal, 0)
        self.context.recording.observers.add("poll")
        site, (element,) = self.sites.here(), elements_of(signal)
        where, known, array = self.sites.locations[site], self.context.signals, signal.buffer.array
        assert array is not None
        offset, rows = element[1], self.context.recording.rows
        value = int(array[offset])
        is_unset = self._begins_to_wait(signal, (element,))
        start = known.initial.setdefault(element, value)
        key = (self.block.number, self.lane)
        last = self._polled.get(key)
        if last is not None and last[:2] == (element, value) and len(rows) - last[2] <= _BETWEEN_POLLS:
            self.wait(
                None, "poll", lambda: int(array[offset]) != value, where, lambda: self._unchanged(signal, value), False
            )
            value = int(array[offset])
        before = last[1] if last is not None and last[0] == element else start
        if value != before:
            way = "ge" if value > before else "le"
            made = known.wait(self.block, self.lane, where, elements=(element,), op=way, target=value,
                               is_unset=is_unset)  # fmt: skip
            self._append(ROW.pack(_POLL.code, self.lane, _S, site, NONE, NONE, NONE, NONE, made.number, 0))
        self._polled[key] = (element, value, len(rows))
        return value

    def _unchanged(self, signal: Tensor, value: int) -> str:
        sent = sum(p.element in elements_of(signal) for p in self.context.signals.posts)
        return (
            f"element {signal.offset} of {signal.buffer.describe()} is {value} each time it is read, and nobody "
            f"changes it any more; {sent} notifications were sent to it"
        )

    def _unsatisfied(self, tensor: Tensor, elements: tuple[tuple[int, int], ...], cmp: str, value: int) -> str:
        array = tensor.buffer.array
        assert array is not None
        left = [o for _, o in elements if not OPERATORS[cmp](int(array[o]), value)]
        sent = sum(p.element in elements for p in self.context.signals.posts)
        return (
            f"{len(left)} of {len(elements)} signals of {tensor.buffer.describe()} are not {cmp} {value}, element "
            f"{left[0]} is {int(array[left[0]])}; {sent} notifications were sent to them"
        )

    def _begins_to_wait(self, signals: Tensor, elements: tuple[tuple[int, int], ...]) -> bool:
        """Report what tasks store into the signals and nothing orders, and signals without a value; whether there were
        any of these.
        """
        site = self.sites.here(2)
        for _, offset in elements:
            signals.buffer.shadow.use_signal(offset, self.block, site)
        return self._lack_value("a wait looks at", signals, elements)

    def _lack_value(self, verb: str, signals: Tensor, elements: tuple[tuple[int, int], ...]) -> bool:
        """Report if an element has no value yet; whether it was so."""
        shadow = signals.buffer.shadow
        if all(shadow.has_value(offset) for _, offset in elements):
            return False
        self.report(*unset(verb, signals.buffer), signals.buffer.name)
        return True

    @refusing
    def _check_signal(self, name: str, signal: Tensor, value: int) -> None:
        if not isinstance(signal, Tensor) or signal.dtype != "i32":
            self.context.fail("dtype", f"{name}: signals are elements of an i32 tensor; got {signal!r}")
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
            self.context.fail("misuse", f"{name}: a whole number of 32 bits is wanted, got {value!r}")
        if signal.binding is None or signal.binding.task is not self.block.task:
            self._undeclared(name, signal)
        if signal.broken:
            self.context.fail("out-of-bounds", f"{name}: signals outside {signal.buffer.describe()}")

    def _undeclared(self, verb: str, tensor: Tensor) -> None:
        raise NotImplementedError

    def _mark_written(self, tensor: Tensor) -> None:
        raise NotImplementedError


def elements_count(tensor: Tensor) -> int:
    """Elements of a view."""
    return len(elements_of(tensor))


def _wrapped(value: int) -> int:
    """Wrapped to the range of i32."""
    return (value + 2**31) % 2**32 - 2**31


def _name(who: Key) -> str:
    return f"{LANES[who[-1]]} of block {who[1]}" if who[0] == "all" else LANES[who[-1]]
