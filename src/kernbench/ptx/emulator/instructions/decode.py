"""Decoding: a kernel and the functions it reaches become one program."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from kernbench.ptx.emulator.inspect.naming import naming_step
from kernbench.ptx.emulator.inspect.probing import probe_step
from kernbench.ptx.emulator.instructions import meaning_of
from kernbench.ptx.emulator.lanes.slots import RegisterSlot, SlotTable
from kernbench.ptx.emulator.memory.stack import STACK_BYTES
from kernbench.ptx.emulator.program.facts import FromFacts
from kernbench.ptx.emulator.program.flow import Order, order_blocks
from kernbench.ptx.emulator.program.layout import (
    RESERVED,
    SharedLayout,
    all_scopes,
    lay_out_frame,
    reachable,
)
from kernbench.ptx.emulator.program.locations import Origin
from kernbench.ptx.emulator.program.operands import Decoding, Linker
from kernbench.ptx.emulator.program.program import Code, SharedVariable, Site, brief
from kernbench.ptx.emulator.program.reports import ACCESSES, BY_UNITS, Report
from kernbench.ptx.emulator.program.scopes import Line, Register, Scope, flatten
from kernbench.ptx.emulator.program.steps import ControlStep, Step
from kernbench.ptx.isa import Resolved, resolve
from kernbench.ptx.text.module import Function, Instruction, Integer, Kernel
from kernbench.ptx.text.printer import instruction_text
from kernbench.ptx.text.walking import mentions

# characters of a line that no instruction has by itself; of such a line each site shows its own instruction
_LONG_LINE = 4_000

# recursive activations that a thread's local memory is sized for
_DEEPEST_RECURSION = 64
# bytes of the frame of a recursive function with registers, as a compiler saves them there: endless recursion overflows
# the stack before the registers of all its calls fill the memory
_SMALLEST_FRAME = 16


@dataclass(eq=False)
class Body:
    """A decoded function: its lines, the resolved form of each, and its basic blocks."""

    function: Function
    lines: list[Line]
    scope: Scope
    code: Code
    resolved: list[Resolved]
    # the line at which each block begins
    starts: list[int] = field(default_factory=list)
    # decoded instructions of each block, and the successors of each block, numbered from the function's first
    decodings: list[list[Decoding]] = field(default_factory=list)
    edges: list[list[int]] = field(default_factory=list)
    order: Order = field(default_factory=lambda: Order((), ()))

    def __iter__(self) -> Iterator[Decoding]:
        """Its instructions, block by block."""
        return (d for decodings in self.decodings for d in decodings)

    @property
    def entry(self) -> bool:
        """Whether it is the kernel."""
        return self.function.kind == "entry"

    @cached_property
    def looked_at(self) -> bool:
        """Whether a checkpoint in it may read any of its registers."""
        return any(decoding.line.checkpoint is not None for decoding in self)

    def all_registers(self) -> list[Register]:
        """Its registers, in the order of first use."""
        return [r for scope in all_scopes(self.lines, self.scope) for r in scope.registers.values()]

    def formal_registers(self) -> list[Register]:
        """Registers that a call sets."""
        formals = (self.scope.register(formal.name) for formal in self.function.params if formal.space == "reg")
        return [register for register in formals if register is not None]

    def block_at(self, line: int) -> int:
        """The number of the block that begins at a line."""
        return self.code.entry + self.starts.index(line)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A decoded kernel with the functions it reaches; analyses read it, and programs are assembled from it."""

    kernel: Kernel
    bodies: list[Body]
    table: SlotTable
    linker: Linker
    sites: list[Site]
    shared: list[SharedVariable]
    # the offset of dynamic shared memory, the declared bytes of static variables, and the bytes of a thread's local
    # memory
    static_shared: int
    declared_shared: int
    local_bytes: int

    @property
    def compiler(self) -> str:
        """The compiler that signed the code, "" for hand-written code."""
        return self.kernel.module.compiler


# by function name: lines before which a wait for all wgmma operations is inserted
Waits = Mapping[str, Collection[int]]
_NO_WAITS: Waits = {}


