"""`tl.routine`: a function that is called again with other addresses, recorded without running it (docs/adr/0029).

The first call of its kind runs, with numbers that notice every use but sums, multiples, and as addresses or ends of an
`arange` (`affine`). If nothing that it can reach was changed, it only computed, loaded and stored, and its values came
from free blocks of scratch memory, then a later call with the same arguments does the same, by induction over its
commands: the same rows, with numbers moved on, addresses in HBM moved by the difference of the given ones, and scratch
blocks taken from the same shelves in the same order. Before a function is trusted, one such call runs and must give the
predicted rows. Messages that it sent and received without data go again, one by one, before the rows are recorded; a
launch that does not end then runs again without any of this (docs/adr/0126).
"""

from collections.abc import Callable, Iterable
from types import CodeType
from typing import NamedTuple, TypeVar

from kernbench.triton_emu.repeating.affine import Affine, Watched
from kernbench.triton_emu.repeating.asking import function_asks_for_types
from kernbench.triton_emu.repeating.loop_state import State, UnknownStateError
from kernbench.triton_emu.repeating.recorder import Recorder
from kernbench.triton_emu.repeating.replay import NotAlikeError, UnlikeIterationError
from kernbench.triton_emu.repeating.template import Start, Template
from kernbench.triton_emu.repeating.witness import KnownStates

__kernbench_internal__ = True

# kinds of calls that a launch keeps; and of those that the numbers among what they depend on do not distinguish (of a
# function that is given directions in turn, say)
MOST_KINDS, MOST_ALIKE = 4096, 8
# commands below which repeating costs as much as running
FEWEST_COMMANDS = 16
Result = TypeVar("Result")
# a function, how many addresses it is given, a number of what it depends on; in front of them the program, if only its
# calls are known to do the same
Key = tuple[object, ...]


class Kind(NamedTuple):
    """A kind of call: what it depends on, and what repeats it; None where it is so short that it is not worth it."""

    marks: list[object]
    template: Template | None


class Known:
    """What the programs of a launch know of the functions that they call through `tl.routine`."""

    def __init__(self) -> None:
        # those of each key that were recorded last
        self.kinds: dict[Key, list[Kind]] = {}
        self._count = 0
        # functions whose calls are not alike, and those of which a prediction was right
        self.irregular: set[CodeType] = set()
        self.trusted: set[CodeType] = set()
        # what some program watches now: others that come to it meanwhile just run
        self.watched: set[Key] = set()
        # whether functions may ask for the type of the numbers they are given
        self._asking: dict[CodeType, bool] = {}

    def asks_for_types(self, function: Callable[..., object], code: CodeType) -> bool:
        """Whether a function may ask for the type of a number."""
        found = self._asking.get(code)
        if found is None:
            found = self._asking[code] = function_asks_for_types(function)
        return found

    def find(self, keys: Iterable[Key], marks: list[object]) -> Kind | None:
        """The kind of calls that depend on just this."""
        kinds = [kind for key in keys for kind in self.kinds.get(key, ())]
        # nearly always a state that was looked at is found again: the same list
        same = next((kind for kind in kinds if kind.marks is marks), None)
        return same or next((kind for kind in kinds if kind.marks == marks), None)

    def keep(self, key: Key, kind: Kind) -> None:
        """Keep a kind, in the place of the same one if there is one, and not too many."""
        before = self.kinds.pop(key, [])
        others = [one for one in before if one.marks is not kind.marks and one.marks != kind.marks]
        kept = [*others[-(MOST_ALIKE - 1) :], kind]
        self._count += len(kept) - len(before)
        while self._count > MOST_KINDS and self.kinds:
            self._count -= len(self.kinds.pop(next(iter(self.kinds))))
        self.kinds[key] = kept


