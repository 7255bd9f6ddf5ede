"""Control flow: if and else, loops, labels and branches, calls."""

from collections.abc import Callable
from typing import Any, overload

from kernbench.ptx.builder.issuing.body import NAME
from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.options import Condition, Value
from kernbench.ptx.builder.values.values import Inverted, Label, Predicate, Register
from kernbench.ptx.text.module import Label as LabelStatement

__kernbench_internal__ = True


class If:
    """`with ctx.if_(p):` executes its body if p holds; `with ctx.else_():` right after it, if it does not."""

    def __init__(self, context: "Control", condition: Condition):
        self.context = context
        self.condition = context.condition(condition)
        self.otherwise, self.end = context.body.numbered("else", "endif")

    def __enter__(self) -> "If":
        self.context.bra(self.otherwise, pred=self.condition.inverted)
        self.context.body.open.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.context.close(self)
            self.context.body.place(self.otherwise)
            self.context.last_if = self, len(self.context.body.entries)


class Else:
    """The else branch of an if."""

    def __init__(self, context: "Control"):
        self.context = context

    def __enter__(self) -> None:
        context, body = self.context, self.context.body
        if context.last_if is None or context.last_if[1] != len(body.entries):
            raise context.error("ctx.else_() comes right after the body of ctx.if_(), with nothing between them")
        self.branch, _ = context.last_if
        label = body.entries.pop()
        assert isinstance(label.statement, LabelStatement)
        if body.falls_through():
            context.bra(self.branch.end)
        body.entries.append(label)
        body.open.append(self)

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.context.close(self)
            if self.context.body.is_used(self.branch.end):
                self.context.body.place(self.branch.end)


class Loop:
    """An open loop; the context's `break_` and `continue_` apply to the innermost one."""

    def __init__(self, context: "Control"):
        self.context = context
        self.head, self.next, self.end = context.body.numbered("loop", "next", "endloop")

    def __enter__(self) -> "Loop | Register":
        self.begin()
        self.context.body.open.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self.context.close(self)
            if self.context.body.is_used(self.next):
                self.context.body.place(self.next)
            self.repeat()
            if self.context.body.is_used(self.end):
                self.context.body.place(self.end)

    def begin(self) -> None:
        """Emit what precedes the body."""
        self.context.body.place(self.head)

    def repeat(self) -> None:
        """Emit what follows the body."""
        if self.context.body.falls_through():
            self.context.bra(self.head)


class While(Loop):
    """A loop with a condition that is computed before each iteration."""

    def __init__(self, context: "Control", condition: Callable[[], Condition]):
        super().__init__(context)
        self.condition = condition

    def begin(self) -> None:
        """Test, and leave."""
        super().begin()
        self.context.bra(self.end, pred=self.context.condition(self.condition()).inverted)


class Range(Loop):
    """A loop from `start` to `stop` (exclusive) that yields the index; tested at the end of each iteration."""

    def __init__(self, context: "Control", start: Value, stop: Value, step: Value, type: str | None):
        super().__init__(context)
        self.stop, self.step = stop, step
        if is_number(step) and not step:
            raise context.error("a loop whose step is 0 never ends")
        self.downward = is_number(step) and step < 0
        self.type = self._type(start, type)
        if self.downward and self.type[0] != "s":
            raise context.error(f"a loop over .{self.type} cannot count down past 0: say type='s32'")
        self.start = start
        # if the first iteration is certain, no test is needed before it
        self.certain = is_number(start) and is_number(stop) and (start > stop if self.downward else start < stop)

    def _type(self, start: Value, type: str | None) -> str:
        registers = [value for value in (start, self.stop, self.step) if isinstance(value, Register)]
        found = type or (
            self.context.common_type("loop", registers) if registers else "s32" if self.downward else "u32"
        )
        if found not in ("u32", "s32", "u64", "s64", "u16", "s16"):
            raise self.context.error(f"a loop counts with integers, not .{found}")
        return found

    def __enter__(self) -> Register:
        super().__enter__()
        return self.index

    def begin(self) -> None:
        """Set the index, and branch around the loop if it has no iterations."""
        context: Any = self.context
        self.index: Register = context.mov(self.start, type=self.type)
        self.made = context.body.counts()
        if not self.certain:
            context.bra(self.end, pred=context.setp("le" if self.downward else "ge", self.index, self.stop))
        super().begin()

    def repeat(self) -> None:
        """Increment the index, and branch back while there are iterations left."""
        context: Any = self.context
        if not context.body.falls_through():
            return
        if self.downward:
            context.sub(self.index, -self.step, out=self.index)
        else:
            context.add(self.index, self.step, out=self.index)
        more = context.setp("gt" if self.downward else "lt", self.index, self.stop)
        context.bra(self.head, pred=more)
        # values computed in an iteration are undefined after the loop, even if its first iteration is certain
        context.body.entries[-1].forgets = context.body.made_since(self.made)


