"""Runs all static analyses of a program: loops that may wait, registers to track, memory it may write, and more."""

from collections.abc import Iterable

from kernbench.ptx.emulator.analysis.element_types import parameter_types
from kernbench.ptx.emulator.analysis.exchanged import exchanged_loads
from kernbench.ptx.emulator.analysis.flow.dataflow import (
    address_origins,
    bits,
    live_at_blocks,
    write_sites,
    written_parameters,
)
from kernbench.ptx.emulator.analysis.flow.meant import meant_parameters
from kernbench.ptx.emulator.analysis.flow.meant_variables import meant_variables
from kernbench.ptx.emulator.analysis.in_flight import watch_in_flight
from kernbench.ptx.emulator.analysis.integer_stores import integer_stores
from kernbench.ptx.emulator.analysis.loads.revalidated import validated_loads
from kernbench.ptx.emulator.analysis.loads.unused_loads import find_unused_loads
from kernbench.ptx.emulator.analysis.loops import find_wait_loops
from kernbench.ptx.emulator.analysis.reduced_stores import reduced_stores
from kernbench.ptx.emulator.analysis.retries import is_retried
from kernbench.ptx.emulator.analysis.returned import decided_stores, returned_atomics
from kernbench.ptx.emulator.analysis.undefined.definedness import Following, find_undefined
from kernbench.ptx.emulator.analysis.undefined.pure import pure_functions
from kernbench.ptx.emulator.analysis.volatile_data import has_flags, volatile_data
from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.program.facts import Beside, Facts
from kernbench.ptx.emulator.program.program import WaitLoop

# modifiers by which threads acquire or release
_HANDING_OVER = frozenset(("sc", "acq_rel", "acquire", "release"))


def analyse(decoded: Decoded, aliased: bool = False) -> Facts:
    """The facts about a program; `aliased` says that several parameters point to one array. Changes nothing."""
    bodies = decoded.bodies
    every = [d for body in bodies for d in body]
    origins = [address_origins(body) for body in bodies]
    kernel, sources = next((body, origin) for body, origin in zip(bodies, origins, strict=True) if body.entry)
    writers = write_sites(bodies, origins)
    validated = validated_loads(bodies)
    parking, ignored = retried_waits(bodies)
    in_flight = [watch_in_flight(decoded, body) for body in bodies]
    unused = tuple(find_unused_loads(decoded, body, writers, aliased, validated) for body in bodies)
    meant = meant_parameters(kernel, decoded.kernel)
    hands_over = any(d.effects.fences or d.mod("sem") in _HANDING_OVER for d in every)
    handing = bodies if hands_over else []
    following = Following(bool(decoded.compiler), decoded.local_bytes > 0)
    edges, ends, idle = _ends(kernel)
    return Facts(
        validated=validated,
        parking=parking,
        ignored=ignored,
        wait_loops=_wait_loops(decoded, parking),
        beside=_by_site(one for checks in (*in_flight, *(each.beside for each in unused)) for one in checks),
        undefined=tuple(find_undefined(body) for body in bodies),
        unused=unused,
        pure=pure_functions(decoded) if decoded.compiler else {},
        caught=frozenset(d.site.number for d in every if following.catches(d)),
        carrying=frozenset(d.site.number for d in every if decoded.compiler and d.effects.carries_undefined),
        integer_stores=frozenset[int]().union(*(integer_stores(decoded, body) for body in bodies)),
        reduced_stores=dict(one for body in bodies for one in reduced_stores(decoded, body)),
        exchanged=dict(one for body in bodies for one in exchanged_loads(body)),
        decided=dict(one for body in handing for one in decided_stores(body)),
        returned=frozenset(site for body in handing for site in returned_atomics(body)),
        blind=frozenset[int]().union(*(_blind_updates(body) for body in bodies)),
        edges=edges,
        ends=ends,
        idle=idle,
        writers=tuple(writers),
        meant=meant,
        meant_variables=meant_variables(decoded),
        written_params=written_parameters(writers, decoded.kernel),
        parameter_types=parameter_types(kernel, sources),
        asynchronous=any(d.effects.asynchronous for d in every),
        fences_tensor=any(d.effects.fences_tensor for d in every),
        cancels_blocks=any(d.effects.cancels_blocks for d in every),
        hands_over=hands_over,
        has_flags=has_flags(decoded),
        volatile_data=frozenset() if hands_over else volatile_data(decoded),
        volatile_sites=frozenset(d.site.number for d in every if d.mod("sem") == "volatile"),
        noncoherent_sites=frozenset(d.site.number for d in every if d.has("nc")),
    )


def _by_site(checks: Iterable[Beside]) -> dict[int, tuple[Beside, ...]]:
    found: dict[int, tuple[Beside, ...]] = {}
    for one in checks:
        found[one.site] = (*found.get(one.site, ()), one)
    return found


def _wait_loops(decoded: Decoded, parking: frozenset[int]) -> dict[int, WaitLoop]:
    named = {body.code.name: body for body in decoded.bodies}
    found: dict[int, WaitLoop] = {}
    for body in decoded.bodies:
        found |= find_wait_loops(decoded.table, body, named, parking)
    return found


def _blind_updates(body: Body) -> frozenset[int]:
    """Reductions, and atomics whose result is unused: their threads cannot observe the old value."""
    read = 0
    for d in body:
        read |= bits(d.reads)
    return frozenset(d.site.number for d in body if d.effects.updates and not bits(d.writes) & read)


def _ends(body: Body) -> tuple[dict[int, tuple[int, ...]], frozenset[int], frozenset[int]]:
    """The kernel's control flow, its blocks that only end a thread, and those that only jump or end."""
    first = body.code.entry
    edges = {first + number: tuple(first + following for following in after) for number, after in enumerate(body.edges)}
    blocks = [(first + number, decodings) for number, decodings in enumerate(body.decodings)]
    ends = (
        number
        for number, decodings in blocks
        if not edges[number] and all(d.effects.ends_thread and d.instruction.guard is None for d in decodings)
    )
    idle = (number for number, decodings in blocks if all(d.effects.only_jumps for d in decodings))
    return edges, frozenset(ends), frozenset(idle)


def retried_waits(bodies: list[Body]) -> tuple[frozenset[int], frozenset[int]]:
    """Waits that are retried until they succeed, which park their lanes; and those whose result is unused."""
    parking: set[int] = set()
    ignored: set[int] = set()
    for body in bodies:
        waits = [(block, d) for block, decodings in enumerate(body.decodings) for d in decodings if d.effects.polls]
        live = live_at_blocks(body) if waits else []
        for block, d in waits:
            if d.mod("op") == "try_wait" and is_retried(body, block, d):
                parking.add(d.site.number)
            if not any(live[following] & bits(d.writes) for following in body.edges[block]):
                ignored.add(d.site.number)
    return frozenset(parking), frozenset(ignored)
