"""Random npu programs that are safe by construction, or have one planted bug; and what they do to memory, in time.

A program is a list of tasks on three tensors. The steps of a task are drawn in one order in which they can run. Before
each step, flags and barriers are drawn only where the step meets an earlier one whose end it does not know of yet (by
vector clocks of this file's own): so the last one drawn for a step is needed, and leaving it out is a bug.
"""

from dataclasses import dataclass, field
from random import Random

import numpy as np

from kernbench import npu
from kernbench.common.dtypes import ITEMSIZE
from kernbench.npu.isa.operations import BARRIER, CLASSES, LOAD, NAMES, POP, PUSH, SET, STORE, WAIT
from kernbench.npu.time.clock import time_recording
from kernbench.safety.timed_order import TimedOrder, strided_bytes

SCHEDULES = ("canonical", "reversed")
# rows of a block's part of a tensor, columns, most blocks, and the tiles of a lane
HEIGHT, COLUMNS, BLOCKS, SIDE = 16, 32, 3, 16
UB_TILES = ("t0", "t1", "t2")
TENSORS = ("x", "y", "z")
# the lanes of a mixed task, and their memories with offsets of tiles
AIC, AIV0, AIV1 = range(3)
LANE_NAMES = ("aic", "aiv0", "aiv1")
TILE_BYTES = SIDE * SIDE * 4
PLANTED = {
    "a flag or barrier left out": {"race", "missing-barrier", "flag-misuse", "tile-overlap"},
    "a dependence left out": {"missing-dependence", "write-after-read"},
    "blocks on the same rows": {"race"},
}
# what may be a bug or not: nothing is known but that time must agree with the result where nothing is found
DOUBTFUL = ("perhaps one flag too few",)
A2A3 = npu.Chip("a2a3").machine


@dataclass
class Access:
    """A step that was drawn: who did it, its number on its pipe, and what it touched."""

    thread: tuple
    number: int
    reads: frozenset
    writes: frozenset


@dataclass
class Task:
    """Steps by lane; directions of its tensors; `depth` of the FIFOs of a mixed task. Block b has the part of each
    tensor that is `shift` further on than b.
    """

    lanes: tuple
    blocks: int
    steps: dict = field(default_factory=dict)
    directions: dict = field(default_factory=dict)
    depth: int = 0
    sync_start: bool = False
    shift: int = 0

    def part(self, block):
        return (block + self.shift) % BLOCKS


@dataclass
class Program:
    """Tasks for a chip; `planted` names the bug."""

    seed: int
    chip: npu.Chip
    tasks: list
    planted: str = ""


def tile_bytes(lane, tile, first=0, count=SIDE):
    """The cells of some rows of a tile: (lane, name of the tile, row)."""
    return frozenset((lane, tile, row) for row in range(first, first + count))