def decode(
    kernel: Kernel, clustered: bool = False, probed: bool = False, named: bool = False, waits: Waits = _NO_WAITS
) -> Decoded:
    """Decode a kernel and its functions; raises `PtxError` for unsupported code.

    `clustered`: launched with clusters of several CTAs; `probed`: a probe inspects it; `named`: its checkpoints are
    needed.
    """
    return _Decoder(kernel, clustered, probed, named, waits).decode()


class _Decoder:
    def __init__(self, kernel: Kernel, clustered: bool, probed: bool, named: bool, waits: Waits):
        self.kernel = kernel
        self.probed = probed
        self.named = named
        self.waits = waits
        self.module = kernel.module
        self.table = SlotTable()
        self.shared = SharedLayout()
        names = self.module.variables, self.module.functions, self.module.kernels
        self.linker = Linker(self.table, *names, clustered=clustered, target=self.module.arch)
        self.blocks = 0
        self.sites: list[Site] = []
        self.files = kernel.module.source_files

    def decode(self) -> Decoded:
        bodies = [self._body(function) for function in reachable(self.kernel, self.module).values()]
        self._lay_out_shared(bodies)
        static = self.shared.close()
        self.linker.shared = self.shared.offsets
        for body in bodies:
            self._partition(body)
            self.linker.codes[body.code.name] = body.code
        for body in bodies:
            self._decode(body)
        local = lay_out_frames(self.linker.codes, self.kernel.name)
        if self.linker.takes_stack:
            local += STACK_BYTES
        shared = self.shared
        return Decoded(
            self.kernel, bodies, self.table, self.linker, self.sites, shared.variables, static, shared.declared, local
        )

    def _body(self, function: Function) -> Body:
        lines, scope = flatten(function, self.table, self.module, self.named)
        if waits := self.waits.get(function.name):
            lines = _with_waits(lines, all_scopes(lines, scope), waits)
        code = Code(function.name, params=function.params, returns=function.returns, scope=id(scope))
        for formal in (*function.params, *function.returns):
            register = scope.register(formal.name) if formal.space == "reg" else None
            if register is not None:
                code.formals[formal.name] = self.table.number(RegisterSlot(register.bank, register.row))
        lay_out_frame(code, all_scopes(lines, scope), function.kind == "entry")
        return Body(function, lines, scope, code, [resolve(line.instruction) for line in lines])

    def _lay_out_shared(self, bodies: list[Body]) -> None:
        for body in bodies:
            for scope in all_scopes(body.lines, body.scope):
                for variable in scope.variables.values():
                    if variable.space == "shared":
                        self.shared.add(id(scope), variable)
            assert body.function.body is not None
            for name in mentions(body.function.body).names:
                if name.startswith(RESERVED):
                    self.shared.reserve()
                outside = self.module.variables.get(name)
                if outside is not None and outside.space == "shared":
                    self.shared.add(0, outside)

    def _partition(self, body: Body) -> None:
        starts = {0, len(body.lines)}
        for scope in all_scopes(body.lines, body.scope):
            starts.update(scope.labels.values())
        starts.update(n + 1 for n, resolved in enumerate(body.resolved) if resolved.effects.ends_block)
        body.starts = sorted(starts)
        body.code.entry = self.blocks
        self.blocks += len(body.starts)

    def _decode(self, body: Body) -> None:
        first = body.code.entry
        for position, start in enumerate(body.starts):
            end = body.starts[position + 1] if position + 1 < len(body.starts) else start
            following = first + position + 1
            decodings = [self._decoding(body, number, following) for number in range(start, end)]
            body.decodings.append(decodings)
            ends = start == len(body.lines)
            body.edges.append([number - first for number in _edges(decodings, following, ends)])
        body.order = order_blocks(body.edges)
        for scope in all_scopes(body.lines, body.scope):
            for register in scope.registers.values():
                rows = range(register.row, register.row + register.rows)
                body.code.rows.setdefault(register.bank, []).extend(rows)

    def _looking(self, decoding: Decoding) -> tuple[Step, ...]:
        """Steps of probes and checkpoints before an instruction."""
        if decoding.line.checkpoint is not None:
            return (naming_step(decoding, decoding.line.checkpoint, self.module),)
        return (probe_step(decoding.site),) if self.probed else ()

    def _decoding(self, body: Body, number: int, following: int) -> Decoding:
        line = body.lines[number]
        instruction, resolved = line.instruction, body.resolved[number]
        line_text = self.module.line_text(instruction.line)
        text = brief(line_text.strip() if 0 < len(line_text) < _LONG_LINE else instruction_text(instruction))
        source = self._source(line.loc)
        site = Site(
            len(self.sites),
            body.code.name,
            instruction.opcode,
            instruction.line,
            text,
            *source,
            resolved.effects,
            instruction.name,
            instruction.guard is not None,
        )
        self.sites.append(site)
        decoding = Decoding(line, resolved, site, body.code, self.linker, body.entry, following, body.block_at)
        decoding.made = made = meaning_of(decoding)
        controls = made.controls if isinstance(made, FromFacts) else isinstance(made, ControlStep)
        assert controls == decoding.effects.ends_block, resolved.meaning
        decoding.looking = self._looking(decoding)
        decoding.report = decoding.report or _plain_report(decoding)
        # the guard counts as read
        decoding.guard()
        return decoding.close()

    def _source(self, origin: Origin | None) -> tuple[str, int, tuple[tuple[str, int], ...]]:
        """File and line to show, and those of all inlined functions, the innermost first."""
        if origin is None:
            return "", 0, ()
        frames = tuple((self.files.get(one.file, ""), one.source_line) for one in origin.frames)
        return *frames[origin.shown], frames


