"""Checkpoints: values inside a kernel that are compared with a golden, and which element of the golden each value is.

In PTX a checkpoint is `.pragma "kernbench.checkpoint { ... }";` with a TOML table between the braces. Assemblers ignore
it, so that the machine code is the same with and without it. For PTX of other compilers the same table is given
outside, with the `line` before which the values are read.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.text.index_expressions import Expression
from kernbench.ptx.text.module import Block, Directive, Function, Instruction, Kernel, Loc, Module, Statement
from kernbench.safety.stopping import StopAt

MARK = "kernbench.checkpoint "
SPACES = ("shared", "global", "tensor")
_FORBIDDEN = "'\"\\\n\r"


@dataclass(frozen=True)
class PtxCheckpoint:
    """One named value.

    - `registers` of each thread; or `base`, an address in `space` ("shared", "global" or "tensor") of each block
    - `type`: the element type, by default that of the registers. A register or word holds as many elements as fit
    - `count`: number of elements in memory; `address`: byte offset of element i from `base`, by default contiguous.
      Tensor memory has `columns` in each of `lanes` lanes instead
    - `at`: for each axis of the golden's array the index of element i; by default memory is the whole array in order
    - `when`: a condition that selects threads and elements; `keys`: arguments of the golden's function
    - `line`: of the PTX (a number), or FILE:LINE of the source, for a checkpoint that is not written in the PTX
    """

    name: str
    registers: tuple[str, ...] = ()
    space: str = ""
    base: str = ""
    type: str = ""
    count: int = 0
    columns: int = 0
    lanes: int = 128
    address: str = ""
    at: tuple[str, ...] = ()
    when: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    line: int | str = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or any(c in _FORBIDDEN for c in self.name):
            raise MisuseError(f"a checkpoint has a name without quotes; got {self.name!r}")
        if bool(self.registers) == bool(self.space):
            raise self._wrong(f"registers = [...], or one of {', '.join(SPACES)} = 'address', is wanted")
        if self.space in ("shared", "global") and self.count < 1:
            raise self._wrong("count = N says how many elements of memory it is")
        if self.space == "tensor" and (self.columns < 1 or not 1 <= self.lanes <= 128):
            raise self._wrong("columns = N (and lanes = N, up to 128) say which part of tensor memory it is")
        if self.registers and (self.count or self.columns or self.address):
            raise self._wrong("count, columns and address are of memory, not of registers")
        for text in (self.base, self.address, *self.at, self.when, *self.keys.values()):
            if text:
                self._expression(text)

    def _expression(self, text: str) -> None:
        try:
            Expression(text)
        except MisuseError as error:
            raise self._wrong(str(error)) from None
        if any(c in _FORBIDDEN for c in text):
            raise self._wrong(f"{text!r} has a quote or a line's end in it")

    def _wrong(self, what: str) -> MisuseError:
        return MisuseError(f"checkpoint {self.name!r}: {what}")

    @property
    def registered(self) -> tuple[str, ...]:
        """The registers that it reads, including those in expressions."""
        texts = (self.base, self.address, *self.at, self.when, *self.keys.values())
        inside = (name for text in texts if text for name in Expression(text).names if name.startswith("%"))
        return tuple(dict.fromkeys((*self.registers, *inside)))

    def directive(self) -> Directive:
        """The checkpoint as a .pragma of a kernel."""
        parts = [f"name = '{self.name}'"]
        if self.registers:
            parts.append(f"registers = {_listed(self.registers)}")
        else:
            parts.append(f"{self.space} = '{self.base}'")
        parts += [f"{key} = '{text}'" for key in ("type", "address", "when") if (text := getattr(self, key))]
        parts += [f"{key} = {number}" for key in ("count", "columns") if (number := getattr(self, key))]
        parts += [f"lanes = {self.lanes}"] if self.space == "tensor" else []
        parts += [f"at = {_listed(self.at)}"] if self.at else []
        if self.keys:
            parts.append(
                f"keys = {{{', '.join(f'{key} = {chr(39)}{text}{chr(39)}' for key, text in self.keys.items())}}}"
            )
        return Directive("pragma", f'"{MARK}{{{", ".join(parts)}}}";')


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(f'{chr(39)}{text}{chr(39)}' for text in texts)}]"


_TEXTS = ("type", "address", "when")
_NUMBERS = ("count", "columns", "lanes")
_KEYS = ("name", "registers", *SPACES, *_TEXTS, *_NUMBERS, "at", "keys", "line")


def read_checkpoint(table: object, where: str = "") -> PtxCheckpoint:
    """A checkpoint from its table; error messages begin with `where`."""
    prefix = f"{where}: " if where else ""
    if not isinstance(table, Mapping):
        raise MisuseError(f"{prefix}a table with name, registers or shared, at, ... is wanted; got {table!r}")
    for key in table:
        if key not in _KEYS:
            raise MisuseError(f"{prefix}{unknown('key of a checkpoint', key, _KEYS)}")
    spaces = [space for space in SPACES if space in table]
    if len(spaces) > 1:
        raise MisuseError(f"{prefix}a checkpoint is in one place; got {' and '.join(spaces)}")
    try:
        more: dict[str, Any] = {key: _text(key, table[key]) for key in _TEXTS if key in table}
        more |= {key: _number(key, table[key]) for key in _NUMBERS if key in table}
        return PtxCheckpoint(
            table.get("name", ""),
            registers=_registers(table.get("registers", ())),
            space=spaces[0] if spaces else "",
            base=_text("address", table[spaces[0]]) if spaces else "",
            at=_texts("at", table.get("at", ())),
            keys={str(key): _text(f"keys.{key}", text) for key, text in _table(table.get("keys", {})).items()},
            line=_line(table.get("line", 0)),
            **more,
        )
    except (MisuseError, TypeError, ValueError) as error:
        raise MisuseError(f"{prefix}{error}") from None


def _text(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise MisuseError(f"{key} = {value!r}: a text or a whole number is wanted")
    return value


def _table(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise MisuseError(f"keys = {value!r}: a table of names and numbers is wanted")
    return value


def _texts(key: str, value: object) -> tuple[str, ...]:
    return tuple(_text(key, each) for each in (value if isinstance(value, (list, tuple)) else [value]))


def _number(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise MisuseError(f"{key} = {value!r}: a whole number from 1 on is wanted")
    return value


def _line(value: object) -> int | str:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise MisuseError(f"line = {value!r}: a line of the PTX, or FILE:LINE of the source")
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _registers(value: object) -> tuple[str, ...]:
    """Names of registers; a range `%f1:%f8` stands for eight."""
    found: list[str] = []
    for name in _texts("registers", value):
        first, several, last = name.partition(":")
        if not several:
            found.append(name)
            continue
        stem, start, end = first.rstrip("0123456789"), *(_trailing(each) for each in (first, last))
        if not last.startswith(stem) or start is None or end is None or not start <= end < start + 4096:
            raise MisuseError(f"registers {name!r}: a range is written as %f1:%f8")
        found += [f"{stem}{number}" for number in range(start, end + 1)]
    return tuple(found)


def _trailing(name: str) -> int | None:
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else None


def checkpoint_of(statement: object) -> PtxCheckpoint | None:
    """The checkpoint in a statement, or None."""
    if not isinstance(statement, Directive) or statement.name != "pragma":
        return None
    text = statement.text.strip().removesuffix(";").strip().strip('"')
    if not text.startswith(MARK):
        return None
    try:
        table = tomllib.loads(f"checkpoint = {text[len(MARK) :]}")["checkpoint"]
    except ValueError as error:
        raise MisuseError(f"line {statement.line}: {text!r}: {error}") from None
    return read_checkpoint(table, f"line {statement.line}")


def with_checkpoints(kernel: Kernel, points: Iterable[PtxCheckpoint]) -> Kernel:
    """The kernel with checkpoints inserted before the instructions that their lines name.

    A source line names the first instruction of each sequence of consecutive instructions that belong to it.
    """
    waiting = list(points)
    if not waiting:
        return kernel
    placing = _Placing(kernel.module, waiting)
    items = tuple(placing.function(item) if isinstance(item, Function) else item for item in kernel.module.items)
    for point in waiting:
        if point not in placing.placed:
            raise MisuseError(f"checkpoint {point.name!r}: line {point.line}: {placing.nearest(point)}")
    module = replace(kernel.module, items=items)
    return module.kernels[kernel.name]


class _Placing:
    def __init__(self, module: Module, points: list[PtxCheckpoint]):
        self._module = module
        self._files = module.source_files
        self._points = points
        self._lines: set[int] = set()
        self.placed: list[PtxCheckpoint] = []
        # the source locations of the current instruction and of the one before it
        self._loc = self._before = ("", 0)

    def function(self, function: Function) -> Function:
        self._loc = self._before = ("", 0)
        return function if function.body is None else replace(function, body=self._block(function.body))

    def _block(self, block: Block) -> Block:
        found: list[Statement] = []
        for statement in block.statements:
            if isinstance(statement, Block):
                found.append(self._block(statement))
                continue
            if isinstance(statement, Loc) and not (self._loc[1] and self._module.in_assembly(statement.line)):
                self._loc = self._files.get(statement.file, ""), statement.source_line
            elif isinstance(statement, Instruction):
                found += [replace(point.directive(), line=statement.line) for point in self._here(statement)]
                self._lines.add(statement.line)
                self._before = self._loc
            found.append(statement)
        return replace(block, statements=tuple(found))

    def _here(self, instruction: Instruction) -> list[PtxCheckpoint]:
        here = [point for point in self._points if self._is_at(point, instruction)]
        self.placed += here
        return here

    def _is_at(self, point: PtxCheckpoint, instruction: Instruction) -> bool:
        if isinstance(point.line, int):
            return point.line == instruction.line
        file, _, line = point.line.rpartition(":")
        if file.endswith(".ptx"):
            return line == str(instruction.line)
        known, number = self._loc
        return self._before != self._loc and line == str(number) and bool(known) and StopAt(file, number).is_file(known)

    def nearest(self, point: PtxCheckpoint) -> str:
        if not isinstance(point.line, int):
            files = ", ".join(sorted(set(self._files.values()))) or "none: the PTX has no line information"
            return f"no instruction is of that line; the files are {files}"
        near = sorted(sorted(self._lines, key=lambda line: abs(line - int(point.line)))[:3])
        return f"no instruction stands there; the nearest lines that have one: {', '.join(map(str, near)) or 'none'}"
