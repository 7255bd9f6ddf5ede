"""Generation of random programs: lines, registers, roles of warps, and what all segments need."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

WARP = 32
TABLE = 512
COUNTERS = 16
# bytes that a block's bulk copy writes to global memory
BULK = 512
# number of such areas for each block
AREAS = 5
HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u64 table, .param .u64 counters, .param .u64 cells, .param .u64 bulk)
{{
  .reg .pred %p<{predicates}>;
  .reg .b32 %r<{words}>;
  .reg .b64 %rd<{wide}>;
{variables}
  ld.param.u64 %rd0, [out];
  ld.param.u64 %rd1, [table];
  ld.param.u64 %rd2, [counters];
  ld.param.u64 %rd3, [cells];
  ld.param.u64 %rd4, [bulk];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  and.b32 %r2, %r0, 31;
  shr.u32 %r3, %r0, 5;
  mad.lo.u32 %r4, %r1, {threads}, %r0;
  mad.lo.u32 %r5, %r4, 2654435761, 12345;
  mad.lo.u32 %r6, %r1, {stride}, %r3;
  rem.u32 %r6, %r6, {warps};
"""
TAIL = """
  mad.wide.u32 %rd0, %r4, 4, %rd0;
  st.global.u32 [%rd0], %r5;
  ret;
}}
"""


@dataclass(frozen=True)
class Line:
    """Lines of a program that stay together; `sync` is the kind of synchronisation, "" for none."""

    text: str
    sync: str = ""


