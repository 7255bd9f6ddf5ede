"""Random mesh kernels that are safe by construction, or have one planted bug; and what they do to memory, in time.

A kernel is a list of steps for each rank, drawn in one global order in which it can run: a receive comes after its
send, and no queue holds more than it can. So it ends under every schedule.
"""

from dataclasses import dataclass, field
from math import prod
from random import Random

import numpy as np

from kernbench import machine, mesh
from kernbench.common.ipcq_types import OPPOSITE
from kernbench.common.pe_commands import OPERATION_NAMES, TensorHandle
from kernbench.mesh.time import time_recording
from kernbench.safety.timed_order import TimedOrder, strided_bytes

SMALL = machine.load("small")
ROWS = COLUMNS = 12
SLOT = 256
SHAPES = ((4, 4), (4, 8), (8, 4), (2, 6), (1, 4))
SCHEDULES = ("canonical", "reversed")
# what can be planted, and the kinds of findings of which one must be reported
PLANTED = {
    "overwritten while it is sent": {"race"},
    "a store over itself": {"race"},
    "a load past the end": {"out-of-bounds"},
    "a message nobody receives": {"message-unreceived"},
    "a receive nobody sends": {"deadlock"},
    "a request nobody waits for": {"missing-wait"},
}
# what may be a bug or not
DOUBTFUL = ()


@dataclass
class Rank:
    """What one rank does, and what is known of it: shapes of its values, sends under way, receives to be waited for."""

    steps: list = field(default_factory=list)
    values: dict = field(default_factory=dict)
    sending: dict = field(default_factory=dict)
    arriving: dict = field(default_factory=dict)


@dataclass
class Program:
    """A kernel for `ranks` ranks; `planted` names its bug."""

    seed: int
    ranks: int
    described: machine.Machine
    steps: list
    planted: str = ""