def _plain_report(d: Decoding) -> Report | None:
    """A report for instructions without one of their own: that warps execute it."""
    event = d.effects.event
    if not event or event in BY_UNITS or event in ACCESSES or d.line.checkpoint is not None:
        return None
    return Report(d.site, event)


def _with_waits(lines: list[Line], scopes: list[Scope], before: Collection[int]) -> list[Line]:
    """The lines with an inserted wait for all wgmma operations before some; labels there move before the wait."""
    found: list[Line] = []
    moved = []
    for number, line in enumerate(lines):
        moved.append(len(found))
        if number in before:
            found.extend(replace(line, instruction=one, checkpoint=None) for one in _wait_at(line.instruction.line))
        found.append(line)
    moved.append(len(found))
    for scope in scopes:
        scope.labels.update({name: moved[number] for name, number in scope.labels.items()})
    return found


def _wait_at(line: int) -> tuple[Instruction, Instruction]:
    """Instructions that commit everything issued, and wait for it."""
    commit = Instruction("wgmma", ("commit_group", "sync", "aligned"), (), None, line)
    wait = Instruction("wgmma", ("wait_group", "sync", "aligned"), (Integer(0, "0"),), None, line)
    return commit, wait


def _edges(decodings: list[Decoding], following: int, ends: bool) -> list[int]:
    """The successors of a block; after the last line a function `ends`."""
    last = decodings[-1] if decodings else None
    if ends:
        return []
    if last is None or not isinstance(last.made, ControlStep):
        return [following]
    falls = last.made.falls or last.instruction.guard is not None
    return [*dict.fromkeys((*last.made.targets, *((following,) if falls else ())))]


def lay_out_frames(codes: dict[str, Code], entry: str) -> int:
    """Place each function's frame in a thread's local memory; returns the bytes that a thread needs."""
    for code in codes.values():
        if "" in code.callees:
            code.callees.discard("")
            code.callees.update(name for name in codes if name != entry)
    for code in codes.values():
        code.recursive = code.name in _called(code, codes)
        if code.recursive and code.rows:
            code.frame_bytes = max(code.frame_bytes, _SMALLEST_FRAME)
    pending = [entry]
    while pending:
        caller = codes[pending.pop()]
        for callee in (codes[name] for name in caller.callees if name in codes):
            base = caller.base + caller.frame_bytes
            if not callee.recursive and base > callee.base:
                callee.base = base
                pending.append(callee.name)
    end = max(code.base + code.frame_bytes for code in codes.values())
    if any(code.recursive for code in codes.values()):
        end += _DEEPEST_RECURSION * max(_SMALLEST_FRAME, sum(code.frame_bytes for code in codes.values()))
    return end


def _called(code: Code, codes: dict[str, Code]) -> set[str]:
    """Every function that a call from `code` may reach."""
    found: set[str] = set()
    pending = list(code.callees)
    while pending:
        name = pending.pop()
        if name in codes and name not in found:
            found.add(name)
            pending.extend(codes[name].callees)
    return found