class Routines:
    """The functions that one program calls through `tl.routine`."""

    def __init__(self, context: Recorder):
        self._context = context
        self.known = Known()
        self._states = KnownStates()

    def call(self, function: Callable[..., Result], args: tuple[object, ...], at: tuple[int, ...]) -> Result:
        """What the function gives for these arguments."""
        # what was given back so far is free before it begins, and what it gives back itself before anything follows: so
        # calls that are alike find and leave the memory alike
        self._context._scratch.settle()
        context, code = self._context, getattr(function, "__code__", None)
        known = type(code) is CodeType and code not in self.known.irregular and all(type(one) is int for one in at)
        if not known or not context.folds or context.watch.loops:
            return self._run(function, args, at)
        assert code is not None
        state = None if self.known.asks_for_types(function, code) else self._state((function, *args))
        if state is None:
            self.known.irregular.add(code)
            return self._run(function, args, at)
        key = (code, len(at), state.number)
        kind = self.known.find((key, (id(context), *key)), state.marks)
        template = None if kind is None else kind.template
        is_short = kind is not None and template is None
        # a launch whose time is up ends at a command that runs
        if is_short or key in self.known.watched or context._port.is_late():
            return self._run(function, args, at)
        if template is None or not template.fits(context, at):
            return self._recorded(key, state, function, args, at)
        if code in self.known.trusted:
            return self._repeated(template, function, args, at)
        return self._checked(template, code, function, args, at)

    def _repeated(
        self, template: Template, function: Callable[..., Result], args: tuple[object, ...], at: tuple[int, ...]
    ) -> Result:
        """Record it without running it. While its messages wait other programs run, which may change what it depends on
        behind its receive: then the launch is run again.
        """
        result: Result = template.repeat(self._context, at)
        if template.passes_messages:
            after = self._state((function, *args))
            if after is None or after.marks != template.marks:
                self._context.folded_wrongly = True
                raise UnlikeIterationError
        return result

    def _run(self, function: Callable[..., Result], args: tuple[object, ...], at: Iterable[int | Affine]) -> Result:
        result = function(*args, *at)
        self._context._scratch.settle()
        return result

    def _state(self, values: tuple[object, ...]) -> State | None:
        """What the function can depend on, None where that is not known or holds what only a run can follow."""
        known = self._states.find(values)
        if known is not None:
            return known
        try:
            state = State(None, self._context.opaque, values, self._context.tl)
        except UnknownStateError:
            return None
        if state.handles or state.indices or state.sees_addresses:
            return None
        self._states.keep(values, state)
        return state

    def _recorded(
        self,
        key: Key,
        state: State,
        function: Callable[..., Result],
        args: tuple[object, ...],
        at: tuple[int, ...],
    ) -> Result:
        """Run it, and keep what it did if that can be repeated."""
        context, watch = self._context, self._context.watch
        start = Start(context)
        self.known.watched.add(key)
        # one more than there are addresses: the port and the allocator are watched even if there is none
        watched = [Watched(start.spans) for _ in (*at, None)]
        for one in watched:
            watch.open(one)
        start.effects, watch.logs_all = context._port.effects, True
        context._port.messages = start.messages
        try:
            watch.gave_indices |= bool(at)
            numbers = [Affine(number, ((one, 1),)) for number, one in zip(at, watched, strict=False)]
            result = self._run(function, args, numbers)
            start.note(context)
        finally:
            start.restore(context)
            self.known.watched.discard(key)
            watch.logs_all, context._port.messages = False, None
            for one in watched:
                watch.close(one)
        if start.did_more or any(one.was_seen for one in watched):
            self.known.irregular.add(function.__code__)
            return result
        if context.steps - start.row < FEWEST_COMMANDS:
            self.known.keep(key, Kind(state.marks, None))
            return result
        after = self._state((function, *args))
        if after is not None and after.marks == state.marks:
            self._keep(key, state.marks, start, watched[:-1], at, result)
        return result

    def _keep(
        self,
        key: Key,
        marks: list[object],
        start: Start,
        watched: list[Watched],
        at: tuple[int, ...],
        result: object,
    ) -> None:
        try:
            template = Template(self._context, start, watched, at, result)
        except NotAlikeError:
            return
        template.marks = marks
        self.known.keep((id(self._context), *key) if template.is_private else key, Kind(marks, template))

    def _checked(
        self,
        template: Template,
        code: CodeType,
        function: Callable[..., Result],
        args: tuple[object, ...],
        at: tuple[int, ...],
    ) -> Result:
        """Run it once more, and see whether it was as predicted."""
        context = self._context
        predicted, start = template.predicted(context, at), (context.steps, context._views_made)
        result = self._run(function, args, at)
        good = predicted.came_true(context, start)
        (self.known.trusted if good else self.known.irregular).add(code)
        return result