class Control(Issuer):
    """Branches and structured control flow."""

    last_if: tuple[If, int] | None = None

    def condition(self, value: object) -> Condition:
        """Check that a value is a predicate, perhaps inverted."""
        if isinstance(value, (Predicate, Inverted)):
            return value
        raise self.error(f"a condition is a predicate, as comparisons give them; got {value!r}")

    def close(self, opened: object) -> None:
        """End a construct, which must be the innermost open one."""
        if not self.body.open or self.body.open[-1] is not opened:
            raise self.error(
                "this block is not the one opened last: blocks end in the order they began, innermost first"
            )
        self.body.open.pop()

    def if_(self, condition: Condition) -> If:
        """`with ctx.if_(p):` executes the body if p holds."""
        return If(self, condition)

    def else_(self) -> Else:
        """`with ctx.else_():` right after an if: executes the body if its condition does not hold."""
        return Else(self)

    @overload
    def loop(self) -> Loop: ...

    @overload
    def loop(self, first: Value, /, *bounds: Value, type: str | None = None) -> Range: ...

    def loop(self, *bounds: Value, type: str | None = None) -> Loop:
        """`with ctx.loop(stop) as i:`, `loop(start, stop)`, `loop(start, stop, step)`; without bounds until break."""
        if not bounds:
            return Loop(self)
        if len(bounds) > 3:
            raise self.error(f"a loop has a stop, a start and a step; got {len(bounds)} bounds")
        start, stop, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
        return Range(self, start, stop, step, type)

    def while_(self, condition: Callable[[], Condition]) -> While:
        """`with ctx.while_(lambda: i < n):`; the condition is computed before each iteration."""
        if not callable(condition):
            raise self.error("the condition of a while loop is computed in each turn: give a function, `lambda: i < n`")
        return While(self, condition)

    def _loop(self, what: str) -> Loop:
        loop = next((opened for opened in reversed(self.body.open) if isinstance(opened, Loop)), None)
        if loop is None:
            raise self.error(f"{what} stands in no loop")
        return loop

    def break_(self, pred: Condition | None = None) -> None:
        """Leave the innermost loop, if `pred` holds."""
        self.bra(self._loop("break_").end, pred=pred)

    def continue_(self, pred: Condition | None = None) -> None:
        """Continue with the next iteration of the innermost loop, if `pred` holds."""
        loop = self._loop("continue_")
        self.bra(loop.head if isinstance(loop, While) or type(loop) is Loop else loop.next, pred=pred)

    def label(self, name: str | None = None) -> Label:
        """A label for branches, before or after `ctx.place(label)` defines its position."""
        if name is None:
            return self.body.numbered("label")[0]
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self.error(
                f"{name!r} cannot be the name of a label: letters, digits, _ and $, beginning with a letter"
            )
        if not self.body.claim(name):
            raise self.error(f"{name!r} is taken in '{self.body.name}': choose another name")
        return Label(name)

    def place(self, label: Label) -> None:
        """Define the label at this position."""
        if not isinstance(label, Label):
            raise self.error(f"{label!r} is no label: ctx.label() makes one")
        self.body.place(label)

    def bra(self, target: Label, *, pred: Condition | None = None, uni: bool = False) -> None:
        """Branch to a label, if `pred` holds."""
        self.issue("bra", {"uni": uni}, (target,), pred=pred)

    def ret(self, pred: Condition | None = None) -> None:
        """Return from the function, if `pred` holds."""
        if self.body.returns:
            raise self.error(f"'{self.body.name}' returns a value: ctx.return_(value)")
        self.issue("ret", {}, (), pred=pred)

    def exit(self, pred: Condition | None = None) -> None:
        """Exit the thread, if `pred` holds."""
        self.issue("exit", {}, (), pred=pred)

    def trap(self, pred: Condition | None = None) -> None:
        """Abort the launch with an error, if `pred` holds."""
        self.issue("trap", {}, (), pred=pred)

    def nanosleep(self, nanoseconds: Value) -> None:
        """Sleep for approximately so long."""
        self.issue("nanosleep", {"type": "u32"}, (nanoseconds,))
