"""Traces a kernel's own results: after each instruction its thread adds the result to a running hash.

Each thread counts its results (destination registers of traced instructions, and values it stores) and keeps a hash of
all of them so far, including the instruction numbers. When the count reaches the thread's next mark, hash, instruction
and result are written to a buffer; the next mark is the last one times a factor plus a step. If the hashes of a thread
on two devices are equal at a mark, its results were equal up to there.

A row of the buffer, in 32-bit words: the first mark, the factor, the step, the number of marks; the number of results
of the thread when it ended, and their hash; then four words for each mark: hash, instruction, and the result.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.comparing.registers import declared, private_registers
from kernbench.ptx.isa.forms.form import Resolved
from kernbench.ptx.isa.operands import Operands, operands_of, resolved_of
from kernbench.ptx.text.module import (
    Block,
    Function,
    Guard,
    Instruction,
    Kernel,
    Loc,
    Registers,
    Statement,
    Variable,
)
from kernbench.ptx.text.parser import parse
from kernbench.ptx.text.printer import instruction_text
from kernbench.ptx.text.types import TYPES
from kernbench.ptx.text.walking import instructions_of, names_in
from kernbench.result.finding import SourceLocation

PARAMETER = "kernbench_trace"
# marks in a row, and words of a row
MARKS = 14
ROW = 4 * (MARKS + 2)
_HEAD = 8
# words for the operands of one instruction: matrix products have many
OPERAND_WORDS = 256
_BASIS, _PRIME = 2166136261, 16777619

COMPUTED, MOVED, STORED = "computed", "moved", "stored"


@dataclass(frozen=True)
class Traced:
    """One result of an instruction: the register, and whether it is computed, moved from elsewhere, or stored."""

    number: int
    instruction: Instruction
    register: str
    type: str
    kind: str
    operands: Operands
    location: SourceLocation | None = None

    @property
    def text(self) -> str:
        """The instruction's text."""
        return instruction_text(self.instruction)


@dataclass(frozen=True)
class TracedKernel:
    """A traced kernel: `kernel` has the buffer as one more parameter; `results` are what it records."""

    kernel: Kernel
    results: tuple[Traced, ...]
    # the recorded operands of one instruction, in order, with their types
    kept: tuple[tuple[str, str], ...] = ()


def traced(
    kernel: Kernel,
    block: tuple[int, int, int],
    addresses: Iterable[str] = (),
    loads_addresses: bool = False,
    watched: int | None = None,
) -> TracedKernel:
    """`kernel` with a trace of its results; `addresses` are parameters that have other values on another device.

    For the result number `watched` the operands are recorded as well, after the thread's row, at its first mark.
    """
    private = private_registers(kernel.function, addresses, loads_addresses)
    writing = _Writing(kernel, private, watched)
    assert kernel.function.body is not None
    body = writing.body(kernel.function.body)
    pointer = Variable("param", "u64", PARAMETER)
    changed = replace(
        kernel.function,
        params=(*kernel.function.params, pointer),
        body=body,
        performance=_bounded(kernel.function, block),
    )
    items = tuple(changed if item is kernel.function else item for item in kernel.module.items)
    module = replace(kernel.module, items=items)
    return TracedKernel(module.kernels[kernel.name], tuple(writing.results), tuple(writing.kept))