class TaskDraw:
    """Draws the steps of one task."""

    def __init__(self, random, is_mixed):
        self.random = random
        lanes = (AIC, AIV0, AIV1) if is_mixed else random.choice([(AIV0,), (AIV0,), (AIV0, AIV1)])
        self.task = Task(lanes, 1 if is_mixed else random.randint(1, BLOCKS), {lane: [] for lane in lanes})
        self.task.sync_start = random.random() < 0.1
        self.task.depth, self.task.shift = random.randint(1, 3), random.randrange(BLOCKS)
        self.accesses = []
        self.clock, self.done, self.snapshots = {}, {}, {}
        self.events, self.barriers = {}, dict.fromkeys(lanes, 0)
        # flags and barriers, each as what to take out of which steps; and those that are surely needed
        self.drawn, self.needed = [], []
        self.filled = set()
        self.pushed, self.popped, self.messages = {}, {}, {}

    # Order

    def known(self, thread):
        return self.clock.setdefault(thread, {})

    def count(self, thread):
        return self.done.get(thread, 0)

    def unordered(self, thread, reads, writes):
        """Earlier accesses that this one meets, and whose end it does not know of; the latest of each thread."""
        found = {}
        for access in self.accesses:
            meets = writes & (access.reads | access.writes) or reads & access.writes
            own = access.thread == thread and thread[1] != "V"
            if meets and not own and access.number >= self.known(thread).get(access.thread, 0):
                found[access.thread] = access
        return found

    def join(self, thread, knowledge):
        mine = self.known(thread)
        for other, number in knowledge.items():
            mine[other] = max(mine.get(other, 0), number)

    def all_known(self, thread):
        return {**self.known(thread), thread: self.count(thread)}

    def order(self, thread, reads, writes):
        """Draw what makes a step wait for all it meets; False where only another lane's message could."""
        drawn = []
        while found := self.unordered(thread, reads, writes):
            if any(other[0] != thread[0] for other in found):
                return False
            other = self.random.choice(sorted(found))
            drawn.append(self.barrier(thread, "V") if other == thread else self.flag(found[other], thread))
        self.needed += drawn[-1:]
        self.drawn += drawn
        return True

    def step(self, lane, *what):
        """One more step; it is a list, so that others can be put behind it, and it can be taken out."""
        step = [what]
        self.task.steps[lane].append(step)
        return step

    def barrier(self, thread, pipe):
        lane = thread[0]
        step = self.step(lane, "barrier", pipe)
        if pipe == "V":
            self.known(thread)[thread] = self.count(thread)
            return [(step, step[0])]
        threads = [t for t in self.done if t[0] == lane]
        everything = {}
        for other in threads:
            for t, number in self.all_known(other).items():
                everything[t] = max(everything.get(t, 0), number)
        for pipe_name in ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"):
            self.join((lane, pipe_name), everything)
        self.events = {key: n for key, n in self.events.items() if key[0] != lane}
        self.barriers[lane] = len(self.accesses)
        return [(step, step[0])]

    def flag(self, access, thread):
        """A flag from the pipe of an access: set right behind it, or only now."""
        lane, target = thread
        source = access.thread[1]
        event = self.events.get((lane, source, target), 0)
        if event == 8:
            return self.barrier(thread, "ALL")
        self.events[lane, source, target] = event + 1
        snapshot, step, at = self.snapshots[access.thread, access.number]
        given = ("set", source, target, event)
        if at >= self.barriers[lane] and self.random.random() < 0.5:
            step.append(given)
            self.join(thread, snapshot)
        else:
            step = self.step(lane, *given)
            self.join(thread, self.all_known(access.thread))
        wait = self.step(lane, "wait", source, target, event)
        if target == "S":
            self.gate(lane)
        return [(step, given), (wait, wait[0])]

    def gate(self, lane):
        """What the scalar pipe knows is known to all that is issued later."""
        for pipe in ("V", "M", "MTE1", "MTE2", "MTE3", "FIX"):
            self.join((lane, pipe), self.all_known((lane, "S")))

    def act(self, lane, pipe, what, reads=frozenset(), writes=frozenset()):
        """Draw a step with the order it needs; False where it cannot be had."""
        thread = (lane, pipe)
        if not self.order(thread, reads, writes):
            return False
        step = self.step(lane, *what)
        number = self.count(thread)
        self.accesses.append(Access(thread, number, reads, writes))
        self.done[thread] = number + 1
        if pipe != "V":
            self.known(thread)[thread] = number + 1
        self.snapshots[thread, number] = ({**self.known(thread), thread: number + 1}, step, len(self.accesses))
        if pipe == "S":
            self.gate(lane)
        self.filled |= {cell[:2] for cell in writes}
        return True

    # Steps

    def part(self, rows, lane):
        """A strided part of a tensor with `rows` rows: (tensor, slices), and its elements. Vector lanes have halves."""
        random = self.random
        tensor = random.choice(TENSORS)
        height = HEIGHT // 2 if len(self.task.lanes) > 1 and lane != AIC else HEIGHT
        base = height if lane == AIV1 and height < HEIGHT else 0
        down = random.choice([s for s in (1, 1, 2) if (rows - 1) * s < height])
        right = random.choice([1, 1, 2])
        top = base + random.randint(0, height - 1 - (rows - 1) * down)
        left = random.randint(0, COLUMNS - 1 - (SIDE - 1) * right)
        slices = (slice(top, top + (rows - 1) * down + 1, down), slice(left, left + (SIDE - 1) * right + 1, right))
        cells = {(tensor, r, c) for r in range(HEIGHT)[slices[0]] for c in range(COLUMNS)[slices[1]]}
        return (tensor, *slices), frozenset(cells)

    def direct(self, tensor, verb):
        before = self.task.directions.get(tensor, "IN")
        self.task.directions[tensor] = "INOUT" if verb == "store" else before

    def rows(self):
        count = self.random.choice([2, 4, 8])
        return self.random.randint(0, 8 - count), count

    def load(self, lane, tile=None, whole=False):
        first, count = (0, 8) if whole else self.rows()
        name = tile or self.random.choice(UB_TILES)
        part, cells = self.part(count, lane)
        if self.act(lane, "MTE2", ("load", name, first, count, part), cells, tile_bytes(lane, name, first, count)):
            self.direct(part[0], "load")

    def store(self, lane):
        first, count = self.rows()
        name = self.random.choice(UB_TILES)
        part, cells = self.part(count, lane)
        if self.act(lane, "MTE3", ("store", name, first, count, part), tile_bytes(lane, name, first, count), cells):
            self.direct(part[0], "store")

    def vector(self, lane):
        count = self.random.choice([2, 4, 8])
        tiles = [(self.random.choice(UB_TILES), self.random.randint(0, 8 - count)) for _ in range(3)]
        cells = [tile_bytes(lane, name, first, count) for name, first in tiles]
        kind = self.random.choice(["tadd", "tmax", "tmuls", "texpands"])
        reads = {"tmuls": cells[1], "texpands": frozenset()}.get(kind, cells[1] | cells[2])
        self.act(lane, "V", ("vector", kind, count, *tiles), reads, cells[0])

    def get(self, lane):
        name, row = self.random.choice(UB_TILES), self.random.randrange(8)
        self.act(lane, "S", ("get", name, row), tile_bytes(lane, name, 0, 8))

    def read(self, lane):
        part, _ = self.part(2, lane)
        if self.act(lane, "S", ("read", part), frozenset({(part[0], part[1].start, part[2].start)})):
            self.direct(part[0], "load")

    def on_vector_lane(self, lane):
        self.random.choice([self.load, self.store, self.vector, self.vector, self.get, self.read])(lane)

    def on_cube(self):
        random = self.random
        kind = random.choice(["load", "left", "right", "product", "store", "push", "pop"])
        l1 = random.choice(["a", "b"])
        if kind == "load":
            part, cells = self.part(SIDE, AIC)
            if self.act(AIC, "MTE2", ("load", l1, 0, SIDE, part), cells, tile_bytes(AIC, l1)):
                self.direct(part[0], "load")
        elif kind in ("left", "right") and (AIC, l1) in self.filled:
            self.act(AIC, "MTE1", ("move", kind, l1), tile_bytes(AIC, l1), tile_bytes(AIC, kind))
        elif kind == "product" and {(AIC, "left"), (AIC, "right")} <= self.filled:
            reads = tile_bytes(AIC, "left") | tile_bytes(AIC, "right")
            self.act(AIC, "M", ("product",), reads, tile_bytes(AIC, "sum"))
        elif kind == "store" and (AIC, "sum") in self.filled:
            part, cells = self.part(SIDE, AIC)
            if self.act(AIC, "FIX", ("store", "sum", 0, SIDE, part), tile_bytes(AIC, "sum"), cells):
                self.direct(part[0], "store")
        elif kind == "push" and (AIC, "sum") in self.filled:
            self.push("down", (AIC,), (AIV0, AIV1), "FIX", "sum")
        elif kind == "pop":
            self.pop("up", (AIV0, AIV1), AIC, l1)

    def push(self, fifo, lanes, consumers, pipe, tile):
        """All producers push one message, if every consumer has taken enough."""
        number = self.pushed.get(fifo, 0)
        if number - min(self.popped.get((fifo, c), 0) for c in consumers) >= self.task.depth:
            return
        self.pushed[fifo] = number + 1
        for lane in lanes:
            thread, cells = (lane, pipe), tile_bytes(lane, tile, 0, SIDE if lane == AIC else 8)
            assert self.order(thread, cells, frozenset())
            if number >= self.task.depth:
                for consumer in consumers:
                    self.join(thread, self.messages[fifo, "popped", consumer, number - self.task.depth])
            self.act(lane, pipe, ("push", fifo, tile), cells)
            self.messages[fifo, "pushed", lane, number] = self.all_known(thread)

    def pop(self, fifo, producers, lane, tile):
        number = self.popped.get((fifo, lane), 0)
        if number >= self.pushed.get(fifo, 0):
            return
        self.popped[fifo, lane] = number + 1
        thread, cells = (lane, "MTE2"), tile_bytes(lane, tile, 0, SIDE if lane == AIC else 8)
        assert self.order(thread, frozenset(), cells)
        for producer in producers:
            self.join(thread, self.messages[fifo, "pushed", producer, number])
        self.act(lane, "MTE2", ("pop", fifo, tile), frozenset(), cells)
        self.messages[fifo, "popped", lane, number] = self.all_known(thread)

    def made(self):
        for lane in self.task.lanes:
            for tile in UB_TILES if lane != AIC else ():
                self.act(
                    lane,
                    "V",
                    ("vector", "texpands", 8, (tile, 0), (tile, 0), (tile, 0)),
                    frozenset(),
                    tile_bytes(lane, tile, 0, 8),
                )
        for _ in range(self.random.randint(6, 20)):
            lane = self.random.choice(self.task.lanes)
            if lane == AIC:
                for _ in range(3):
                    self.on_cube()
            elif AIC in self.task.lanes and self.random.random() < 0.4:
                self.pop("down", (AIC,), lane, self.random.choice(UB_TILES))
                self.push("up", (AIV0, AIV1), (AIC,), "MTE3", self.random.choice(UB_TILES))
            else:
                self.on_vector_lane(lane)
        self.drain()
        return self.task

    def drain(self):
        for fifo, producers, consumers in (("down", (AIC,), (AIV0, AIV1)), ("up", (AIV0, AIV1), (AIC,))):
            for lane in consumers:
                while self.popped.get((fifo, lane), 0) < self.pushed.get(fifo, 0):
                    self.pop(fifo, producers, lane, "a" if lane == AIC else "t0")


