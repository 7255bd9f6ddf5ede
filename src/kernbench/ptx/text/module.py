"""A PTX module as data: made by the parser and the builder, read by the printer and the emulator.

Nodes are frozen and compare by meaning: their position in a text (`line`, `column`) does not count. Immediates keep
their spelling, so that text printed from a module is the text it was read from, up to white space and comments.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from kernbench.ptx.text.types import TYPES


@dataclass(frozen=True, slots=True)
class Name:
    """A register, special register, variable, label or function; `%tid.x` and `%v.x` keep their component."""

    text: str


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer literal or constant expression, by value; `spelling` as written."""

    value: int
    spelling: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Float:
    """A float literal by its bits; `width` 32 for 0f..., 64 for 0d... and decimal literals."""

    bits: int
    width: int
    spelling: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Offset:
    """A variable's address plus a constant, outside brackets: `mov.u64 %rd1, table+8`."""

    base: Name
    offset: int


@dataclass(frozen=True, slots=True)
class Not:
    """A negated predicate operand: `!%p1`."""

    operand: Name


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`."""

    items: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`d|p`: two results."""

    first: "Operand"
    second: "Operand"


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`, or with further operands as in tensor copies: `[map, {x, y}]`.

    `unified`: written `[base].unified`, the same address on host and device; all addresses are that here.
    """

    base: "Operand"
    offset: int = 0
    more: tuple["Operand", ...] = ()
    unified: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """`(a, b, ...)`: arguments or results of a call."""

    items: tuple["Operand", ...]


Operand = Name | Integer | Float | Offset | Not | Vector | Pair | Address | Group


@dataclass(frozen=True, slots=True)
class Generic:
    """`generic(variable)` in an initialiser: the variable's generic address, plus a constant."""

    base: Name
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Masked:
    """`0xff00(variable)` in an initialiser: one byte of an address."""

    mask: Integer
    address: "Name | Offset | Generic"


Initial = Integer | Float | Name | Offset | Generic | Masked | tuple["Initial", ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """`@%p` or `@!%p`."""

    register: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `@guard opcode.modifier.modifier operand, operand;`, modifiers without their dots."""

    opcode: str
    modifiers: tuple[str, ...] = ()
    operands: tuple[Operand, ...] = ()
    guard: Guard | None = None
    line: int = field(default=0, compare=False)
    column: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Opcode and modifiers, dotted."""
        return ".".join((self.opcode, *self.modifiers))


@dataclass(frozen=True, slots=True)
class Label:
    """A target of branches, in its block; `directive` for `.branchtargets`, `.calltargets` and `.callprototype` lines.

    For the first two, `targets` are the names they list; for the third, `prototype` is the function's signature.
    """

    name: str
    directive: str = ""
    targets: tuple[str, ...] = ()
    prototype: "Function | None" = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Registers:
    """`.reg .type name, name<count>, ...`; a count of 0 means a single name."""

    type: str
    names: tuple[tuple[str, int], ...]
    vector: int = 1
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a state space, or a parameter: `.shared .align 16 .b8 name[1024];`

    `dims` are array sizes, None for an unsized one (`.extern .shared`); `initial` the initialiser, nested tuples of
    literals, names and offsets. `linkage` is "", "extern", "visible", "weak" or "common". `pointer` holds what follows
    `.ptr` on a kernel parameter, as written.
    """

    space: str
    type: str
    name: str
    dims: tuple[int | None, ...] = ()
    alignment: int | None = None
    vector: int = 1
    initial: "Initial | None" = None
    linkage: str = ""
    pointer: str = ""
    attributes: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)

    @property
    def size(self) -> int | None:
        """Bytes, None where unsized."""
        if None in self.dims:
            return None
        return prod(self.dims, start=self.element_size)  # type: ignore[arg-type]

    @property
    def element_size(self) -> int:
        """Bytes of one element; opaque types are 64-bit handles."""
        return (TYPES[self.type].nbytes if self.type in TYPES else 8) * self.vector

    @property
    def natural_alignment(self) -> int:
        """The declared alignment, or the element's size."""
        return self.alignment or self.element_size


@dataclass(frozen=True, slots=True)
class Loc:
    """`.loc file line column`; `more` is what follows it (`function_name`, `inlined_at`)."""

    file: int
    source_line: int
    source_column: int
    more: str = ""
    line: int = field(default=0, compare=False)

    @property
    def inlined_at(self) -> tuple[int, int, int] | None:
        """File, line and column of the call that was inlined here."""
        _, found, call = self.more.partition(", inlined_at ")
        if not found:
            return None
        file, line, column = map(int, call.split(",")[0].split())
        return file, line, column


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive that is kept as text and not interpreted: `.pragma`, `.file`, `.section`."""

    name: str
    text: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """`{ ... }`: a scope of registers, variables and labels."""

    statements: tuple["Statement", ...]
    line: int = field(default=0, compare=False)


Statement = Instruction | Label | Registers | Variable | Loc | Directive | Block


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel (`.entry`) or device function (`.func`); `body` is None for a declaration."""

    kind: str
    name: str
    params: tuple[Variable, ...] = ()
    returns: tuple[Variable, ...] = ()
    body: Block | None = None
    linkage: str = ""
    # .maxntid, .reqntid, .minnctapersm, .maxnreg, .reqnctapercluster, ...: name -> numbers
    performance: tuple[tuple[str, tuple[int, ...]], ...] = ()
    attributes: tuple[str, ...] = ()
    pragmas: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)