def _bounded(function: Function, block: tuple[int, int, int]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The performance directives of a function, with its block size added.

    Without a block size, the added registers might make it too large to launch.
    """
    names = {name for name, _ in function.performance}
    given = tuple(item for item in function.performance if item[0] != "maxnreg")
    return given if names & {"reqntid", "maxntid"} else (*given, ("maxntid", block))


_DECLARED = """
.reg .b32 %kb_h, %kb_n, %kb_next, %kb_mul, %kb_add, %kb_left, %kb_w, %kb_v, %kb_i;
.reg .b64 %kb_row, %kb_slot;
.reg .b16 %kb_s;
.reg .pred %kb_p, %kb_q;
"""
# compute the thread's number in the grid and the address of its row, and load its marks
_BEGIN = """
mov.u32 %kb_w, %ctaid.z; mov.u32 %kb_v, %nctaid.y; mov.u32 %kb_i, %ctaid.y; mad.lo.u32 %kb_w, %kb_w, %kb_v, %kb_i;
mov.u32 %kb_v, %nctaid.x; mov.u32 %kb_i, %ctaid.x; mad.lo.u32 %kb_w, %kb_w, %kb_v, %kb_i;
mov.u32 %kb_v, %ntid.z; mov.u32 %kb_i, %tid.z; mad.lo.u32 %kb_w, %kb_w, %kb_v, %kb_i;
mov.u32 %kb_v, %ntid.y; mov.u32 %kb_i, %tid.y; mad.lo.u32 %kb_w, %kb_w, %kb_v, %kb_i;
mov.u32 %kb_v, %ntid.x; mov.u32 %kb_i, %tid.x; mad.lo.u32 %kb_w, %kb_w, %kb_v, %kb_i;
ld.param.u64 %kb_row, [{parameter}];
mad.wide.u32 %kb_row, %kb_w, {row}, %kb_row;
ld.global.v4.u32 {{%kb_next, %kb_mul, %kb_add, %kb_left}}, [%kb_row];
add.u64 %kb_slot, %kb_row, {head};
mov.u32 %kb_h, {basis};
mov.u32 %kb_n, 0;
"""
_END = "st.global.v2.b32 [%kb_row+16], {%kb_n, %kb_h};\n"
_RESULT = """
{words}
{guard} xor.b32 %kb_h, %kb_h, %kb_w;
{more}
{guard} mad.lo.u32 %kb_h, %kb_h, {prime}, {number};
{guard} add.u32 %kb_n, %kb_n, 1;
setp.eq{and_}.u32 %kb_p, %kb_n, %kb_next{when};
@%kb_p mov.u32 %kb_i, {number};
@%kb_p st.global.v4.b32 [%kb_slot], {{%kb_h, %kb_i, %kb_w, %kb_v}};
@%kb_p add.u64 %kb_slot, %kb_slot, 16;
@%kb_p mad.lo.u32 %kb_next, %kb_next, %kb_mul, %kb_add;
@%kb_p add.u32 %kb_left, %kb_left, -1;
setp.eq.and.u32 %kb_p, %kb_left, 0, %kb_p;
@%kb_p mov.u32 %kb_next, 0;
"""
_MORE = "{guard} mul.lo.u32 %kb_h, %kb_h, 16777619;\n{guard} xor.b32 %kb_h, %kb_h, %kb_v;"
# converts a register of each width to two words
_WORDS = {
    1: "{guard} selp.u32 %kb_w, 1, 0, {register};\n{guard} mov.b32 %kb_v, 0;",
    8: "{guard} cvt.u32.u8 %kb_w, {register};\n{guard} mov.b32 %kb_v, 0;",
    16: "{guard} mov.b16 %kb_s, {register};\n{guard} cvt.u32.u16 %kb_w, %kb_s;\n{guard} mov.b32 %kb_v, 0;",
    32: "{guard} mov.b32 %kb_w, {register};\n{guard} mov.b32 %kb_v, 0;",
    64: "{guard} mov.b64 {{%kb_w, %kb_v}}, {register};",
}
# record operands before an instruction that may overwrite them, if its result is the watched one
_OPERANDS = """
add.u32 %kb_w, %kb_n, {ahead};
setp.eq.u32 %kb_q, %kb_w, %kb_next;
"""
_OPERAND = "{words}\n@%kb_q st.global.v2.b32 [%kb_row+{at}], {{%kb_w, %kb_v}};\n"
_MODULE = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(){{\n{text}\n}}\n"


def _statements(text: str) -> tuple[Statement, ...]:
    body = parse(_MODULE.format(text=text)).kernels["k"].function.body
    assert body is not None
    return tuple(replace(s, line=0) if isinstance(s, Instruction) else s for s in body.statements)


def _guard_text(guard: Guard | None) -> tuple[str, str]:
    """The guard as a prefix of an instruction, and as an operand."""
    if guard is None:
        return "", ""
    return f"@{'!' * guard.negated}{guard.register}", f"{'!' * guard.negated}{guard.register}"


@dataclass
class _Writing:
    """Walks a body and inserts the trace."""

    kernel: Kernel
    private: set[str]
    watched: int | None
    results: list[Traced] = field(default_factory=list)
    kept: list[tuple[str, str]] = field(default_factory=list)
    _scopes: list[dict[str, str]] = field(default_factory=list)
    _location: SourceLocation | None = None

    def body(self, block: Block) -> Block:
        """The body of the kernel."""
        row = 4 * (ROW if self.watched is None else ROW + OPERAND_WORDS)
        begin = _BEGIN.format(parameter=PARAMETER, row=row, head=4 * _HEAD, basis=_BASIS)
        # the parameter is declared by the function that receives the statements
        begun = (*_statements(_DECLARED), *self._unchecked(begin))
        inner = self._block(block)
        return replace(inner, statements=(*begun, *inner.statements, *self._unchecked(_END)))

    @staticmethod
    def _unchecked(text: str) -> tuple[Statement, ...]:
        return _statements(_DECLARED + text)[4:]

    def _block(self, block: Block) -> Block:
        self._scopes.append({})
        found: list[Statement] = []
        for statement in block.statements:
            found += self._statement(statement)
        self._scopes.pop()
        return replace(block, statements=tuple(found))

    def _statement(self, statement: Statement) -> Iterator[Statement]:
        if isinstance(statement, Block):
            yield self._block(statement)
            return
        if isinstance(statement, Registers):
            self._scopes[-1].update(declared(statement))
        elif isinstance(statement, Loc):
            # devices do not need it, and it may refer to missing debug sections
            self._note_location(statement)
            return
        if isinstance(statement, Instruction):
            yield from self._instruction(statement)
        else:
            yield statement

    def _note_location(self, statement: Loc) -> None:
        if not self.kernel.module.in_assembly(statement.line):
            file = self.kernel.module.source_files.get(statement.file, "")
            self._location = SourceLocation(file, statement.source_line) if file else None

    def _instruction(self, instruction: Instruction) -> Iterator[Statement]:
        resolved = resolved_of(instruction)
        if resolved is None or resolved.effects.flow:
            if resolved is not None and resolved.effects.ends_thread:
                guard, _ = _guard_text(instruction.guard)
                yield from self._unchecked(f"{guard} {_END}")
            yield instruction
            return
        before, after = self._results(instruction, resolved)
        watched = next((at for at, one in enumerate([*before, *after], 1) if one.number == self.watched), 0)
        if watched:
            yield from self._operands(instruction, resolved, watched)
        for one in before:
            yield from self._record(one)
        yield instruction
        for one in after:
            yield from self._record(one)

    def _results(self, instruction: Instruction, resolved: Resolved) -> tuple[list[Traced], list[Traced]]:
        """The results to record before an instruction (values it stores) and after it (its destinations)."""
        effects, operands = resolved.effects, operands_of(instruction, resolved)
        guard = instruction.guard
        if effects.publishes:
            index = resolved.operand(effects.value) if effects.value else None
            values = () if index is None else tuple(names_in(instruction.operands[index]))
            return [one for name in values if (one := self._traced(instruction, name, STORED, operands))], []
        if effects.asynchronous or effects.in_flight or (guard is not None and guard.register in operands.written):
            return [], []
        moved = effects.reads or effects.exchanges or effects.access
        kind = MOVED if moved else COMPUTED
        return [], [one for name in operands.written if (one := self._traced(instruction, name, kind, operands))]

    def _traced(self, instruction: Instruction, name: str, kind: str, operands: Operands) -> Traced | None:
        known = self._type(name)
        if known is None or TYPES[known].bits not in _WORDS or name in self.private:
            return None
        # numbered from 1, so that a mark that was not reached differs from all of them
        found = Traced(len(self.results) + 1, instruction, name, known, kind, operands, self._location)
        self.results.append(found)
        return found

    def _type(self, name: str) -> str | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def _record(self, one: Traced) -> Iterator[Statement]:
        guard, operand = _guard_text(one.instruction.guard)
        bits = TYPES[one.type].bits
        text = _RESULT.format(
            words=_WORDS[bits].format(guard=guard, register=one.register),
            more=_MORE.format(guard=guard) if bits == 64 else "",
            guard=guard,
            prime=_PRIME,
            number=one.number,
            and_=".and" if operand else "",
            when=f", {operand}" if operand else "",
        )
        yield from self._with_scope(text)

    def _operands(self, instruction: Instruction, resolved: Resolved, ahead: int) -> Iterator[Statement]:
        """Record the operands of the watched instruction, as far as there is room."""
        names = [name for name in dict.fromkeys(operands_of(instruction, resolved).read) if self._kept_type(name)]
        text = _OPERANDS.format(ahead=ahead)
        for number, name in enumerate(names[: OPERAND_WORDS // 2]):
            known = self._kept_type(name)
            words = _WORDS[TYPES[known].bits].format(guard="@%kb_q", register=name)
            text += _OPERAND.format(words=words, at=4 * (ROW + 2 * number))
            self.kept.append((name, known))
        yield from self._with_scope(text)

    def _kept_type(self, name: str) -> str:
        known = self._type(name)
        return known if known is not None and TYPES[known].bits in _WORDS else ""

    @staticmethod
    def _with_scope(text: str) -> Iterator[Statement]:
        # the parsed text does not declare the kernel's registers; the parser does not check that
        yield from _statements(_DECLARED + text)[4:]


def empty_rows(threads: int, watched: bool = False) -> Array:
    """Rows for all threads, without marks."""
    return np.zeros((threads, ROW + OPERAND_WORDS if watched else ROW), np.uint32)


def ended(rows: Array) -> Array:
    """[threads, 2]: the number of results of each thread when it ended, and their hash."""
    part: Array = rows[:, 4:6]
    return part


def marks(rows: Array) -> Array:
    """[threads, marks, 4]: hash, number of the result, and its two words."""
    part: Array = rows[:, _HEAD:ROW].reshape(len(rows), MARKS, 4)
    return part


def operand_words(rows: Array) -> Array:
    """[threads, operands, 2]: the operands of the watched result."""
    part: Array = rows[:, ROW:].reshape(len(rows), -1, 2)
    return part


def writers_of(kernel: Kernel, register: str) -> list[Instruction]:
    """The instructions of a kernel that write a register."""
    found = []
    for instruction in instructions_of(kernel.function.body):
        resolved = resolved_of(instruction)
        if resolved is not None and register in operands_of(instruction, resolved).written:
            found.append(instruction)
    return found
