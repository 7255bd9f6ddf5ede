"""Random programs of tcgen05, with what they give: each step is done to a slow tensor memory as it is drawn.

A step is work of the warps that load and store, or of the one thread that issues products, copies and shifts. What lies
between two steps orders them as the ISA's text asks for, and no more; `faults` are programs with one thing wrong.
"""

from dataclasses import dataclass, field

import numpy as np
from tests.ptx.emulator.tensor import memory
from tests.ptx.emulator.tensor.text import HEAD, Synchronised
from tests.ptx.emulator.tensor.tiles import Tiles

THREADS = 128


@dataclass
class Work:
    """One instruction that touches tensor memory: its line, and the cells of which allocation it reads and writes."""

    line: int
    what: str
    slot: int
    reads: np.ndarray
    writes: np.ndarray

    def conflicts(self, other):
        if self.slot != other.slot:
            return False
        both = self.writes & (other.writes | other.reads) | self.reads & other.writes
        return bool(both.any())


@dataclass
class Fault:
    """What is done to a program, and what must be found: kinds, any of them, at any of some lines."""

    name: str
    edits: dict
    kinds: set
    lines: set


@dataclass
class Loaded:
    """Words that a program stores at the end: where in `out`, what, and which bits of them are known."""

    base: int
    words: np.ndarray
    known: np.ndarray


@dataclass
class Program:
    """A kernel and its launch, and what comes of it."""

    text: str
    image: np.ndarray
    table: np.ndarray
    size: int
    grid: int
    threads: int
    group: int
    loaded: list
    faults: list
    kinds: set = field(default_factory=set)


class Frame:
    """What all programs share: threads and their roles, allocations, words to store, words that were loaded."""

    def __init__(self, seed):
        self.random = random = np.random.default_rng(seed)
        self.group = 2 if random.random() < 0.25 else 1
        self.grid = self.group * int(random.integers(1, 3))
        self.threads = int(random.choice([128, 160, 256]))
        self.first = 128 if self.threads == 256 and random.random() < 0.5 else 0
        self.tiles = Tiles(random, self.group)
        self.text = Synchronised(self._head(), self.group, self.threads)
        self.table, self.loaded, self.faults, self.kinds = [], [], [], set()
        self.words, self.outs = 0, 0
        self.cells, self.sizes, self.alloc_lines = {}, {}, {}

    def _head(self):
        random = self.random
        whole = "" if self.group == 1 else " .reqnctapercluster 2, 1, 1"
        # of a pair the first CTA issues; of CTAs by themselves each
        self.issuer = int(random.integers(self.threads))
        given = {
            "bars": 8,
            "cluster": whole,
            "blocks": 1 if self.group == 1 else 3,
            "allocates": int(random.integers(self.threads // 32)),
            "issues": self.issuer,
            "first": self.first,
            "step": 16 * self.threads,
            "nbytes": "NBYTES",
        }
        return HEAD.format(**given)

    def begin(self):
        """Barriers, allocations, and the order of both before all else."""
        add, random = self.text.add, self.random
        for number in range(8):
            add(f"@%p5 mbarrier.init.shared::cta.b64 [bars+{8 * number}], 1;")
        add("@%p5 fence.mbarrier_init.release.cluster;")
        shown = add("fence.proxy.async.shared::cta;")
        left = 512
        for slot in range(int(random.integers(1, 4))):
            columns = int(random.choice([size for size in (32, 64, 128, 256, 512) if size <= left] or [0]))
            if columns:
                left -= columns
                self.allocate(slot, columns)
        self.text.barrier()
        self.look()
        return shown

    def allocate(self, slot, columns):
        name = f"tcgen05.alloc.cta_group::{self.group}.sync.aligned.shared::cta.b32"
        self.alloc_lines[slot] = self.text.add(f"@%p2 {name} [slots+{4 * slot}], {columns};")
        self.cells[slot], self.sizes[slot] = memory.Cells(self.group, columns), columns

    def look(self):
        """All threads read where the columns lie."""
        for slot in self.cells:
            self.text.add(f"ld.shared.u32 %slot{slot}, [slots+{4 * slot}];")

    def free(self, slot):
        name = f"tcgen05.dealloc.cta_group::{self.group}.sync.aligned.b32"
        del self.cells[slot]
        return self.text.add(f"@%p2 {name} %slot{slot}, {self.sizes[slot]};")

    def data(self, words):
        """Words for threads, [CTAs, threads, registers]: the line of loads into %d registers."""
        count = words.shape[2]
        whole = np.tile(words, (self.grid // self.group, 1, 1))
        base, self.words = self.words, self.words + whole.size
        self.table.append(whole.reshape(-1))
        self.text.add(f"mul.wide.u32 %rd8, %r8, {4 * count};")
        self.text.add("add.u64 %rd8, %rd8, %rd2;")
        wide = 4 if count % 4 == 0 else 1
        for i in range(0, count, wide):
            into = f"%d{i}" if wide == 1 else "{" + ", ".join(f"%d{i + j}" for j in range(4)) + "}"
            self.text.add(f"ld.global{'.v4' if wide == 4 else ''}.b32 {into}, [%rd8+{4 * (base + i)}];")

    def keep(self, words, known):
        """The %e registers of threads go to `out`."""
        count = words.shape[2]
        self.text.add(f"mul.wide.u32 %rd9, %r8, {4 * count};")
        self.text.add("add.u64 %rd9, %rd9, %rd3;")
        for i in range(count):
            self.text.add(f"st.global.b32 [%rd9+{4 * (self.outs + i)}], %e{i};")
        whole = [np.tile(x, (self.grid // self.group, 1, 1)) for x in (words, known)]
        self.loaded.append(Loaded(self.outs, *whole))
        self.outs += whole[0].size

    def finish(self):
        size = self.tiles.data.shape[1] or 16
        image = np.zeros((self.group, size), np.uint8)
        image[:, : self.tiles.data.shape[1]] = self.tiles.data
        self.text.lines = [line.replace("NBYTES", str(size)) for line in self.text.lines]
        table = np.concatenate([np.zeros(0, np.uint32), *self.table, np.zeros(4, np.uint32)])
        given = (np.tile(image, (self.grid // self.group, 1)), table, self.outs, self.grid, self.threads, self.group)
        return Program(self.text.changed({}), *given, self.loaded, self.faults, self.kinds)