Item = Function | Variable | Directive


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter as a launch fills it; `offset` is its offset in the parameter space."""

    name: str
    type: str
    size: int
    alignment: int
    offset: int
    dims: tuple[int, ...] = ()
    pointer: str = ""


_SIGNATURES = {"LLVM": "Generated by LLVM NVPTX Back-End", "NVVM": "Generated by NVIDIA NVVM Compiler"}


@dataclass(frozen=True)
class Module:
    """One PTX module; `version` as (major, minor), `target` as written: `("sm_90a", "debug")`."""

    version: tuple[int, int]
    target: tuple[str, ...]
    address_size: int = 64
    items: tuple[Item, ...] = ()
    # the text it was parsed from, for messages that show a line
    source: str = field(default="", compare=False, repr=False)

    def __hash__(self) -> int:
        # cheap, and equal for equal modules
        return hash((self.version, self.target, self.address_size, len(self.items)))

    @property
    def compiler(self) -> str:
        """The compiler named in the text's first comment: "LLVM" (Triton), "NVVM" (nvcc, CuTe DSL), or none ("")."""
        begin = self.source[:400]
        signed = (name for name, sign in _SIGNATURES.items() if sign in begin)
        return next(signed, "")

    @cached_property
    def kernels(self) -> Mapping[str, "Kernel"]:
        """Kernels with a body, by name, in order."""
        entries = (item for item in self.items if isinstance(item, Function) and item.kind == "entry" and item.body)
        return {function.name: Kernel(self, function) for function in entries}

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """Device functions by name, in order; definitions take precedence over declarations, aliases are resolved."""
        found: dict[str, Function] = {}
        for item in self.items:
            if isinstance(item, Function) and item.kind == "func" and (item.body or item.name not in found):
                found[item.name] = item
        for alias, meant in self._aliases():
            if alias in found and meant in found and found[alias].body is None:
                found[alias] = replace(found[meant], name=alias)
        return found

    def _aliases(self) -> Iterator[tuple[str, str]]:
        """`.alias name, function;` lines."""
        for item in self.items:
            if isinstance(item, Directive) and item.name == "alias":
                alias, _, meant = item.text.rstrip(";").partition(",")
                yield alias.strip(), meant.strip()

    @cached_property
    def variables(self) -> Mapping[str, Variable]:
        """Module-scope variables by name, in order; definitions take precedence over external declarations."""
        found: dict[str, Variable] = {}
        for item in self.items:
            if isinstance(item, Variable) and (item.linkage != "extern" or item.name not in found):
                found[item.name] = item
        return found

    @cached_property
    def source_files(self) -> Mapping[int, str]:
        """File numbers, as `.loc` uses them, with the paths that `.file` gives them."""
        files: dict[int, str] = {}
        for item in self.items:
            if isinstance(item, Directive) and item.name == "file":
                number, _, rest = item.text.strip().partition(" ")
                if number.isdecimal():
                    files[int(number)] = rest.split('"')[1] if rest.count('"') >= 2 else rest.strip()
        return files

    @property
    def arch(self) -> str:
        """The first architecture in `target`: "sm_90a"."""
        return next((name for name in self.target if name.startswith(("sm_", "compute_"))), "")

    def line_text(self, line: int) -> str:
        """The text of a line, or "" for a module that was not read from text."""
        return self._lines[line - 1] if 0 < line <= len(self._lines) else ""

    @cached_property
    def _lines(self) -> list[str]:
        return self.source.split("\n")

    def in_assembly(self, line: int) -> bool:
        """Whether a line is inside an inline assembly statement, as compilers mark them by comments.

        LLVM numbers the lines of such a statement on from the statement's own line; their `.loc` lines mean nothing.
        """
        here = bisect_right(self._assembly, (line, len(self._lines)))
        return here > 0 and line < self._assembly[here - 1][1]

    @cached_property
    def _assembly(self) -> list[tuple[int, int]]:
        """First and last lines of the assembly statements of the source."""
        found: list[tuple[int, int]] = []
        begun = 0
        for number, text in enumerate(self._lines, 1):
            if "// begin inline asm" in text:
                begun = number
            elif begun and "// end inline asm" in text:
                found.append((begun, number))
                begun = 0
        return found

    def emit(self) -> str:
        """The module as text; the same module always gives the same text, and `parse` gives the module back."""
        from kernbench.ptx.text.printer import module_text

        return module_text(self)


