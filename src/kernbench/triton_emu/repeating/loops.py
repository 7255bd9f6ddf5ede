"""`tl.range` in a run without data: iterations that are alike run a few times, and are recorded as often as there are.

At each boundary between two iterations the state that the next one can depend on is taken down (`loop_state`). Once two
boundaries in a row are alike up to a shift of handle numbers and a permutation of scratch blocks, the iterations that
follow, all but the last, are recorded by repeating the rows of the one between them (`folding`). The last one runs,
with a plain number as its index, and its rows must be the predicted ones: if a body has hidden state after all, the
launch is run again with every iteration (`UnlikeIterationError`). A loop statement of which that was seen is trusted:
when it is entered again its last iteration is repeated, too, except at some entries, fewer and fewer (`Trust`).

Iterations are not alike, and all of them run, where a body looks at its index, sends or receives, prints, allocates or
reads values, or where a state cannot be compared.
"""

import dis
import sys
from collections.abc import Iterable, Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_OPTIMIZED
from pickle import PickleError
from types import CodeType, FrameType
from typing import Any

from kernbench.common.dtypes import Array
from kernbench.result.finding import SourceLocation
from kernbench.triton_emu.pe.port import Passed, Port, Shape
from kernbench.triton_emu.pe.scratch import ScratchPool
from kernbench.triton_emu.repeating.affine import Affine, Terms, Watched
from kernbench.triton_emu.repeating.asking import frame_asks_for_types
from kernbench.triton_emu.repeating.folding import Boundary, Fold
from kernbench.triton_emu.repeating.loop_state import UnknownStateError
from kernbench.triton_emu.repeating.recorder import Recorder
from kernbench.triton_emu.repeating.replay import NotAlikeError, UnlikeIterationError

__all__ = ["Access", "Loop", "Trust", "UnlikeIterationError", "Watch", "loop"]

__kernbench_internal__ = True

# boundaries that are compared before a loop is taken to be irregular
MOST_BOUNDARIES = 6
# boundaries after which a loop of this many iterations does not wait for shelves to fill
SETTLED, LONG = 4, 32
# iterations below which comparing costs more than running; fewer are enough where the first took that many commands
FEWEST = 16
FEWEST_LONG, LONG_BODY = 5, 1000
# commands still to come below which, with data, comparing and noting cost more than running them
WORTH_COMPUTING = 1024
# what a port may be asked without anything being done
_HARMLESS = frozenset(
    ("unwatched", "lent_at", "element_type", "tensor_name", "is_late", "carries_data", "over_budget", "pause")
)
_GENERATORS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


# how many boundaries at the beginning of a loop were unlike the rest when it was folded last: a loop that is entered
# again will be no different, and they are not looked at
_UNLIKE: dict[tuple[CodeType, int], int] = {}


