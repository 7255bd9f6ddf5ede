"""What can be told of a program before it runs: loops that may wait, registers to watch, memory it may write."""

from kernbench.ptx.emulator.asynchronous.actors import is_asynchronous
from kernbench.ptx.emulator.asynchronous.retries import is_retried
from kernbench.ptx.emulator.dataflow import (
    bits,
    live_at_blocks,
    passes_on,
    undefined_at,
    write_places,
    written_parameters,
)
from kernbench.ptx.emulator.decode import Body
from kernbench.ptx.emulator.in_flight import watch_in_flight
from kernbench.ptx.emulator.loops import find_wait_loops
from kernbench.ptx.emulator.operands import Decoding
from kernbench.ptx.emulator.program import Program
from kernbench.ptx.emulator.slots import RegisterSlot
from kernbench.ptx.emulator.steps import Step
from kernbench.ptx.emulator.watching import mark, watch


def analyse(program: Program, bodies: list[Body]) -> None:
    """Add to the program what its functions tell."""
    program.writers = write_places(bodies)
    program.written_params = written_parameters(program.writers, program.kernel)
    program.asynchronous = any(
        is_asynchronous(d.resolved.meaning) for body in bodies for decodings in body.decodings for d in decodings
    )
    _find_ends(program, next(body for body in bodies if body.entry))
    for body in bodies:
        _find_retries(body)
        find_wait_loops(program, body)
        watch_in_flight(program, body)
        _watch_undefined(program, body)


def _find_ends(program: Program, body: Body) -> None:
    """Note the kernel's flow, and its blocks that only end a thread."""
    first = body.code.entry
    for number, (decodings, edges) in enumerate(zip(body.decodings, body.edges, strict=True)):
        program.edges[first + number] = tuple(first + following for following in edges)
        ends = all(d.resolved.meaning in ("ret", "exit") and d.instruction.guard is None for d in decodings)
        program.blocks[first + number].ends = ends and not edges


def _find_retries(body: Body) -> None:
    """Waits that are tried until they succeed park their lanes; one whose result nobody looks at tells nothing."""
    waits = [(block, d) for block, decodings in enumerate(body.decodings) for d in decodings if d.wait is not None]
    live = live_at_blocks(body) if waits else []
    for block, decoding in waits:
        assert decoding.wait is not None
        if decoding.mod("op") == "try_wait":
            decoding.wait.blocks = is_retried(body, block, decoding)
        if not any(live[following] & bits(decoding.writes) for following in body.edges[block]):
            decoding.wait.acquires = False


def _watch_undefined(program: Program, body: Body) -> None:
    """Follow registers that may be used before they are set, and report where they decide something."""
    undefined = undefined_at(body, bits(body.formal_registers()))
    followed: dict[int, int] = {}
    for block, decodings in enumerate(body.decodings):
        for decoding, before in zip(decodings, undefined[block], strict=True):
            for register in decoding.reads:
                if before >> register.number & 1 and register.number not in followed:
                    row = program.table.new_row("bool")
                    followed[register.number] = program.table.number(RegisterSlot("bool", row))
                    program.undefined_rows.append(row)
    if not followed:
        return
    _close(body, followed, program)
    for block, decodings in enumerate(body.decodings):
        _insert(program, body, block, decodings, undefined[block], followed)


def _close(body: Body, followed: dict[int, int], program: Program) -> None:
    """Follow also what is computed from followed registers."""
    changed = True
    while changed:
        changed = False
        for decoding in (d for decodings in body.decodings for d in decodings):
            if not passes_on(decoding) or not any(r.number in followed for r in decoding.reads):
                continue
            for register in decoding.writes:
                if register.number not in followed:
                    row = program.table.new_row("bool")
                    followed[register.number] = program.table.number(RegisterSlot("bool", row))
                    program.undefined_rows.append(row)
                    changed = True


def _insert(
    program: Program, body: Body, block: int, decodings: list[Decoding], before: list[int], followed: dict[int, int]
) -> None:
    """Add steps that watch and mark to a block: each before the instruction it belongs to, or after it."""
    target = program.blocks[body.code.entry + block]
    inserted: list[tuple[int, Step]] = []
    for decoding, undefined in zip(decodings, before, strict=True):
        suspects = [r for r in decoding.deciding() if undefined >> r.number & 1 and r.number in followed]
        for register in suspects:
            inserted.append((decoding.first_step, watch(decoding, register, followed[register.number])))
        written = [followed[r.number] for r in decoding.writes if r.number in followed]
        if written:
            sources = (
                [followed[r.number] for r in decoding.reads if r.number in followed] if passes_on(decoding) else []
            )
            inserted.append((decoding.last_step, mark(decoding, sources, written, followed)))
    inserted.sort(key=lambda item: item[0])
    # from the end, so that places stay right and steps of the same place keep their order
    for place, step in inserted[::-1]:
        target.direct.insert(place, step.direct)
        target.general.insert(place, step.general)
