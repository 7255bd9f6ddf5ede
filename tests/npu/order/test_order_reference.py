"""The compiled check over pipes against a slow, obvious one: random programs, order by reachability in a graph."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import npu
from kernbench.npu.isa.operations import NAMES
from kernbench.npu.isa.units import PIPES

TILES = 4
ROWS = np.ones((64, 8), np.float32)


@st.composite
def programs(draw):
    """Steps of a vector core: loads, stores, vector operations, flags (each set has its wait later) and barriers."""
    steps = []
    flags = []
    for _ in range(draw(st.integers(3, 14))):
        kind = draw(st.sampled_from(["load", "store", "vector", "vector", "fill", "flag", "flag", "barrier"]))
        tiles = [draw(st.integers(0, TILES - 1)) for _ in range(3)]
        if kind == "flag":
            source, target = draw(st.permutations(["MTE2", "V", "MTE3"]))[:2]
            flags.append((len(steps), source, target))
            steps.append(("set", source, target))
        else:
            steps.append((kind, *tiles))
    for at, source, target in reversed(flags):
        place = draw(st.integers(at + 1, len(steps)))
        steps.insert(place, ("wait", source, target))
    return numbered(steps)


def numbered(steps):
    """Events in turn for each pair of pipes, so that none is used twice; pairs with more than eight flags lose some."""
    sets, waits, kept = {}, {}, []
    for step in steps:
        if step[0] in ("set", "wait"):
            counts = sets if step[0] == "set" else waits
            event = counts.get(step[1:], 0)
            counts[step[1:]] = event + 1
            if event < 8:
                kept.append((*step, event))
        else:
            kept.append(step)
    return kept


def kernel_of(steps):
    def kernel(core, a, out):
        tiles = [core.tile("UB", (1, 8), "f32", 32 * i, name=f"t{i}") for i in range(TILES)]
        stored = 0
        for step in steps:
            match step:
                case ("load", x, _, _):
                    core.tload(tiles[x], a[:1])
                case ("store", x, _, _):
                    core.tstore(out[stored : stored + 1], tiles[x])
                    stored += 1
                case ("vector", x, y, z):
                    core.tadd(tiles[x], tiles[y], tiles[z])
                case ("fill", x, _, _):
                    core.texpands(tiles[x], 1.0)
                case ("barrier", *_):
                    core.pipe_barrier("V")
                case ("set", source, target, event):
                    core.set_flag(source, target, event)
                case ("wait", source, target, event):
                    core.wait_flag(source, target, event)
        core.pipe_sync()

    return kernel


def first_race(rows):
    """The first row that meets an earlier one in no fixed order at a tile. Row i starts at node 2i, ends at 2i + 1."""
    before = [set() for _ in range(2 * len(rows))]

    def after(node, *earlier):
        for e in earlier:
            before[node] |= before[e] | {e}

    by_pipe, flags, barrier, accesses = {}, {}, {}, []
    for i, row in enumerate(rows):
        name, pipe = NAMES[row["op"]], PIPES[row["pipe"]]
        mine = by_pipe.setdefault(pipe, [])
        if mine:
            after(2 * i, 2 * mine[-1])
            if pipe != "V" or name in ("set_flag", "pipe_barrier"):
                # a set or a barrier is done when all before it is; what follows only a barrier relies on that
                after(2 * i + 1, *(2 * j + 1 for j in mine))
            if pipe != "V":
                after(2 * i, 2 * mine[-1] + 1)
        if pipe in barrier:
            after(2 * i, 2 * barrier[pipe] + 1)
        if name == "wait_flag":
            after(2 * i, 2 * flags.pop((row["a"], row["b"], row["c"])) + 1)
        after(2 * i + 1, 2 * i)
        if name == "set_flag":
            flags[row["a"], row["b"], row["c"]] = i
        if name == "pipe_barrier":
            barrier[pipe] = i
        mine.append(i)
        if name in ("tload", "tstore", "tadd", "texpands"):
            reads = {int(row[c]) for c in "ab" if row[c] >= 0}
            writes = {int(row["w"])} - {-1}
            for j, (their_reads, their_writes) in accesses:
                if (writes & (their_reads | their_writes) or reads & their_writes) and 2 * j + 1 not in before[2 * i]:
                    return i
            accesses.append((i, (reads, writes)))
    return None


@settings(max_examples=sampled.examples(80, 250))
@given(programs())
def test_the_compiled_check_agrees(steps):
    def orchestrate(rt, a, out):
        rt.submit(aiv0=kernel_of(steps), args=[npu.IN(a), npu.OUT(out)])

    chip = npu.Chip("a2a3")
    run = chip.launch(orchestrate, ROWS, ROWS, shapes_only=True)
    rows = run.recording.array()
    sites = run.recording.tables.sites
    wanted = first_race(rows)
    found = [f for f in run.findings if f.kind in ("race", "missing-barrier")]
    assert bool(found) is (wanted is not None)
    if wanted is not None:
        assert sites[rows["site"][wanted]] in [f.where for f in found]
