"""Random PTX programs, the same for the same seed: safe by construction, or with one change to their synchronisation.

A program is a sequence of segments, each of which passes values between threads in one way: by barriers with and
without counts, mbarriers, copies, atomics, flags, or between the lanes of a warp. A warp's *role* is its number
rotated by the block's, so that warps of different blocks take different paths to the same barriers; if the last warp
of a block is partial, it is the number of the warp. At the end every thread stores its accumulated value.
"""

import random
from collections.abc import Callable
from dataclasses import replace

from kernbench.ptx.reference.programs import asynchronous, clusters, segments
from kernbench.ptx.reference.programs.changes import CHANGES
from kernbench.ptx.reference.programs.writer import HEAD, WARP, Program, Writer

__all__ = ["MORE", "SEGMENTS", "Program", "changed_program", "safe_program"]

SEGMENTS: dict[str, tuple[Callable[[Writer], None], int]] = {
    "exchange": (segments.exchange, 3),
    "group": (segments.group, 4),
    "hand_over": (segments.hand_over, 5),
    "lanes": (segments.lanes, 2),
    "arithmetic": (segments.arithmetic, 2),
    "warp_memory": (segments.warp_memory, 3),
    "warp_values": (segments.warp_values, 3),
    "atomics": (segments.atomics, 2),
    "mbarriers": (asynchronous.mbarriers, 4),
    "same_warp": (asynchronous.same_warp, 2),
    "some_lanes": (asynchronous.some_lanes, 2),
    "relay": (asynchronous.relay, 2),
    "copies": (asynchronous.copies, 2),
    "bulk": (asynchronous.bulk, 2),
    "flags": (segments.flags, 1),
    "leave": (segments.leave, 2),
}

# segments added later are drawn separately, so that existing seeds still give the same programs
MORE: dict[str, tuple[Callable[[Writer], None], int]] = {
    "local_memory": (segments.local_memory, 2),
    "arriving_copies": (asynchronous.arriving_copies, 4),
}


def safe_program(seed: int) -> Program:
    """A program without races that terminates: segments for all blocks, then others that only some blocks execute."""
    rng = random.Random(seed)
    warps, grid = rng.choice((1, 2, 2, 3, 3, 4)), rng.choice((1, 2, 3, 3, 4, 5))
    stride, more = rng.randrange(warps), random.Random(seed ^ 0xE929)
    missing = more.choice((0, 0, 0, 1, 12, 20, 27, 31))
    chance = random.Random(seed ^ 0xC105)
    cluster = chance.choice((2, 2, 3, 4)) if chance.random() < 0.15 else 1
    grid += -grid % cluster
    writer = Writer(rng, grid, warps, 0 if missing else stride, list(range(warps)), missing)
    together = [clusters.ring] if cluster > 1 else []
    if cluster > 1 and chance.random() < 0.5:
        together.append(clusters.multicast)
    for segment in together:
        segment(writer, cluster)
    if cluster > 1 and chance.random() < 0.3:
        # drawn from a generator of its own, as it was added later
        together.append(clusters.collect)
        writer.rng = chance
        clusters.collect(writer, cluster)
        writer.rng = rng
    kinds = [segment.__name__ for segment in together] + _row(writer, rng.choice((0, 0, 1, 1, 2)), more)
    if kinds and rng.random() < 0.5:
        writer.add("barrier.sync 0;")
        if len(writer.living) == warps:
            # barrier numbers may be reused: no warp has exited that alone knew that a round was complete
            writer.barrier = 0
    ways = rng.choice((1, 2, 2, 3))
    for way in range(ways):
        kinds += _way(writer, way, ways, more)
    registers = writer.counts
    head = HEAD.format(
        predicates=registers["%p"] + 1, words=registers["%r"] + 1, wide=registers["%rd"] + 1,
        variables="\n".join(writer.variables), threads=warps * WARP - missing, stride=writer.stride, warps=warps,
    )  # fmt: skip
    return Program(seed, grid, warps, writer.lines, head, kinds=tuple(kinds), missing=missing, cluster=cluster)


def _row(w: Writer, count: int, more: random.Random, everywhere: bool = True) -> list[str]:
    """Segments in sequence; flags, which blocks pass on to each other, at most once and only where all blocks do."""
    kinds: list[str] = []
    if count and len(w.living) > 2 and w.rng.random() < 0.25:
        kinds.append("leave")
        segments.leave(w)
    for name in w.rng.choices(list(SEGMENTS), [weight for _, weight in SEGMENTS.values()], k=count):
        if name != "flags" or (everywhere and name not in kinds):
            kinds.append(name)
            SEGMENTS[name][0](w)
    for name in more.choices(list(MORE), [weight for _, weight in MORE.values()], k=more.random() < 0.2):
        kinds.append(name)
        MORE[name][0](w)
    return kinds


def _way(w: Writer, way: int, ways: int, more: random.Random) -> list[str]:
    """Segments for blocks whose number modulo `ways` is `way`; all begin with the same free barriers and live warps."""
    if ways == 1:
        return _row(w, w.rng.choice((1, 1, 2)), more, False) + _last(w, more)
    barrier, living, area = w.barrier, w.living, w.area
    rest, elsewhere, after = w.new("%r"), w.new("%p"), w.new("L")
    w.add(f"rem.u32 {rest}, %r1, {ways};", f"setp.ne.u32 {elsewhere}, {rest}, {way};", f"@{elsewhere} bra {after};")
    kinds = _row(w, w.rng.choice((0, 1, 1, 2)), more, False) + _last(w, more)
    w.add(f"{after}:")
    w.barrier, w.living, w.area = barrier, living, area
    return kinds


def _last(w: Writer, more: random.Random) -> list[str]:
    """What can only come last in a path: lanes exit."""
    if more.random() > 0.15:
        return []
    segments.lanes_leave(w)
    return ["lanes_leave"]


def changed_program(seed: int) -> Program | None:
    """A safe program with one change to its synchronisation; None if it has none."""
    program = safe_program(seed)
    rng = random.Random(seed ^ 0x5EED)
    candidates = [i for i, line in enumerate(program.lines) if line.sync]
    if not candidates:
        return None
    at = rng.choice(candidates)
    line = program.lines[at]
    how = rng.choice(CHANGES[line.sync])
    lines = how(program.lines, at, rng)
    what = f"{how.__name__.strip('_')} {line.text.split(';')[0].split(chr(10))[-1].strip()}"
    return replace(program, lines=lines, change=what)
