"""Assembly of a program: basic blocks of steps, made from decoded instructions and the facts about them.

The order of steps around an instruction: undefined-value tracking before it, checks beside it, probes, operand
conversions, the instruction, result conversions, checks after it, undefined-value tracking after it. A check beside an
instruction is merged into the step next to it, so that the numbering of steps does not change.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from kernbench.ptx.emulator.analysis.flow.dataflow import bits, local_to_blocks
from kernbench.ptx.emulator.analysis.flow.wanted import Wanted, rows_of
from kernbench.ptx.emulator.analysis.undefined.choices import Choices
from kernbench.ptx.emulator.analysis.undefined.definedness import Following, Inserted
from kernbench.ptx.emulator.fused.blocks import FusedBlock, chained, fused
from kernbench.ptx.emulator.instructions.control import leave
from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.lanes.flags import whole_of
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.slots import RegisterSlot
from kernbench.ptx.emulator.program.facts import Beside, Check, Facts, FromFacts, UnusedLoads
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Block, Program
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.steps import (
    AnyFragment,
    Computed,
    Control,
    ControlStep,
    Direct,
    Exchanged,
    General,
    Loaded,
    Marks,
    Step,
    guarded,
    relaxed,
)
from kernbench.ptx.emulator.units.batch import Fragment, Scheduler, Window

# owner of steps without an instruction
_NOBODY = -1


def assemble(decoded: Decoded, facts: Facts, aliased: bool, recorded: bool = False) -> Program:
    """The program of a decoded kernel; if it is `recorded`, its steps report to a recorder. It is immutable."""
    following = Following(bool(decoded.compiler), decoded.local_bytes > 0, facts.pure)
    blocks: list[Block] = []
    for body, unused in zip(decoded.bodies, facts.unused, strict=True):
        for bank, row in unused.rows:
            body.code.rows.setdefault(bank, []).append(row)
        strayed = facts.pure[body.code.name].strayed if body.code.name in facts.pure else None
        if strayed is not None:
            body.code.rows.setdefault(strayed.bank, []).append(strayed.row)
        body.code.close()
    for number, body in enumerate(decoded.bodies):
        blocks += _blocks(body, number, facts, following, recorded)
    return _program(decoded, facts, blocks, aliased)


def _program(decoded: Decoded, facts: Facts, blocks: list[Block], aliased: bool) -> Program:
    table, linker = decoded.table, decoded.linker
    table.close()
    registers = [register for found in facts.undefined for register in found.registers.values()]
    return Program(
        kernel=decoded.kernel,
        table=table,
        blocks=tuple(blocks),
        codes=linker.codes,
        sites=decoded.sites,
        shared=decoded.shared,
        static_shared=decoded.static_shared,
        declared_shared=decoded.declared_shared,
        local_bytes=decoded.local_bytes,
        variables=linker.used,
        takes_stack=linker.takes_stack,
        undefined_registers=tuple(((r.bank, r.row), int(whole_of(r))) for r in registers),
        caught=facts.caught,
        carrying=facts.carrying,
        aliased=aliased,
        deferred=_joined(facts.unused, lambda one: one.deferred),
        idle_loads={site: keys for one in facts.unused for site, keys in one.idle_loads.items()},
        leaving=frozenset[tuple[int, int]]().union(*(one.leaving for one in facts.unused)),
        integer_stores=facts.integer_stores,
        reduced_stores=facts.reduced_stores,
        exchanged=facts.exchanged,
        decided=facts.decided,
        returned=facts.returned,
        blind=facts.blind,
        writers=facts.writers,
        meant=facts.meant,
        meant_variables=facts.meant_variables,
        written_params=facts.written_params,
        parameter_types=facts.parameter_types,
        asynchronous=facts.asynchronous,
        fences_tensor=facts.fences_tensor,
        cancels_blocks=facts.cancels_blocks,
        hands_over=facts.hands_over,
        has_flags=facts.has_flags,
        volatile_sites=facts.volatile_sites,
        volatile_data=facts.volatile_data,
        noncoherent_sites=facts.noncoherent_sites,
        edges=facts.edges,
        idle=facts.idle,
    )


def _joined(unused: tuple[UnusedLoads, ...], of: Callable[[UnusedLoads], frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*map(of, unused))


def _blocks(body: Body, function: int, facts: Facts, following: Following, recorded: bool) -> list[Block]:
    """All blocks of a function."""
    local = local_to_blocks(body)
    found = [_Steps(local, recorded) for _ in body.starts]
    wanted = Wanted(body, lambda position: (found[position].steps(), found[position].owners))
    choices = following.choices(body)
    parts: list[FusedBlock] = []
    blocks: list[Block] = []
    for position, steps in enumerate(found):
        block, part = _block(body, function, position, facts, (following, choices), steps, wanted)
        blocks.append(block)
        parts.append(part)
    for position, chain in chained(parts, wanted.dead).items():
        blocks[position] = replace(blocks[position], chain=chain)
    return blocks


def _block(
    body: Body,
    function: int,
    position: int,
    facts: Facts,
    how: tuple[Following, Choices | None],
    steps: "_Steps",
    wanted: Wanted,
) -> tuple[Block, FusedBlock]:
    """One block of a function, by its position; its steps are collected in `steps`."""
    decodings, number = body.decodings[position], body.code.entry + position
    following, choices = how
    for decoding in decodings:
        steps.add(decoding, facts)
    if body.starts[position] == len(body.lines):
        steps.control = leave(body.entry).run
    undefined = facts.undefined[function]
    before, unset = undefined.before[position], undefined.registers
    inserted = following.plain_steps(decodings, steps.spans, before, unset)
    plain = tuple(steps.general)
    steps.insert(inserted)
    # those that follow undefined values go step by step
    all_steps = tuple(steps.steps())
    dead = _Dead(body, decodings, all_steps, steps.owners)
    direct, general, groups = fused(all_steps, dead, lambda begin, end: wanted.dead((position, begin), (position, end)))
    account, rank = _Account(decodings), body.code.entry + body.order.ranks[position]
    block = Block(
        number,
        body.code.name,
        rank,
        tuple(direct),
        tuple(general),
        tuple(step.general for step in all_steps),
        following.maker(decodings, steps.spans, plain, choices, position),
        steps.control,
        number + 1,
        tuple(decoding.site for decoding in decodings if decoding.line.checkpoint is None),
        account.kinds,
        account.traffic,
        account.flops,
        number in facts.ends,
        facts.wait_loops.get(number),
    )
    anew = block.wait_loop is not None or block.ends
    part = FusedBlock(
        all_steps, block.direct, block.general, tuple(groups), steps.exchanged, rank, len(block.sites), anew
    )
    return block, part


class _Account:
    """Metrics of a block: kinds of instructions, bytes per lane, floating-point operations."""

    def __init__(self, decodings: list[Decoding]):
        self.kinds: Counter[str] = Counter()
        self.traffic: Counter[tuple[str, str]] = Counter()
        self.flops = 0
        for decoding in decodings:
            if decoding.line.checkpoint is not None:
                continue
            self.kinds[decoding.resolved.form.cost] += 1
            if decoding.traffic is not None:
                space, direction, nbytes = decoding.traffic
                self.traffic[space, direction] += nbytes
            self.flops += decoding.flops


class _Steps:
    """The steps of one block under construction, in both forms, and its control.

    `local` registers are dead in all other blocks. If the launch is `recorded`, instructions report what they do.
    """

    def __init__(self, local: int, recorded: bool) -> None:
        self._local = local
        self._recorded = recorded
        self.direct: list[Direct] = []
        self.general: list[General] = []
        # the description of each step that only computes or loads, and the number of its instruction
        self._computed: list[Computed | Loaded | None] = []
        # definedness rules of inserted tracking steps
        self._marks: dict[Direct, Marks] = {}
        # the exchange of whole warps at its end, if its control does nothing else
        self.exchanged: Exchanged | None = None
        self.owners: list[int] = []
        self.control: Control | None = None
        # the range of steps of each instruction
        self.spans: list[tuple[int, int]] = []

    def add(self, decoding: Decoding, facts: Facts) -> None:
        """Add the steps of one instruction, and the checks beside it."""
        made = decoding.made.make(facts) if isinstance(decoding.made, FromFacts) else decoding.made
        if self._recorded and decoding.report is not None and made is not None:
            made = _reported(made, decoding.report)
        begin = len(self.direct)
        only_active = self._only_active(decoding)
        for step in (*decoding.looking, *decoding.before):
            self._append(relaxed(step) if only_active else step)
        if isinstance(made, ControlStep):
            self.control = _guarded_control(decoding, made)
            self.exchanged = made.exchanged if decoding.guard() is None else None
        elif made is not None:
            guard = decoding.guard()
            for step in (made, *decoding.after):
                if guard is not None:
                    step = guarded(step, *guard, decoding.writes_guard())
                self._append(relaxed(step) if only_active else step)
        self.spans.append((begin, len(self.direct)))
        for one in facts.beside.get(decoding.site.number, ()):
            self._run_beside(one, begin)

    def _only_active(self, decoding: Decoding) -> bool:
        """Whether the registers an instruction writes are live only in the lanes that run it.

        With a probe they are live in all lanes, since it shows whole warps.
        """
        effects = decoding.effects
        if not effects.computes or effects.carry_flag or decoding.looking or decoding.instruction.guard is not None:
            return False
        return not bits(decoding.writes) & ~self._local

    def _append(self, step: Step) -> None:
        self.direct.append(step.direct)
        self.general.append(step.general)
        self._computed.append(step.computed if step.loaded is None else step.loaded)
        self.owners.append(len(self.spans))

    def steps(self) -> list[Step]:
        """All steps so far."""
        rows = zip(self.direct, self.general, self._computed, strict=True)
        return [
            Step(direct, general, False, None, item)
            if isinstance(item, Loaded)
            else Step(direct, general, False, item, None, self._marks.get(direct))
            for direct, general, item in rows
        ]

    def _run_beside(self, one: Beside, begin: int) -> None:
        """Add a check beside the last instruction; for a control it runs before, as control may not come back."""
        check = _where_looked(one.check)
        if self.control is not None:
            self.control, self.exchanged = _before_control(self.control, check), None
        elif one.after:
            self._run_after(check)
        else:
            self._run_before(check, begin)

    def _run_before(self, check: Check, index: int) -> None:
        direct, general = self.direct[index], self.general[index]

        def run_direct(window: Window) -> None:
            check(window, None)
            direct(window)

        def run_general(window: Window, mask: Mask | None) -> None:
            check(window, mask)
            general(window, mask)

        self.direct[index], self.general[index], self._computed[index] = run_direct, run_general, None

    def _run_after(self, check: Check) -> None:
        direct, general = self.direct[-1], self.general[-1]

        # a load of an undefined value raises after it is complete
        def run_direct(window: Window) -> None:
            try:
                direct(window)
            finally:
                check(window, None)

        def run_general(window: Window, mask: Mask | None) -> None:
            try:
                general(window, mask)
            finally:
                check(window, mask)

        self.direct[-1], self.general[-1], self._computed[-1] = run_direct, run_general, None

    def insert(self, inserted: Inserted) -> None:
        """Insert steps before or after the instructions they belong to."""
        # from the end, so that indices stay valid and steps of equal index keep their order
        for index, step in sorted(inserted, key=lambda item: item[0])[::-1]:
            self.general.insert(index, step.general)
            self.direct.insert(index, step.direct)
            self._computed.insert(index, step.computed if step.loaded is None else step.loaded)
            self.owners.insert(index, _NOBODY)
            if step.marks is not None:
                self._marks[step.direct] = step.marks


class _Dead:
    """Slots that are dead after some steps of a block: registers that are dead in all other blocks, and temporaries.

    Result registers are read by the caller, and checkpoints may read any register of the function.
    """

    def __init__(self, body: Body, decodings: list[Decoding], steps: Sequence[Step], owners: Sequence[int]):
        self._decodings = decodings
        self._looked_at = body.looked_at
        specs = [decodings[0].table.slots[slot] for slot in body.code.formals.values()] if decodings else []
        self._formals = {(one.bank, one.row) for one in specs if isinstance(one, RegisterSlot)}
        self._steps, self._owners = steps, owners
        # the last instruction that reads each row, and the last step without an instruction
        self._last_read = {row: n for n, decoding in enumerate(decodings) for row in rows_of(decoding.reads)}
        self._last_foreign = max((n for n, owner in enumerate(self._owners) if owner == _NOBODY), default=-1)

    def __call__(self, begin: int, end: int) -> frozenset[int]:
        """Slots that the steps write and nothing reads from `end` on."""
        if self._looked_at or self._last_foreign >= begin:
            return frozenset()
        # the instruction of the last step may have more steps
        cut = end < len(self._owners) and self._owners[end] == self._owners[end - 1]
        rest = self._owners[end - 1] + (0 if cut else 1)
        found: set[int] = set()
        for number in range(begin, end):
            computed, owner = self._steps[number].computed, self._owners[number]
            if computed is None or not computed.relaxed:
                continue
            written = set(rows_of(self._decodings[owner].writes))
            for slot in computed.targets:
                spec = self._decodings[owner].table.slots[slot]
                row = (spec.bank, spec.row) if isinstance(spec, RegisterSlot) else None
                # a temporary is read only by its own instruction
                if (
                    row is not None
                    and row not in self._formals
                    and (self._last_read.get(row, -1) < rest if row in written else owner < rest)
                ):
                    found.add(slot)
        return frozenset(found)


def _where_looked(check: Check) -> Check:
    """A check that runs only if checks are on.

    Programs are shared by launches with and without checks. A check beside an instruction only prepares reports, and
    may take longer than the instruction. Only this code tests whether checks are on, so that no check needs to.
    """

    def looked(window: Window, mask: Mask | None) -> None:
        if window.batch.checks.checking:
            check(window, mask)

    return looked


def _reported(made: Step | ControlStep, report: Report) -> Step | ControlStep:
    """A step that reports the lanes about to run it to the recorder."""
    if isinstance(made, ControlStep):
        return replace(made, run=_reported_control(made.run, report), exchanged=None)
    direct, general = made.direct, made.general

    def run_direct(window: Window) -> None:
        recorder = window.batch.recorder
        if recorder.recording:
            recorder.executed(report, window, None)
        direct(window)

    def run_general(window: Window, mask: Mask | None) -> None:
        recorder = window.batch.recorder
        if recorder.recording:
            recorder.executed(report, window, mask)
        general(window, mask)

    return Step(run_direct, run_general, made.only_computes)


def _reported_control(control: Control, report: Report) -> Control:
    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        recorder = scheduler.batch.recorder
        if recorder.recording:
            recorder.executed(report, fragment.window, fragment.lanes.mask)
        return control(scheduler, fragment)

    return run


def _before_control(control: Control, check: Check) -> Control:
    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        check(fragment.window, fragment.lanes.mask)
        return control(scheduler, fragment)

    return run


def _guarded_control(decoding: Decoding, control: ControlStep) -> Control:
    guard = decoding.guard()
    if guard is None or control.guards_itself:
        return control.run
    slot, negated = guard
    inner, following = control.run, decoding.following

    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        return scheduler.under_guard(fragment, slot, negated, inner, following)

    return run