class Draw:
    """Draws one program."""

    def __init__(self, seed, planted=""):
        self.random = Random(seed)
        self.ranks = self.random.randint(2, 4)
        self.depth = self.random.randint(1, 4)
        self.rank = [Rank() for _ in range(self.ranks)]
        self.names = 0
        # messages that are on their way: (sender, receiver) -> shapes, in order
        self.links = {}
        self.program = Program(seed, self.ranks, self.machine(), [r.steps for r in self.rank], planted)

    def machine(self):
        pick = self.random.choice
        return SMALL.override(
            {
                "dma.channels": pick([1, 2, 2, 3, 5]),
                "ipcq.depth": self.depth,
                "ipcq.slot": SLOT,
                "hbm.bandwidth": pick([1, 64, 512, 100_000]),
                "hbm.latency": pick([0, 30, 300]),
                "link.bandwidth": pick([1, 128]),
                "link.latency": pick([0, 20, 2000]),
                "pe.dispatch_cycles": pick([0, 8, 100]),
                "math.lanes": pick([1, 128]),
                "math.per_cycle.exp": pick([1, 16]),
                "gemm.rows": pick([4, 64]),
            }
        )

    def made(self):
        for number in range(self.ranks):
            self.load(number)
        for _ in range(self.random.randint(8, 30)):
            self.step(self.random.randrange(self.ranks))
        if self.program.planted:
            self.plant(self.random.randrange(self.ranks))
        self.finish()
        return self.program

    def step(self, number):
        kinds = (self.load, self.load, self.store, self.store, self.store, self.math, self.math, self.dot, self.view)
        self.random.choice((*kinds, self.in_place, self.drop, self.send, self.send, self.receive, self.wait))(number)

    def name(self, number, shape):
        self.names += 1
        self.rank[number].values[self.names] = shape
        return self.names

    def pick(self, number, wanted=None):
        """A value of a rank, None if there is none of that shape."""
        values = [v for v, shape in self.rank[number].values.items() if wanted is None or shape == wanted]
        return self.random.choice(values) if values else None

    def add(self, number, *step):
        self.rank[number].steps.append(step)

    # Memory

    def tile(self, shape):
        """(tensor, first element, strides) of a tile somewhere in a tensor of ROWS x COLUMNS."""
        random = self.random
        rows, columns = shape
        down = random.choice([s for s in (1, 1, 2, 3) if (rows - 1) * s < ROWS])
        right = random.choice([s for s in (1, 1, 1, 2) if (columns - 1) * s < COLUMNS])
        top, left = (
            random.randint(0, ROWS - 1 - (rows - 1) * down),
            random.randint(0, COLUMNS - 1 - (columns - 1) * right),
        )
        strides = (down * COLUMNS, right)
        if random.random() < 0.15:
            # upside down
            top, strides = top + (rows - 1) * down, (-down * COLUMNS, right)
        if random.random() < 0.2 and rows * columns <= ROWS * COLUMNS // 2:
            return random.choice("xow"), random.randint(0, ROWS * COLUMNS - rows * columns), None
        return random.choice("xow"), top * COLUMNS + left, strides

    def load(self, number):
        shape = self.random.choice(SHAPES)
        if self.random.random() < 0.2:
            # a block pointer whose tile sticks out
            offsets = tuple(self.random.randint(-1, n - 2) for n in (ROWS, COLUMNS))
            self.add(number, "load_block", self.name(number, shape), shape, self.random.choice("xow"), offsets)
        elif self.random.random() < 0.15:
            tile = self.tile(shape)
            self.add(number, "in_hbm", self.name(number, shape), shape, tile[0], tile[1] // 2)
        else:
            self.add(number, "load", self.name(number, shape), shape, *self.tile(shape))

    def store(self, number):
        value = self.pick(number)
        if value is None:
            return
        shape = self.rank[number].values[value]
        if self.random.random() < 0.2:
            offsets = tuple(self.random.randint(-1, n - 2) for n in (ROWS, COLUMNS))
            self.add(number, "store_block", value, self.random.choice("xow"), offsets)
        else:
            self.add(number, "store", value, *self.tile(shape))

    # Values

    def math(self, number):
        value = self.pick(number)
        if value is None:
            return
        shape = self.rank[number].values[value]
        other = self.pick(number, shape)
        kind = self.random.choice(["scale", "tanh", "add", "maximum"])
        self.add(number, kind, self.name(number, shape), value, other)

    def dot(self, number):
        value = self.pick(number)
        if value is not None:
            rows, _ = self.rank[number].values[value]
            self.add(number, "gram", self.name(number, (rows, rows)), value)

    def view(self, number):
        """What a view of a value is used for: the transposed, a part of it, or one row for all."""
        value = self.pick(number)
        if value is None:
            return
        rows, columns = self.rank[number].values[value]
        kind = self.random.choice(["trans", "half", "repeat"])
        shape = {"trans": (columns, rows), "half": (rows, (columns + 1) // 2), "repeat": (rows, columns)}[kind]
        self.add(number, kind, self.name(number, shape), value)

    def in_place(self, number):
        """A result in the space of a value that nobody sends."""
        rank = self.rank[number]
        free = [v for v in rank.values if v not in rank.sending.values()]
        if free:
            value = self.random.choice(free)
            self.add(number, "in_place", value, self.pick(number, rank.values[value]))

    def drop(self, number):
        rank = self.rank[number]
        if len(rank.values) > 2:
            value = self.pick(number)
            del rank.values[value]
            self.add(number, "drop", value)

    # Messages

    def pieces(self, shape):
        return max(1, -(-shape[0] * shape[1] * 4 // SLOT))

    def send(self, number):
        to = number + self.random.choice([-1, 1])
        value = self.pick(number)
        if value is None or not 0 <= to < self.ranks:
            return
        shape, link = self.rank[number].values[value], (number, to)
        waiting = self.links.setdefault(link, [])
        fits = sum(map(self.pieces, waiting)) + self.pieces(shape) <= self.depth
        while waiting and not fits:
            self.take(link)
            fits = sum(map(self.pieces, waiting)) + self.pieces(shape) <= self.depth
        direction = "E" if to > number else "W"
        if self.random.random() < 0.5:
            self.add(number, "send", direction, value)
        else:
            self.names += 1
            self.rank[number].sending[self.names] = value
            self.add(number, "send_async", direction, self.names, value)
        waiting.append(shape)
        if not fits or self.random.random() < 0.5:
            self.take(link)

    def take(self, link):
        """The next message of a link is received, at once or asynchronously."""
        shape = self.links[link].pop(0)
        sender, number = link
        direction = OPPOSITE["E" if number > sender else "W"]
        if self.random.random() < 0.5:
            self.add(number, "recv", direction, self.name(number, shape), shape)
        else:
            self.names += 1
            self.rank[number].arriving[self.names] = shape
            self.add(number, "recv_async", direction, self.names, shape)

    def receive(self, number):
        links = [link for link, waiting in self.links.items() if waiting and link[1] == number]
        if links:
            self.take(self.random.choice(links))

    def wait(self, number):
        rank = self.rank[number]
        if rank.sending and self.random.random() < 0.5:
            request = self.random.choice(list(rank.sending))
            del rank.sending[request]
            self.add(number, "wait", request)
        elif rank.arriving:
            self.wait_arriving(number, self.random.choice(list(rank.arriving)))

    def wait_arriving(self, number, request):
        shape = self.rank[number].arriving.pop(request)
        self.add(number, "wait_value", request, self.name(number, shape))

    def finish(self):
        """All messages are received and all requests waited for; some values are stored."""
        for link, waiting in self.links.items():
            while waiting:
                self.take(link)
        for number, rank in enumerate(self.rank):
            for request in list(rank.arriving):
                self.wait_arriving(number, request)
            for request in list(rank.sending):
                self.add(number, "wait", request)
            self.store(number)

    # Bugs

    def plant(self, number):
        value = self.name(number, (4, 4))
        self.add(number, "load", value, (4, 4), "x", 0, None)
        direction = "E" if number + 1 < self.ranks else "W"
        match self.program.planted:
            case "overwritten while it is sent":
                to = number + (1 if direction == "E" else -1)
                self.names += 1
                self.rank[number].sending[self.names] = value
                self.add(number, "send_async", direction, self.names, value)
                self.add(number, "in_place", value, value)
                self.links.setdefault((number, to), []).append((4, 4))
            case "a store over itself":
                self.add(number, "store", value, "o", 0, (1, 1))
            case "a load past the end":
                self.add(number, "load", value, (4, 4), "x", (ROWS - 3) * COLUMNS, (COLUMNS, 1))
            case "a message nobody receives":
                self.finish_links()
                self.names += 1
                self.add(number, "send_async", direction, self.names, value)
            case "a receive nobody sends":
                self.finish_links()
                self.add(number, "recv", direction, self.name(number, (4, 4)), (4, 4))
            case "a request nobody waits for":
                to = number + (1 if direction == "E" else -1)
                self.names += 1
                self.add(number, "send_async", direction, self.names, value)
                self.links.setdefault((number, to), []).append((4, 4))

    def finish_links(self):
        for link, waiting in self.links.items():
            while waiting:
                self.take(link)


def make(seed, planted=""):
    """The program of a seed."""
    return Draw(seed, planted).made()


def planted_bug(seed):
    """The bug that is planted into the program of a seed."""
    return sorted(PLANTED)[seed % len(PLANTED)]


# Running


def kernel(x, o, program, *, tl):
    """Plays the steps of its rank."""
    rank = tl.program_id(0)
    where = {"x": x, "o": o, "w": tl.workspace((ROWS, COLUMNS), "f32")}
    for tensor in "ow":
        tl.store(where[tensor], tl.full((ROWS, COLUMNS), 0.5, "f32"))
    values, requests = {}, {}
    for step in program.steps[rank]:
        play(tl, step, where, values, requests)


def block(tl, base, offsets, shape):
    return tl.make_block_ptr(base, (ROWS, COLUMNS), (COLUMNS, 1), offsets, shape)


def play(tl, step, where, values, requests):
    match step:
        case ("load", value, shape, tensor, first, strides):
            values[value] = tl.load(where[tensor] + 4 * first, shape=shape, strides=strides)
        case ("load_block", value, shape, tensor, offsets):
            values[value] = tl.load(block(tl, where[tensor], offsets, shape), boundary_check=(0, 1))
        case ("in_hbm", value, shape, tensor, first):
            values[value] = TensorHandle(0, where[tensor] + 4 * first, shape, "f32", space="hbm") * 0.5
        case ("store", value, tensor, first, strides):
            tl.store(where[tensor] + 4 * first, values[value], strides=strides)
        case ("store_block", value, tensor, offsets):
            tl.store(block(tl, where[tensor], offsets, values[value].shape), values[value], boundary_check=(0, 1))
        case ("scale", value, a, _):
            values[value] = values[a] * 0.5
        case ("tanh", value, a, _):
            values[value] = tl.sigmoid(values[a])
        case ("add", value, a, b):
            values[value] = values[a] + values[b]
        case ("maximum", value, a, b):
            values[value] = tl.maximum(values[a], values[b])
        case ("gram", value, a):
            values[value] = tl.dot(values[a], tl.trans(values[a]))
        case ("trans", value, a):
            values[value] = tl.trans(values[a]) + 0.25
        case ("half", value, a):
            values[value] = values[a][:, ::2] * 0.5
        case ("repeat", value, a):
            values[value] = tl.broadcast_to(values[a][:1, :], values[a].shape) * 0.5
        case ("in_place", value, a):
            values[value] = tl.add(values[value], values[a], out=values[value])
        case ("drop", value):
            del values[value]
        case ("send", direction, value):
            tl.send(dir=direction, src=values[value])
        case ("send_async", direction, request, value):
            requests[request] = tl.send_async(dir=direction, src=values[value])
        case ("recv", direction, value, shape):
            values[value] = tl.recv(dir=direction, shape=shape, dtype="f32")
        case ("recv_async", direction, request, shape):
            requests[request] = tl.recv_async(dir=direction, shape=shape, dtype="f32")
        case ("wait", request):
            requests.pop(request).wait()
        case ("wait_value", request, value):
            values[value] = requests.pop(request).wait()


def launch(program, schedule="canonical", **options):
    """The run of a program, and its output."""
    host = mesh.Host(program.described, ranks=program.ranks)
    shape = (program.ranks * ROWS, COLUMNS)
    data = np.random.default_rng(program.seed).standard_normal(shape).astype(np.float32)
    x, o = host.shard(data, axis=0, name="x"), host.empty(shape, "f32", axis=0, name="o")
    return host.launch(kernel, x, o, program, schedule=schedule, **options)


def outputs(run):
    return {name: np.asarray(array).tobytes() for name, array in run.outputs.items()}


# What it did to memory, in time


def contradictions(run, program):
    """What is timed otherwise than it was computed; and the time of the run."""
    timing = time_recording(run.recording, program.described)
    order, begins = TimedOrder(), begin_times(timing)
    for index, stream in enumerate(run.recording.streams):
        first = int(timing.lowered.columns.first[index])
        for number, row in enumerate(map(stream.rows.__getitem__, range(len(stream)))):
            op = OPERATION_NAMES[row.op]
            reads, writes = touched(stream, number, row, op, index)
            name = f"command {number} ({op}) of rank {stream.rank}"
            order.operation(name, int(begins[first + number]), int(timing.times.finish[first + number]), reads, writes)
    slots(timing, order, program.described.ipcq.depth)
    return order.contradictions, timing.total_ps


def begin_times(timing):
    """When each command begins; a send or receive with its first piece."""
    begins = timing.times.start.copy()
    pieces = timing.lowered.pieces
    for command, node in ((pieces.send, pieces.push), (pieces.recv, pieces.take)):
        begins[command[::-1]] = timing.times.start[node[::-1]]
    return begins


def touched(stream, number, row, op, program):
    """The bytes that a command reads and writes: [(memory, bytes)] of each. Values lie whole in scratch."""
    scratch = ("scratch", program)
    reads = [
        (scratch, value_bytes(stream, stream.producer(n))) for n in (row.a, row.b, row.c) if stream.producer(n) >= 0
    ]
    writes = [(scratch, value_bytes(stream, number))] if row.type >= 0 else []
    if op in ("load", "store"):
        pattern = stream.tables.patterns[row.y]
        strides = pattern.strides
        if strides is None:
            strides = tuple(prod(pattern.shape[i + 1 :]) * pattern.itemsize for i in range(len(pattern.shape)))
        memory, offset = ("hbm", program, row.x >> 40), row.x & ((1 << 40) - 1)
        moved = words(strided_bytes(offset, pattern.shape, strides, pattern.itemsize))
        (reads if op == "load" else writes).append((memory, moved))
    return reads, writes


def value_bytes(stream, number):
    row = stream.rows[number]
    shape, dtype, _ = stream.tables.types[row.type]
    assert dtype == "f32"
    assert row.addr % 4 == 0
    return row.addr // 4 + np.arange(prod(shape))


def words(touched):
    """Bytes that come in whole words of four, as words: there are fewer to look at."""
    found = touched[::4] // 4
    assert len(touched) == 4 * len(found)
    assert touched.size == 0 or (touched[0] % 4 == 0 and touched[-1] % 4 == 3)
    return found


def slots(timing, order, depth):
    """Piece k of a link goes into slot k % depth when it is pushed, and is read when it is taken."""
    pieces, times = timing.lowered.pieces, timing.times
    count = {}
    for k, link in enumerate(pieces.link.tolist()):
        slot = count.get(link, 0)
        count[link] = slot + 1
        memory = ("slot", link, slot % depth)
        for verb, node in (("push", pieces.push[k]), ("take", pieces.take[k])):
            touch = [(memory, np.zeros(1, np.int64))]
            name = f"{verb} of piece {slot} of link {link}"
            given = {"writes" if verb == "push" else "reads": touch}
            order.operation(name, int(times.start[node]), int(times.finish[node]), **given)
