"""Writing random programs: lines, registers, roles of warps, and the few things all segments do."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

WARP = 32
TABLE = 512
COUNTERS = 16
# bytes of a block's part of the array that bulk copies fill
BULK = 512
# such parts of each block
ROOMS = 5
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
    """Lines of a program that stay together; `sync` says what they order, "" where nothing."""

    text: str
    sync: str = ""


@dataclass
class Program:
    """A program, and the launch it is made for."""

    seed: int
    grid: int
    warps: int
    lines: list[Line]
    head: str
    tail: str = TAIL
    kinds: tuple[str, ...] = ()
    # what was changed, "" for a program that is safe
    change: str = ""
    # threads that the last warp of a block lacks
    missing: int = 0
    # blocks of a cluster
    cluster: int = 1

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.warps * WARP - self.missing

    @property
    def text(self) -> str:
        """The module."""
        return self.head + "\n".join(f"  {line.text}" for line in self.lines) + self.tail.format()


@dataclass
class Writer:
    """Writes segments, and knows which roles still run and which registers and barriers are taken.

    Where the last warp lacks threads (`missing`), roles are numbers of warps: `stride` is 0.
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
    # where bulk copies write in global memory: the number of the room, and the role that wrote there last
    room: tuple[int, int | None] = (0, None)

    def new(self, kind: str) -> str:
        """A register (or label) that nobody uses yet."""
        self.counts[kind] += 1
        return f"{kind}{self.counts[kind] - 1}"

    def add(self, *texts: str) -> None:
        """Lines that order nothing."""
        self.lines += [Line(text) for text in texts]

    def sync(self, text: str, what: str) -> None:
        """A line that orders something, and may be changed."""
        self.lines.append(Line(text, what))

    def shared(self, nbytes: int, align: int = 16) -> str:
        """Shared memory of its own."""
        name = f"s{len(self.variables)}"
        self.variables.append(f"  .shared .align {align} .b8 {name}[{nbytes}];")
        return name

    @property
    def least(self) -> int:
        """Lanes that every warp has."""
        return WARP - self.missing

    def threads(self, *roles: int) -> int:
        """How many threads the warps of some roles have."""
        return WARP * len(roles) - (self.missing if self.warps - 1 in roles else 0)

    def local(self, nbytes: int) -> str:
        """Local memory of its own."""
        name = f"s{len(self.variables)}"
        self.variables.append(f"  .local .align 4 .b8 {name}[{nbytes}];")
        return name

    def pick(self, least: int = 1, among: list[int] | None = None) -> list[int]:
        """Some of the roles that still run."""
        roles = self.living if among is None else among
        return sorted(self.rng.sample(roles, self.rng.randint(min(least, len(roles)), len(roles))))

    def named(self) -> int:
        """A barrier for one group of warps, which no other group has used."""
        self.barrier += 1
        assert self.barrier < 16
        return self.barrier

    def room_for_copy(self, role: int) -> int:
        """Where a role may write by a bulk copy: another room once a role has left that wrote there.

        Who leaves publishes nothing: barriers do not wait for it.
        """
        number, writer = self.room
        self.room = number + (writer is not None and writer not in self.living), role
        assert self.room[0] < ROOMS
        return self.room[0]

    def everybody(self) -> None:
        """All living threads of a block meet."""
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
            # lanes come to it by two instructions
            apart, first, second = self.new("%p"), self.new("L"), self.new("L")
            self.add(f"setp.lt.u32 {apart}, %r2, {rng.randint(1, 31)};", f"@{apart} bra {first};")
            self.sync("barrier.sync 0;", "unaligned")
            self.add(f"bra {second};", f"{first}:")
            self.sync("barrier.sync 0;", "unaligned")
            self.add(f"{second}:")
        else:
            self.sync(rng.choice(("bar.sync 0;", "barrier.sync 0;", "barrier.sync.aligned 0;")), "bar")

    def mix(self, value: str) -> None:
        """Take a value into what the thread gathers."""
        self.add(f"xor.b32 %r5, %r5, {value};", "mad.lo.u32 %r5, %r5, 1664525, 1013904223;")

    def holds(self, roles: list[int]) -> str:
        """A predicate: the thread's warp has one of these roles."""
        bit, here = self.new("%r"), self.new("%p")
        mask = sum(1 << role for role in roles)
        self.add(f"shr.u32 {bit}, {mask}, %r6;", f"and.b32 {bit}, {bit}, 1;", f"setp.eq.u32 {here}, {bit}, 1;")
        return here

    def only(self, roles: list[int], body: Callable[[], None]) -> None:
        """A body for warps of some roles."""
        if sorted(roles) == sorted(self.living):
            body()
            return
        here, after = self.holds(roles), self.new("L")
        self.add(f"@!{here} bra {after};")
        body()
        self.add(f"{after}:")

    def one_lane(self, lane: int, body: Callable[[], None]) -> None:
        """A body for one lane of each warp."""
        other, after = self.new("%p"), self.new("L")
        self.add(f"setp.ne.u32 {other}, %r2, {lane};", f"@{other} bra {after};")
        body()
        self.add(f"{after}:")

    def slot(self, base: str, role: int | None = None, turn: int = 0, size: int = 4) -> str:
        """The address of a thread's own slot, or that of the lane `turn` further in the warp of a role."""
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
        """One to three rounds, the same for all threads of a block, others in other blocks."""
        trips = self.new("%r")
        self.add(f"and.b32 {trips}, %r1, {self.rng.randint(0, 1)};")
        self.add(f"add.u32 {trips}, {trips}, {self.rng.randint(1, 2)};")
        return trips


def put(w: Writer, address: str, count: str | None = None) -> None:
    """Store something of the thread's own, which differs from round to round."""
    value = w.new("%r")
    w.add(f"xor.b32 {value}, %r5, {w.rng.randrange(1 << 16)};")
    if count is not None:
        w.add(f"add.u32 {value}, {value}, {count};")
    w.add(f"st.shared.u32 [{address}], {value};")


def take(w: Writer, address: str) -> None:
    """Load a word, and take it into what the thread gathers."""
    value = w.new("%r")
    w.add(f"ld.shared.u32 {value}, [{address}];")
    w.mix(value)


def some_lanes_of(w: Writer, some: int, body: Callable[[], None]) -> None:
    """A body for the first lanes of each warp."""
    if some == WARP:
        body()
        return
    outside, after = w.new("%p"), w.new("L")
    w.add(f"setp.ge.u32 {outside}, %r2, {some};", f"@{outside} bra {after};")
    body()
    w.add(f"{after}:")


def two_groups(w: Writer) -> tuple[list[int], list[int]]:
    """Two groups of roles that still run."""
    roles = w.pick(2)
    w.rng.shuffle(roles)
    cut = w.rng.randint(1, len(roles) - 1)
    return sorted(roles[:cut]), sorted(roles[cut:])