def make(seed, planted=""):
    """The program of a seed; where a bug cannot be planted into it, of the next one that can have it."""
    while True:
        random = Random(seed)
        draws = [TaskDraw(random, random.random() < 0.3) for _ in range(random.randint(1, 4))]
        tasks = [draw.made() for draw in draws]
        program = Program(seed, npu.Chip(A2A3, chip_changes(random)), tasks, planted)
        for task in tasks:
            task.sync_start = task.sync_start and task.blocks <= program.chip.machine.clusters.count
        if _planted(program, draws, random):
            return program
        seed += 1 << 32


def planted_bug(seed):
    """The bug that is planted into the program of a seed."""
    return sorted(PLANTED)[seed % len(PLANTED)]


def _planted(program, draws, random):
    match program.planted:
        case "a flag or barrier left out":
            return _left_out(random, [sync for draw in draws for sync in draw.needed])
        case "perhaps one flag too few":
            return _left_out(random, [sync for draw in draws for sync in draw.drawn])
        case "a dependence left out":
            return any(_conflict(a, b) for i, b in enumerate(program.tasks) for a in program.tasks[:i])
        case "blocks on the same rows":
            task = next((t for t in program.tasks if t.blocks > 1 and "INOUT" in t.directions.values()), None)
            return task is not None
    return True