@dataclass
class Program:
    """A program, and the launch that it is made for."""

    seed: int
    grid: int
    warps: int
    lines: list[Line]
    head: str
    tail: str = TAIL
    kinds: tuple[str, ...] = ()
    # the change, "" for a safe program
    change: str = ""
    # number of threads that the last warp of a block lacks
    missing: int = 0
    # blocks per cluster
    cluster: int = 1

    @property
    def block(self) -> int:
        """Number of threads of a block."""
        return self.warps * WARP - self.missing

    @property
    def text(self) -> str:
        """The text of the module."""
        return self.head + "\n".join(f"  {line.text}" for line in self.lines) + self.tail.format()

    def arrays(self) -> list[np.ndarray]:
        """Its arguments: what its threads store, a table, counters, cells with flags, memory for bulk copies."""
        table = np.random.default_rng(self.seed).integers(0, 1 << 32, TABLE, np.uint64).astype(np.uint32)
        sizes = (self.grid * self.block, TABLE, COUNTERS, 2 * self.grid, AREAS * self.grid * BULK // 4)
        arrays = [np.zeros(size, np.uint32) for size in sizes]
        arrays[1] = table
        return arrays


@dataclass
class Writer:
    """Generates segments, and tracks live roles, used registers and used barriers.

    With a partial last warp (`missing`), roles are warp numbers: `stride` is 0.
    """

    rng: random.Random
    grid: int
    warps: int
    stride: int
    living: list[int]
    missing: int = 0
    lines: list[Line] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"%r": 10, "%p": 0, "%rd": 8, "L": 0})
    barrier: int = 0
    # where bulk copies write in global memory: number of the area, and the role that last wrote there
    area: tuple[int, int | None] = (0, None)

    def new(self, kind: str) -> str:
        """A fresh register (or label)."""
        self.counts[kind] += 1
        return f"{kind}{self.counts[kind] - 1}"

    def add(self, *texts: str) -> None:
        """Add lines without synchronisation."""
        self.lines += [Line(text) for text in texts]

    def sync(self, text: str, what: str) -> None:
        """Add a synchronising line, which may be changed."""
        self.lines.append(Line(text, what))

    def shared(self, nbytes: int, align: int = 16) -> str:
        """Declare a shared variable."""
        name = f"s{len(self.variables)}"
        self.variables.append(f"  .shared .align {align} .b8 {name}[{nbytes}];")
        return name

    @property
    def least(self) -> int:
        """Number of lanes that every warp has."""
        return WARP - self.missing

    def threads(self, *roles: int) -> int:
        """Number of threads of the warps of some roles."""
        return WARP * len(roles) - (self.missing if self.warps - 1 in roles else 0)

    def local(self, nbytes: int) -> str:
        """Declare a local variable."""
        name = f"s{len(self.variables)}"
        self.variables.append(f"  .local .align 4 .b8 {name}[{nbytes}];")
        return name

    def pick(self, least: int = 1, among: list[int] | None = None) -> list[int]:
        """Some of the live roles."""
        roles = self.living if among is None else among
        return sorted(self.rng.sample(roles, self.rng.randint(min(least, len(roles)), len(roles))))

    def named(self) -> int:
        """A barrier number that no other group of warps has used."""
        self.barrier += 1
        assert self.barrier < 16
        return self.barrier

    def area_for_copy(self, role: int) -> int:
        """The area to which a role may write by a bulk copy: a new one if the role that last wrote has exited.

        An exited thread publishes nothing: barriers do not wait for it.
        """
        number, writer = self.area
        self.area = number + (writer is not None and writer not in self.living), role
        assert self.area[0] < AREAS
        return self.area[0]

    def everybody(self) -> None:
        """Synchronise all live threads of a block."""
        rng, all_here = self.rng, len(self.living) == self.warps
        kind = rng.randrange(5)
        if kind == 0 and all_here:
            self.sync(f"bar.sync 0, {self.warps * WARP};", "bar")
        elif kind == 1:
            votes, holds = self.new("%r"), self.new("%p")
            self.add(f"setp.lt.u32 {holds}, %r2, {rng.randint(1, 31)};")
            self.sync(f"bar.red.popc.u32 {votes}, 0, {holds};", "red")
            self.mix(votes)
        elif kind == 2:
            # lanes reach it at two different instructions
            apart, first, second = self.new("%p"), self.new("L"), self.new("L")
            self.add(f"setp.lt.u32 {apart}, %r2, {rng.randint(1, 31)};", f"@{apart} bra {first};")
            self.sync("barrier.sync 0;", "unaligned")
            self.add(f"bra {second};", f"{first}:")
            self.sync("barrier.sync 0;", "unaligned")
            self.add(f"{second}:")
        else:
            self.sync(rng.choice(("bar.sync 0;", "barrier.sync 0;", "barrier.sync.aligned 0;")), "bar")

    def mix(self, value: str) -> None:
        """Mix a value into the thread's accumulated value."""
        self.add(f"xor.b32 %r5, %r5, {value};", "mad.lo.u32 %r5, %r5, 1664525, 1013904223;")

    def holds(self, roles: list[int]) -> str:
        """A predicate: whether the thread's warp has one of these roles."""
        bit, here = self.new("%r"), self.new("%p")
        mask = sum(1 << role for role in roles)
        self.add(f"shr.u32 {bit}, {mask}, %r6;", f"and.b32 {bit}, {bit}, 1;", f"setp.eq.u32 {here}, {bit}, 1;")
        return here

    def only(self, roles: list[int], body: Callable[[], None]) -> None:
        """Code for warps of some roles only."""
        if sorted(roles) == sorted(self.living):
            body()
            return
        here, after = self.holds(roles), self.new("L")
        self.add(f"@!{here} bra {after};")
        body()
        self.add(f"{after}:")

    def one_lane(self, lane: int, body: Callable[[], None]) -> None:
        """Code for one lane of each warp only."""
        other, after = self.new("%p"), self.new("L")
        self.add(f"setp.ne.u32 {other}, %r2, {lane};", f"@{other} bra {after};")
        body()
        self.add(f"{after}:")

    def slot(self, base: str, role: int | None = None, turn: int = 0, size: int = 4) -> str:
        """The address of a thread's own slot, or of that of the lane `turn` further in the warp of a role."""
        address, lane, warp = self.new("%r"), self.new("%r"), self.new("%r")
        self.add(f"add.u32 {lane}, %r2, {turn};", f"and.b32 {lane}, {lane}, 31;", f"mov.u32 {warp}, %r3;")
        if role is not None:
            if self.threads(role) < WARP:
                self.add(f"rem.u32 {lane}, {lane}, {self.threads(role)};")
            # the warp w for which (block * stride + w) mod warps is the role
            shift = self.new("%r")
            self.add(f"mul.lo.u32 {shift}, %r1, {self.stride};", f"rem.u32 {shift}, {shift}, {self.warps};")
            self.add(f"sub.u32 {warp}, {role + self.warps}, {shift};", f"rem.u32 {warp}, {warp}, {self.warps};")
        self.add(f"mad.lo.u32 {lane}, {warp}, 32, {lane};", f"mov.u32 {address}, {base};")
        self.add(f"mad.lo.u32 {address}, {lane}, {size}, {address};")
        return address

    def loop(self, trips: str, body: Callable[[str], None]) -> None:
        """A loop; the body gets the register that counts from 0."""
        count, again, head = self.new("%r"), self.new("%p"), self.new("L")
        self.add(f"mov.u32 {count}, 0;", f"{head}:")
        body(count)
        self.add(f"add.u32 {count}, {count}, 1;", f"setp.lt.u32 {again}, {count}, {trips};", f"@{again} bra {head};")

    def trips(self) -> str:
        """One to three iterations: equal in all threads of a block, perhaps different between blocks."""
        trips = self.new("%r")
        self.add(f"and.b32 {trips}, %r1, {self.rng.randint(0, 1)};")
        self.add(f"add.u32 {trips}, {trips}, {self.rng.randint(1, 2)};")
        return trips


def put(w: Writer, address: str, count: str | None = None) -> None:
    """Store a value of the thread, different in each iteration."""
    value = w.new("%r")
    w.add(f"xor.b32 {value}, %r5, {w.rng.randrange(1 << 16)};")
    if count is not None:
        w.add(f"add.u32 {value}, {value}, {count};")
    w.add(f"st.shared.u32 [{address}], {value};")


def take(w: Writer, address: str) -> None:
    """Load a word, and mix it into the accumulated value."""
    value = w.new("%r")
    w.add(f"ld.shared.u32 {value}, [{address}];")
    w.mix(value)


def some_lanes_of(w: Writer, some: int, body: Callable[[], None]) -> None:
    """Code for the first `some` lanes of each warp only."""
    if some == WARP:
        body()
        return
    outside, after = w.new("%p"), w.new("L")
    w.add(f"setp.ge.u32 {outside}, %r2, {some};", f"@{outside} bra {after};")
    body()
    w.add(f"{after}:")


def two_groups(w: Writer) -> tuple[list[int], list[int]]:
    """Two disjoint groups of live roles."""
    roles = w.pick(2)
    w.rng.shuffle(roles)
    cut = w.rng.randint(1, len(roles) - 1)
    return sorted(roles[:cut]), sorted(roles[cut:])
