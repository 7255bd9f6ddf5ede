"""Scopes of an orchestration: what is submitted and made inside one is released when it closes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernbench.common.errors import KernelError
from kernbench.npu.tasks.task import Context
from kernbench.result.finding import SourceLocation

__kernbench_internal__ = True
# including the scope that the runtime opens around an orchestration
MOST_SCOPES = 64


@dataclass
class Scope:
    """One scope. In a manual one the tensor map is neither consulted nor updated."""

    number: int
    depth: int
    manual: bool
    where: SourceLocation


class Opening:
    """The context manager of a scope."""

    def __init__(self, scopes: "Scopes", manual: bool, where: SourceLocation):
        self._scopes, self._manual, self.where = scopes, manual, where
        self.scope: Scope | None = None

    def __enter__(self) -> None:
        if self.scope is not None:
            message = f"the scope of {self.where} is opened a second time"
            self._scopes.context.fail("misuse", message, "call rt.scope() for each: with rt.scope(): ...")
        self.scope = self._scopes.open(self._manual, self.where)

    def __exit__(self, kind: object, *exc: object) -> None:
        # an exception matters more than scopes closed out of order
        self._scopes.close(self.scope if kind is None else None)


class Scopes:
    """The scopes that are open, innermost last. `command` records what the orchestrator does."""

    def __init__(self, context: Context, command: Callable[[str, int], None]):
        self.context = context
        self._command = command
        self._open: list[Scope] = []
        self._asked: list[Opening] = []
        self.closed: set[int] = set()
        self._count = 0

    def __iter__(self) -> Iterator[Scope]:
        return iter(self._open)

    @property
    def innermost(self) -> Scope | None:
        """The scope that submits belong to; None before the orchestration runs."""
        return self._open[-1] if self._open else None

    @property
    def current(self) -> Scope:
        """The scope that submits belong to."""
        return self._open[-1]

    def ask(self, manual: bool, where: SourceLocation) -> Opening:
        """A scope that is opened by `with`."""
        self._asked.append(Opening(self, manual, where))
        return self._asked[-1]

    def open(self, manual: bool, where: SourceLocation) -> Scope:
        """Open a scope."""
        self._check(manual)
        self._open.append(Scope(self._count, len(self._open), manual, where))
        self._count += 1
        self._command("open", self.current.number)
        return self.current

    def _check(self, manual: bool) -> None:
        """Check that scopes inside a manual scope are manual, and the nesting depth."""
        outer = next((scope for scope in self._open if scope.manual), None)
        if outer is not None and not manual:
            self.context.fail(
                "misuse",
                f"an automatic scope inside the manual one opened at {outer.where}: the runtime has none there",
                "open it as rt.scope(manual=True), or close the manual scope first",
            )
        if len(self._open) >= MOST_SCOPES:
            self.context.fail(
                "misuse",
                f"scopes nest at most {MOST_SCOPES} deep, the one around the orchestration included",
                "close scopes before opening more; a loop opens and closes one in each round",
            )

    def close(self, wanted: Scope | None = None) -> None:
        """Close the innermost scope, which must be `wanted` if given."""
        if wanted is not None and wanted is not self.current:
            message = f"the scope opened at {wanted.where} is closed "
            message += "a second time" if wanted.number in self.closed else "before one that was opened inside it"
            raise KernelError("misuse", message, "with rt.scope(): closes each once, innermost first")
        scope = self._open.pop()
        self.closed.add(scope.number)
        self._command("close", scope.number)
        for buffer in self.context.buffers:
            if not buffer.external and buffer.scope == scope.number:
                buffer.closed = True

    def close_all(self) -> None:
        """The orchestration has returned: close and report scopes that it left open, and report those it never
        opened.
        """
        for opening in self._asked:
            if opening.scope is None:
                message = "rt.scope() makes a scope, and nothing opened it: what follows is outside it"
                self.context.report("misuse", message, "with rt.scope(): ...", where=opening.where)
        while len(self._open) > 1:
            left = self.current
            message = "the scope that is opened here was never closed: what was made in it is held until the end"
            self.context.report("misuse", message, "with rt.scope(): ... closes it at its end", where=left.where)
            self.close()
        self.close()