def _left_out(random, syncs):
    if not syncs:
        return False
    for step, given in random.choice(syncs):
        step.remove(given)
    return True


def _conflict(a, b):
    """Whether two tasks touch the same element, and one stores."""
    stores, touches = _cells(a, "store"), _cells(b, "store") | _cells(b, "load")
    return bool(stores & touches or _cells(a, "load") & _cells(b, "store"))


def _cells(task, verb):
    return {
        (what[4][0], task.part(block), r, c)
        for block in range(task.blocks)
        for steps in task.steps.values()
        for step in steps
        for what in step
        if what[0] == verb
        for r in range(HEIGHT)[what[4][1]]
        for c in range(COLUMNS)[what[4][2]]
    }


def chip_changes(random):
    pick = random.choice
    return {
        "clusters.count": pick([1, 2, 3, 24]),
        "clusters.issue": pick([0, 0, 10]),
        "memory.bandwidth": pick([1, 100, 1600]),
        "memory.latency": pick([0, 0, 500]),
        "vector.simple": pick([1, 256]),
        "cube.macs.f32": pick([1, 1024]),
        "paths.gm_ub": pick([0.1, 108]),
        "paths.ub_gm": pick([0.1, 202]),
        "paths.l0c_gm": pick([0.1, 75]),
        "tasks.submit": pick([0, 1000]),
        "tasks.dispatch": pick([0, 500]),
        "tasks.schedulers": pick([1, 3]),
    }