@dataclass(frozen=True)
class Kernel:
    """One kernel of a module."""

    module: Module = field(repr=False)
    function: Function = field(repr=False)

    def __hash__(self) -> int:
        return hash((self.module, self.function.name))

    @property
    def name(self) -> str:
        """The entry's name."""
        return self.function.name

    @cached_property
    def params(self) -> tuple[Parameter, ...]:
        """The parameters in order."""
        found, offset = [], 0
        for variable in self.function.params:
            offset = -(-offset // variable.natural_alignment) * variable.natural_alignment
            found.append(_parameter(variable, offset))
            offset += found[-1].size
        return tuple(found)

    def performance(self, name: str) -> tuple[int, ...] | None:
        """The numbers of a performance directive (`maxnreg`), or None where it is absent."""
        return next((numbers for found, numbers in self.function.performance if found == name), None)

    @property
    def reqntid(self) -> tuple[int, int, int] | None:
        """The block size that the kernel requires, or None."""
        return _dim3(self.performance("reqntid"))

    @property
    def maxntid(self) -> tuple[int, int, int] | None:
        """The largest block size that the kernel allows, or None."""
        return _dim3(self.performance("maxntid"))

    @property
    def cluster(self) -> tuple[int, int, int] | None:
        """The cluster size that the kernel requires, or None."""
        return _dim3(self.performance("reqnctapercluster"))

    def emit(self) -> str:
        """The text of a module with this kernel and without the others."""
        items = (item for item in self.module.items if item is self.function or not _is_kernel(item))
        return replace(self.module, items=tuple(items)).emit()


def _is_kernel(item: Item) -> bool:
    return isinstance(item, Function) and item.kind == "entry"


def _parameter(variable: Variable, offset: int) -> Parameter:
    dims = tuple(size for size in variable.dims if size is not None)
    size = variable.element_size * prod(dims)
    return Parameter(variable.name, variable.type, size, variable.natural_alignment, offset, dims, variable.pointer)


def _dim3(numbers: tuple[int, ...] | None) -> tuple[int, int, int] | None:
    if numbers is None:
        return None
    x, y, z = (*numbers, 1, 1, 1)[:3]
    return x, y, z
