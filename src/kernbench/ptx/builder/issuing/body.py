"""A function body under construction: registers, statements with their Python lines, labels, open blocks."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol, TypedDict, Unpack

from kernbench.ptx.builder.issuing.needs import Needs
from kernbench.ptx.builder.values.banks import PREFIXES, declared
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.builder.values.values import Label, Predicate, Register
from kernbench.ptx.isa.table import flow_of
from kernbench.ptx.text.module import Block, Directive, Function, Instruction, Loc, Registers, Statement, Variable
from kernbench.ptx.text.module import Label as LabelStatement
from kernbench.result.finding import SourceLocation
from kernbench.safety.source_locations import SiteTable

__kernbench_internal__ = True

# flows after which the next statement is not reached
_LEADS_AWAY = frozenset(("branch", "return", "exit", "trap"))
NAME = re.compile(r"[A-Za-z][\w$]*|[_$%][\w$]+", re.ASCII)


@dataclass(eq=False, slots=True)
class Entry:
    """One statement, the registers it reads and writes, and its Python line; `braces` is the number of its scope.

    `forgets` are registers that are undefined after it, whatever was set before.
    """

    statement: Statement
    where: SourceLocation
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    braces: int = 0
    forgets: tuple[str, ...] = ()


class Declared(TypedDict, total=False):
    """Further properties of a function's declaration."""

    linkage: str
    performance: tuple[tuple[str, tuple[int, ...]], ...]


class Callee(Protocol):
    """A device function that was built."""

    name: str

    @property
    def body(self) -> "Body":
        """Its body."""
        ...


@dataclass(eq=False)
class Body:
    """The state of one function under construction."""

    name: str
    needs: Needs
    params: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    # type of each result, and its byte offset in the returned structure
    results: tuple[tuple[str, int], ...] = ()
    entries: list[Entry] = field(default_factory=list)
    # variables of the function, and of its module, by name
    variables: dict[str, Variable] = field(default_factory=dict)
    module_variables: dict[str, Variable] = field(default_factory=dict)
    # device functions it calls, by name
    callees: "dict[str, Callee]" = field(default_factory=dict)
    # registers that hold a variable's address, and its name
    bases: dict[str, str] = field(default_factory=dict)
    # open ifs and loops, innermost last
    open: list[object] = field(default_factory=list)
    braces: int = 0
    # number of blocks that cooperate in tcgen05, 0 before its first use
    cta_group: int = 0
    closed: bool = False
    _counts: Counter[str] = field(default_factory=Counter)
    _names: set[str] = field(default_factory=set)
    _waiting: dict[str, SourceLocation] = field(default_factory=dict)
    _placed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.locations: list[SourceLocation] = []
        self._sites = SiteTable(self.locations)

    def here(self) -> SourceLocation:
        """The line of the user's Python program that is executing."""
        return self.locations[self._sites.here()]

    def register(self, context: Any, type: str) -> Register:
        """A new register."""
        bank = declared(type)
        self._counts[bank] += 1
        kind = Predicate if type == "pred" else Register
        return kind(context, f"{PREFIXES[bank]}{self._counts[bank]}", type)

    def made_since(self, counts: Counter[str]) -> tuple[str, ...]:
        """Registers made since `counts()` returned `counts`."""
        return tuple(
            f"{prefix}{number}"
            for bank, prefix in PREFIXES.items()
            for number in range(counts[bank] + 1, self._counts[bank] + 1)
        )

    def counts(self) -> Counter[str]:
        """The number of registers of each bank."""
        return Counter(self._counts)

    def unique(self, stem: str) -> str:
        """A name that is unused in this function: the stem, numbered from the second on."""
        if not isinstance(stem, str) or not NAME.fullmatch(stem):
            raise PtxBuildError(f"{stem!r} cannot be a name: letters, digits, _ and $, beginning with a letter")
        self._counts[stem] += 1
        name = stem if self._counts[stem] == 1 else f"{stem}_{self._counts[stem]}"
        return name if self.claim(name) else self.unique(stem)

    def claim(self, name: str) -> bool:
        """Reserve a name; False if it is taken."""
        if name in self._names:
            return False
        self._names.add(name)
        return True

    def numbered(self, *stems: str) -> tuple[Label, ...]:
        """Labels of one construct, which share a number."""
        self._counts["$"] += 1
        return tuple(Label(f"${stem}_{self._counts['$']}") for stem in stems)

    def append(self, statement: Statement, reads: tuple[str, ...] = (), writes: tuple[str, ...] = ()) -> None:
        """Add a statement, at the current Python line."""
        if self.closed:
            raise PtxBuildError(f"'{self.name}' is already built: its context can add nothing more")
        for name in writes:
            self.bases.pop(name, None)
        self.entries.append(Entry(statement, self.here(), reads, writes, self.braces))

    def open_braces(self) -> None:
        """Open a scope for the following statements."""
        self._counts["{"] += 1
        self.braces = self._counts["{"]

    def close_braces(self) -> None:
        """Close the scope."""
        self.braces = 0

    def branches_to(self, label: Label) -> None:
        """Record that a label is used."""
        self._waiting.setdefault(label.name, self.here())

    def place(self, label: Label) -> None:
        """Define the label at this position."""
        if label.name in self._placed:
            raise PtxBuildError(f"label {label.name} is placed twice: make another with ctx.label()")
        self._placed.add(label.name)
        self.append(LabelStatement(label.name))

    def is_used(self, label: Label) -> bool:
        """Whether the label is a branch target."""
        return label.name in self._waiting

    def falls_through(self) -> bool:
        """Whether this point is reachable from the preceding statement."""
        written = (entry.statement for entry in reversed(self.entries) if not isinstance(entry.statement, Directive))
        last = next(written, None)
        if not isinstance(last, Instruction):
            return True
        return last.guard is not None or flow_of(last.opcode) not in _LEADS_AWAY

    def check_labels(self) -> None:
        """Raise an error for branches to undefined labels."""
        for name, where in self._waiting.items():
            if name not in self._placed:
                raise PtxBuildError(f"nobody placed label {name}: ctx.place(label) says where it is", where)

    def block(self, files: dict[str, int] | None) -> Block:
        """The finished body; with `files`, `.loc` lines give the Python line of every instruction."""
        registers = [
            Registers(bank, ((prefix, self._counts[bank] + 1),))
            for bank, prefix in PREFIXES.items()
            if self._counts[bank]
        ]
        statements = _nested(_located(self.entries, files))
        return Block((*registers, *self.variables.values(), *statements))

    def function(self, kind: str, files: dict[str, int] | None, **more: Unpack[Declared]) -> Function:
        """The finished function."""
        return Function(kind, self.name, self.params, self.returns, self.block(files), **more)


def _located(entries: list[Entry], files: dict[str, int] | None) -> Iterator[tuple[int, Statement]]:
    """Statements with their scopes, and a `.loc` before each whose line differs from the previous one's."""
    last: tuple[str, int] | None = None
    for entry in entries:
        line = entry.where.file, entry.where.line
        if files is not None and isinstance(entry.statement, (Instruction, Directive)) and line != last:
            number = files.setdefault(entry.where.file, len(files) + 1)
            yield entry.braces, Loc(number, entry.where.line, 1)
            last = line
        yield entry.braces, entry.statement


def _nested(statements: Iterator[tuple[int, Statement]]) -> Iterator[Statement]:
    """Statements of a scope, collected into its block."""
    for braces, group in groupby(statements, key=lambda pair: pair[0]):
        inner = (statement for _, statement in group)
        if braces:
            yield Block(tuple(inner))
        else:
            yield from inner