# Running


def kernel_of(task, lane, is_shared):
    def kernel(core, *args):
        tensors = dict(zip(task.directions, args, strict=False))
        fifos = dict(zip(("down", "up"), args[len(task.directions) :], strict=False))
        first = 0 if is_shared else HEIGHT * task.part(core.block_idx)
        parts = {name: tensor[first : first + HEIGHT] for name, tensor in tensors.items()}
        tiles = place_tiles(core, lane)
        for step in task.steps[lane]:
            for what in step:
                play(core, what, tiles, parts, fifos)
        core.pipe_sync()

    kernel.__name__ = f"kernel_of_{LANE_NAMES[lane]}"
    return kernel


def place_tiles(core, lane):
    if lane != AIC:
        return {name: core.tile("UB", (8, SIDE), "f32", 512 * i, name=name) for i, name in enumerate(UB_TILES)}
    spaces = {"a": ("L1", 0), "b": ("L1", TILE_BYTES), "left": ("L0A", 0), "right": ("L0B", 0), "sum": ("L0C", 0)}
    return {name: core.tile(space, (SIDE, SIDE), "f32", at, name=name) for name, (space, at) in spaces.items()}


def play(core, what, tiles, parts, fifos):
    match what:
        case ("load", tile, first, count, (tensor, down, right)):
            core.tload(tiles[tile].rows(first, count), parts[tensor][down, right])
        case ("store", tile, first, count, (tensor, down, right)):
            core.tstore(parts[tensor][down, right], tiles[tile].rows(first, count))
        case ("vector", kind, count, *chosen):
            operands = [tiles[name].rows(first, count) for name, first in chosen]
            if kind == "texpands":
                core.texpands(operands[0], 0.5)
            elif kind == "tmuls":
                core.tmuls(operands[0], operands[1], 0.5)
            else:
                getattr(core, kind)(*operands)
        case ("get", tile, row):
            core.get(tiles[tile], row, 3)
        case ("read", (tensor, down, right)):
            # what the core's cache holds may be older than what the block has stored since
            core.dcci(parts[tensor])
            core.read(parts[tensor], down.start, right.start)
        case ("move", target, source):
            core.tmov(tiles[target], tiles[source])
        case ("product",):
            core.tmatmul(tiles["sum"], tiles["left"], tiles["right"])
        case ("push", fifo, tile):
            core.tpush(fifos[fifo], tiles[tile])
        case ("pop", fifo, tile):
            core.tpop(fifos[fifo], tiles[tile])
        case ("barrier", pipe):
            core.pipe_barrier(pipe)
        case ("set", source, target, event):
            core.set_flag(source, target, event)
        case ("wait", source, target, event):
            core.wait_flag(source, target, event)


def launch(program, schedule="canonical"):
    """The run of a program."""
    is_manual = program.planted == "a dependence left out"

    def orchestrate(rt, x, y, z):
        tensors = {"x": x, "y": y, "z": z}
        with rt.scope(manual=is_manual):
            for task in program.tasks:
                submit(rt, task, tensors, program.planted == "blocks on the same rows")

    random = np.random.default_rng(program.seed)
    shape = (HEIGHT * BLOCKS, COLUMNS)
    arrays = [random.standard_normal(shape).astype(np.float32) for _ in TENSORS]
    return program.chip.launch(orchestrate, *arrays, schedule=schedule, track_war=True)