class Trust:
    """Of the loop statements of a launch, how often each was folded to its end: the last iteration runs at the first of
    these entries, the fourth, the sixteenth and so on.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[CodeType, int], int] = {}
        # in a run with data, loops whose iterations are not alike: comparing them again would not pay
        self.irregular: set[tuple[CodeType, int]] = set()
        # whether code may ask for the type of its indices
        self._asking: dict[CodeType, bool] = {}

    def asks_for_types(self, frame: FrameType) -> bool:
        """Whether the code of a frame may ask for the type of a number."""
        found = self._asking.get(frame.f_code)
        if found is None:
            found = self._asking[frame.f_code] = frame_asks_for_types(frame)
        return found

    def runs_last(self, where: tuple[CodeType, int]) -> bool:
        """Whether the last iteration of a loop that is about to be folded must run."""
        # how many entries are a power of four
        count = self._entries.get(where, 0) + 1
        return count & (count - 1) == 0 and count.bit_length() % 2 == 1

    def note(self, where: tuple[CodeType, int]) -> None:
        """A loop was folded to its end, and its last iteration was as predicted if it ran."""
        self._entries[where] = self._entries.get(where, 0) + 1


class WatchedPort:
    """A port while loops are watched: counts what a repeated iteration would have to do again."""

    def __init__(self, port: Port):
        self.port = port
        self.effects = 0
        # messages without data, where somebody notes them: a routine sends and receives them again
        self.messages: list[Passed] | None = None
        # what is found here costs no more than with the port itself
        self.__dict__.update((name, getattr(port, name)) for name in _HARMLESS)
        if port.carries_data:
            # made again, with their checks, where iterations are computed without the kernel
            self.__dict__.update(load=port.load, store=port.store)

    def __getattr__(self, name: str) -> Any:
        self.effects += 1
        return getattr(self.port, name)

    def load(self, *args: Any) -> tuple[Array | None, str]:
        """A load that gives values, of integers say, is not repeated."""
        found = self.port.load(*args)
        self.effects += found[0] is not None
        return found

    def send_now(self, direction: str, data: Array | None, shape: Shape, dtype: str, where: SourceLocation) -> None:
        """A message that leaves is an effect; one without data may be noted."""
        self.effects += 1
        if self.messages is not None and data is None:
            self.messages.append(Passed(True, direction, shape, dtype, where))
        self.port.send_now(direction, data, shape, dtype, where)

    def recv_now(
        self, direction: str, shape: Shape, dtype: str | None, where: SourceLocation
    ) -> tuple[Array | None, str]:
        """So is one that comes; what has no type of its own in the kernel may be another one each time."""
        self.effects += 1
        found = self.port.recv_now(direction, shape, dtype, where)
        if self.messages is not None and found[0] is None and dtype is not None:
            self.messages.append(Passed(False, direction, shape, dtype, where))
        return found

    def store(self, address: int, data: Array | None, *args: Any) -> int:
        """A store of values is not repeated."""
        self.effects += data is not None
        return self.port.store(address, data, *args)


class Access:
    """A load or store whose address depends on loops: its first row, and how it was repeated so far, as
    (times, rows further on, bytes further on).
    """

    __slots__ = ("address", "repeats", "row", "shape", "strides", "terms")

    def __init__(self, row: int, address: int, terms: Terms, shape: Shape, strides: Shape | None):
        self.row = row
        self.address = address
        self.terms = terms
        self.shape = shape
        self.strides = strides
        self.repeats: tuple[tuple[int, int, int], ...] = ()


class Watch:
    """What a context keeps while at least one loop is watched: the loops, outermost first, and their accesses."""

    def __init__(self, context: Recorder):
        self._context = context
        self.loops: list[Watched] = []
        self.accesses: list[Access] = []
        # how many loops were folded so far
        self.folds = 0
        # whether what the allocator does for repeated iterations is noted as well, and how much that was
        self.logs_all = False
        self.noted = 0
        # whether the program was given indices that stand for numbers
        self.gave_indices = False
        # shared by the programs of a launch
        self.trust = Trust()

    def open(self, loop: Watched) -> None:
        """Watch one more loop."""
        if not self.loops:
            self._context._port = WatchedPort(self._context._port)
            if not self._context.folds_values:
                self._context._scratch.start_log()
        self.loops.append(loop)

    def close(self, loop: Watched) -> None:
        """Watch it no longer."""
        if loop.is_open:
            loop.is_open = False
            self.loops.remove(loop)
            if not self.loops:
                self.noted = 0
                self.accesses.clear()
                self._context.trace = None
                if not self._context.folds_values:
                    self._context._scratch.stop_log()
                self._context._port = self._context._port.port

    def may_have_caused(self, error: BaseException) -> bool:
        """Whether a plain number might have done where an index that stands for one raised this, as in code of C that
        takes nothing else.
        """
        return self.gave_indices and isinstance(error, (TypeError, AttributeError, PickleError))

    def take(self, ptr: Affine, shape: Shape, strides: Shape | None) -> int:
        """The address that an access uses now."""
        if self.loops:
            self.accesses.append(Access(self._context.steps, ptr.now, ptr.terms, shape, strides))
        return ptr.now


class Loop:
    """The iterator of one `for ... in tl.range(...)`."""

    def __init__(self, context: Recorder, indices: range, where: tuple[CodeType, int]):
        self._context = context
        context.watch.gave_indices = True
        self._indices = indices
        self._where = where
        # what a loop begins with is seldom what it goes on with
        self._unlike = _UNLIKE.get(where, 1)
        self._next = 0
        self._watched: Watched | None = Watched()
        self._is_watching = len(indices) >= FEWEST
        self._row = context.steps
        self._effects = 0
        self._boundaries = 0
        self._before: Boundary | None = None
        self._fold: Fold | None = None
        if self._is_watching:
            context.watch.open(self._watched)

    def __iter__(self) -> "Loop":
        return self

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._watched is not None:
            if self._is_watching:
                self._context.watch.close(self._watched)
            self._watched.is_open = False
            self._watched = self._before = None

    def __next__(self) -> Any:
        self._context._scratch.settle()
        if self._fold is not None:
            self._check_last()
        elif self._watched is not None and (self._is_watching or self._begin()):
            self._look(sys._getframe(1))
        if self._next >= len(self._indices):
            self._leave()
            raise StopIteration
        index = self._indices[self._next]
        self._next += 1
        watched = self._watched
        return index if watched is None or self._fold is not None else Affine(index, ((watched, self._indices.step),))

    def _begin(self) -> bool:
        """Of a loop of few iterations, after the first: watch it if that was long and did not look at its index."""
        assert self._watched is not None
        if self._next == 0:
            return False
        if self._watched.was_seen or self._context.steps - self._row < LONG_BODY:
            self._leave()
            return False
        self._context.watch.open(self._watched)
        self._is_watching = True
        self._boundaries, self._effects = 1, self._context._port.effects
        return True

    def _look(self, frame: FrameType) -> None:
        """At a boundary: fold if the last iteration was like the one to come, stop watching if that will not be."""
        context, watched = self._context, self._watched
        assert watched is not None
        self._boundaries += 1
        if self._boundaries <= self._unlike:
            if self._boundaries == 1:
                self._effects = context._port.effects
            return
        left = len(self._indices) - self._next
        irregular = watched.was_seen or context._port.effects != self._effects or self._is_short(left)
        kept = 1 if context.watch.trust.runs_last(self._where) else 0
        if irregular or left <= kept or self._boundaries > MOST_BOUNDARIES:
            self._give_up()
            return
        if context.folds_values and context.trace is None:
            # what came before the first boundary is not compared
            context.trace = []
        try:
            now = Boundary(context, frame)
            if self._before is not None and now.row > self._before.row:
                fold = Fold(context, watched, self._before, now)
                # new shelves fill in the first iterations of a loop: a long one waits for them
                if fold.is_settled or self._boundaries >= SETTLED or left < LONG:
                    self._repeat(fold, now, left - kept)
            self._before = now.bare()
        except UnknownStateError:
            self._give_up()
        except NotAlikeError:
            self._before = now.bare()

    def _is_short(self, left: int) -> bool:
        """Whether, with data, the iterations that are left are so few commands that they had better run."""
        rows, self._row = self._context.steps - self._row, self._context.steps
        return self._context.folds_values and self._next > 0 and rows * left < WORTH_COMPUTING

    def _give_up(self) -> None:
        if self._context.folds_values:
            self._context.watch.trust.irregular.add(self._where)
        self._leave()

    def _repeat(self, fold: Fold, now: Boundary, wanted: int) -> None:
        """Record `wanted` iterations, or as many as are in bounds and within the budget; the rest runs."""
        times = fold.times(wanted)
        if times < 1:
            self._leave()
            return
        fold.repeat(now, times)
        self._next += times
        _UNLIKE[self._where] = max(1, self._boundaries - 2)
        if times == wanted and self._next < len(self._indices):
            self._fold = fold
            if len(self._context.watch.loops) < 2:
                # nobody computes the last iteration again
                self._context.trace = None
            return
        if times == wanted:
            self._context.watch.trust.note(self._where)
        self._leave()

    def _check_last(self) -> None:
        """The iteration that ran after the fold must have recorded what the fold predicts."""
        assert self._fold is not None
        good = self._fold.predicts_last()
        self._fold = None
        self._leave()
        if not good:
            self._context.folded_wrongly = True
            raise UnlikeIterationError
        self._context.watch.trust.note(self._where)


def loop(context: Recorder, indices: range, frame: FrameType) -> Iterable[int]:
    """What `tl.range` gives to the line of `frame` that calls it: where that is a plain `for` statement with some
    iterations a watched loop in a context that folds, or one that leaves scratch memory as that would; else a range.
    """
    where = frame.f_code, frame.f_lasti
    if len(indices) < min(FEWEST, FEWEST_LONG) or not _is_for(*where) or context.watch.trust.asks_for_types(frame):
        return indices
    computes = context.folds_values and where not in context.watch.trust.irregular
    return Loop(context, indices, where) if context.folds or computes else _unwatched(context._scratch, indices)


def _unwatched(pool: ScratchPool, indices: range) -> Iterator[int]:
    """Indices; between iterations, memory that was given back is free, so that each begins with it like the others."""
    for index in indices:
        pool.settle()
        yield index
    pool.settle()


_FOR: dict[tuple[CodeType, int], bool] = {}


def _is_for(code: CodeType, call: int) -> bool:
    """Whether the instruction at `call` gives its result to a `for` statement, and nobody else gets it."""
    found = _FOR.get((code, call))
    if found is None:
        # up to Python 3.12 a call stands at the last of its caches
        plain = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
        at = max((n for n, i in enumerate(plain) if i.offset <= call), default=0)
        names = [i.opname for i in plain[at : at + 3]]
        direct = len(names) == 3 and names[0].startswith("CALL") and names[1:] == ["GET_ITER", "FOR_ITER"]
        # the variables of a class body or of a text that is executed are no copy
        plain_function = code.co_flags & CO_OPTIMIZED and not code.co_flags & _GENERATORS
        found = _FOR[code, call] = direct and bool(plain_function)
    return found
