"""What can be told of a program before it runs: loops that may wait, registers to watch, memory it may write."""

from kernbench.ptx.emulator.analysis.element_types import parameter_types
from kernbench.ptx.emulator.analysis.flow.dataflow import (
    address_origins,
    bits,
    live_at_blocks,
    write_places,
    written_parameters,
)
from kernbench.ptx.emulator.analysis.in_flight import watch_in_flight
from kernbench.ptx.emulator.analysis.integer_stores import note_integer_stores
from kernbench.ptx.emulator.analysis.loads.revalidated import mark_revalidated
from kernbench.ptx.emulator.analysis.loads.unused_loads import defer_unused_loads
from kernbench.ptx.emulator.analysis.loops import find_wait_loops
from kernbench.ptx.emulator.analysis.retries import is_retried
from kernbench.ptx.emulator.analysis.undefined.definedness import watch_undefined
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.program import Program

# of accesses and fences by which threads acquire or release
_HANDING_OVER = frozenset(("sc", "acq_rel", "acquire", "release"))


def analyse(program: Program, bodies: list[Body]) -> None:
    """Add to the program what its functions tell."""
    origins = [address_origins(body) for body in bodies]
    program.writers = write_places(bodies, origins)
    for body, sources in zip(bodies, origins, strict=True):
        if body.entry:
            program.parameter_types = parameter_types(body, sources)
    program.written_params = written_parameters(program.writers, program.kernel)
    every = [d for body in bodies for decodings in body.decodings for d in decodings]
    program.asynchronous = any(d.effects.asynchronous for d in every)
    program.hands_over = any(d.effects.fences or d.mod("sem") in _HANDING_OVER for d in every)
    program.volatile_sites = frozenset(d.site.number for d in every if d.mod("sem") == "volatile")
    for body in bodies:
        _find_blind_updates(program, body)
    _find_ends(program, next(body for body in bodies if body.entry))
    mark_revalidated(bodies)
    named = {body.code.name: body for body in bodies}
    for body in bodies:
        _find_retries(body)
        find_wait_loops(program, body, named)
        watch_in_flight(program, body)
        defer_unused_loads(program, body)
        note_integer_stores(program, body)
        watch_undefined(program, body)


def _find_blind_updates(program: Program, body: Body) -> None:
    """Note reductions, and atomics whose result nothing reads: their threads cannot know what they replaced."""
    read = 0
    for decodings in body.decodings:
        for d in decodings:
            read |= bits(d.reads)
    updates = (d for decodings in body.decodings for d in decodings if d.effects.updates)
    program.blind.update(d.site.number for d in updates if not bits(d.writes) & read)


def _find_ends(program: Program, body: Body) -> None:
    """Note the kernel's flow, and its blocks that only end a thread."""
    first = body.code.entry
    for number, (decodings, edges) in enumerate(zip(body.decodings, body.edges, strict=True)):
        program.edges[first + number] = tuple(first + following for following in edges)
        ends = all(d.effects.ends_thread and d.instruction.guard is None for d in decodings)
        program.blocks[first + number].ends = ends and not edges
    idle = (n for n, decodings in enumerate(body.decodings) if all(d.effects.only_jumps for d in decodings))
    program.idle = frozenset(first + number for number in idle)


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