def submit(rt, task, tensors, is_shared):
    args = [getattr(npu, direction)(tensors[name]) for name, direction in task.directions.items()]
    if AIC in task.lanes:
        args.append(rt.fifo("down", "to_aiv", (SIDE, SIDE), "f32", task.depth))
        args.append(rt.fifo("up", "to_aic", (SIDE, SIDE), "f32", task.depth))
    kernels = {LANE_NAMES[lane]: kernel_of(task, lane, is_shared) for lane in task.lanes}
    rt.submit(**kernels, args=args, block_num=task.blocks, sync_start=task.sync_start)


def outputs(run):
    return {name: np.asarray(array).tobytes() for name, array in run.outputs.items()}


# What it did to memory, in time


def contradictions(run, program):
    """What is timed otherwise than it was computed; and the time of the run."""
    timing = time_recording(run.recording, program.chip.machine)
    order, recording = TimedOrder(), run.recording
    rows, times, nodes = recording.array(), timing.times, timing.lowered.nodes
    begins = times.start[: len(rows)].copy()
    count = len(timing.lowered.transfers)
    begins[timing.lowered.transfers] = times.start[nodes.begin : nodes.begin + count]
    firsts = recording.firsts()
    for block in range(len(firsts) - 1):
        for i in range(firsts[block], firsts[block + 1]):
            if CLASSES[rows[i]["op"]] not in (SET, WAIT, BARRIER):
                name = f"row {i} ({NAMES[rows[i]['op']]}) of block {block}"
                order.operation(name, int(begins[i]), int(times.finish[i]), **touched(recording, rows[i], block))
    cores(timing, order)
    return order.contradictions, timing.total_ps


def touched(recording, row, block):
    """The bytes that a row reads, writes and adds to; the memories of a core are each block's own."""
    kind, tiles = CLASSES[row["op"]], recording.tables.tiles
    task = recording.tasks[recording.block_task[block]]
    found = {"reads": [], "writes": [], "adds": []}
    for verb, column in (("writes", "w"), ("reads", "a"), ("reads", "b"), ("reads", "c")):
        if row[column] >= 0 and (column != "c" or kind == 0):
            tile = tiles[row[column]]
            found[verb].append(((block, int(row["lane"]), tile.space), bytes_of_tile(tile)))
    if kind in (LOAD, STORE) or NAMES[row["op"]] == "read":
        pattern = recording.tables.patterns[row["y"]]
        steps = tuple(s * pattern.itemsize for s in pattern.strides)
        moved = strided_bytes(int(row["x"]), pattern.shape, steps, pattern.itemsize)
        verb = {"tstore": "writes", "tstore_add": "adds"}.get(NAMES[row["op"]], "reads")
        found[verb].append((("tensor", int(row["c"])), moved))
    if kind in (PUSH, POP):
        fifo = task.fifos[row["c"]]
        slot = ("slot", block, int(row["c"]), int(row["x"]) % fifo.depth)
        # each producer has a part of the slot; a consumer reads all of it
        part = [int(row["lane"])] if kind == PUSH else list(fifo.producers)
        found["writes" if kind == PUSH else "reads"].append((slot, np.array(part)))
    return found


def bytes_of_tile(tile):
    """The bytes of the valid part of a tile."""
    size = ITEMSIZE[tile.dtype]
    across, down = (size, tile.shape[1] * size) if tile.layout == "row" else (tile.shape[0] * size, size)
    return strided_bytes(tile.offset, tile.valid, (down, across), size)


def cores(timing, order):
    """Blocks on one core, in the order of their starts: none begins before the one before it has ended."""
    recording, nodes, times, placed = timing.lowered.recording, timing.lowered.nodes, timing.times, timing.assignment
    blocks = len(recording.block_task)
    start, end = times.start[nodes.dispatch : nodes.dispatch + blocks], times.finish[nodes.end : nodes.end + blocks]
    for block in np.argsort(start, kind="stable").tolist():
        lanes = recording.tasks[recording.block_task[block]].lanes
        if len(lanes) == 1 and lanes[0] != AIC:
            lanes = (int(placed.first_lane[block]),)
        held = [(("core", int(placed.cluster[block]), lane), np.zeros(1, np.int64)) for lane in lanes]
        order.operation(f"block {block}", int(start[block]), int(end[block]), writes=held)
