"""Threads, memory and scheduling: each thread runs by itself until it waits for others.

Lanes of a warp are independent: a `.sync` operation waits until all live lanes of its mask are at it. When no thread
can run, asynchronous operations complete; if that changes nothing either, it is a deadlock.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.reference.barriers import ClusterBarriers, CtaBarriers
from kernbench.ptx.reference.order import Access, Actor, Knowledge, Patterns, Shadow
from kernbench.ptx.reference.program import Program, program_of
from kernbench.ptx.text.module import Kernel

if TYPE_CHECKING:
    from kernbench.ptx.reference.asynchronous import LaterArrival, Mbarrier, Operation, Sent

WARP = 32
FIRST_ADDRESS = 1 << 20
# shared addresses from here on name a rank of the cluster (plus one), and an offset in its memory
CLUSTER_WINDOW = 1 << 24
# rounds without any event after which threads are taken to poll for something that never comes
_PATIENCE = 12
_ROUNDS = 20_000
Step = Callable[["Thread"], object]
Piece = tuple[str, int, int]


@dataclass(eq=False)
class Thread(Actor):
    """One thread: registers, program counter, and what it waits for."""

    tid: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    local: bytearray = field(default_factory=bytearray)
    pc: int = 0
    ended: bool = False
    waits: bool = False
    # the phase of its cluster's barrier in which it last arrived
    cluster_phase: int = -1
    # the warp operation at which it waits, with its mask
    meeting: tuple[int, int, Callable[[list["Thread"]], None]] | None = None
    # copies not yet waited for: committed groups, then the open one
    groups: list[list["Operation"]] = field(default_factory=lambda: [[]])
    bulk: list[list["Operation"]] = field(default_factory=lambda: [[]])

    @property
    def lane(self) -> int:
        """Its lane in its warp."""
        return self.tid % WARP


@dataclass
class Outcome:
    """The result of a launch: arrays as it left them, how it ended, and faults."""

    arrays: list[Array]
    # "finished", "deadlocked", or "stuck" if lanes of a warp never met
    status: str
    # line of each access, space and address
    races: list[tuple[int, int, str, int]]
    # other faults that make the result depend on the order of threads
    misuse: list[str]


class Machine:
    """One launch."""

    def __init__(
        self, kernel: Kernel, grid: int, block: int, args: Sequence[Array | int], seed: int | None, cluster: int = 1
    ):
        self.program: Program = program_of(kernel)
        self.grid, self.block, self.cluster = grid, block, cluster
        self.random = None if seed is None else random.Random(seed)
        self.shadow, self.patterns = Shadow(), Patterns()
        self.events = 0
        self.misuse: list[str] = []
        # threads that wait for an mbarrier's init
        self.before_init: set[int] = set()
        self._lay_out_arrays(kernel, args)
        nothing = (0,) * (grid * block)
        start = Knowledge(nothing, nothing, nothing)
        local = self.program.sizes["local"]
        self.threads = [
            Thread(
                n,
                n // block,
                start,
                tid=n % block,
                warp=n % block // WARP,
                cluster=n // block // cluster,
                local=bytearray(local),
            )
            for n in range(grid * block)
        ]
        self.shared = [bytearray(b"\xcd" * self.program.sizes["shared"]) for _ in range(grid)]
        self.living = [block] * grid
        self.barriers, self.clusters = CtaBarriers(self), ClusterBarriers(self)
        self.mbarriers: dict[tuple[int, int], Mbarrier] = {}
        self.in_flight: list[Operation | LaterArrival | Sent] = []
        self._actors = grid * block
        self.steps: list[Step] = []
        # bytes that are tracked as one piece
        self.granule = 4

    def _lay_out_arrays(self, kernel: Kernel, args: Sequence[Array | int]) -> None:
        """Place arrays contiguously in global memory; parameters hold their addresses, or numbers."""
        self.memory, self.params = bytearray(), bytearray(self.program.sizes["param"])
        self._arrays: list[tuple[int, Array]] = []
        for parameter, value in zip(kernel.params, args, strict=True):
            if isinstance(value, np.ndarray):
                self._arrays.append((len(self.memory), value))
                number = FIRST_ADDRESS + len(self.memory)
                self.memory += value.tobytes() + bytes(-value.nbytes % 256)
            else:
                number = int(value)
            bytes_ = slice(parameter.offset, parameter.offset + parameter.size)
            self.params[bytes_] = (number % (1 << 8 * parameter.size)).to_bytes(parameter.size, "little")

    def new_actor(self, begun_by: Actor, proxied: bool) -> Actor:
        """An actor for an asynchronous operation, with the knowledge of the thread that begins it."""
        self._actors += 1
        known, warp = begun_by.known(), begun_by.warp
        return Actor(
            self._actors, begun_by.cta, known, asynchronous=True, proxied=proxied, warp=warp, cluster=begun_by.cluster
        )

    def home(self, actor: Actor, address: int) -> tuple[int, int]:
        """The block whose shared memory an address names (its own, or one of its cluster), and the offset there."""
        rank, offset = divmod(address, CLUSTER_WINDOW)
        return (actor.cta // self.cluster * self.cluster + rank - 1 if rank else actor.cta), offset

    def in_block(self, rank: int, address: int) -> int:
        """The address of the same offset in a block of the cluster."""
        return (rank + 1) * CLUSTER_WINDOW + address % CLUSTER_WINDOW

    def bytes_of(self, space: str, thread: Actor, address: int) -> tuple[bytearray, int]:
        """A space's memory as a thread sees it, and its first address."""
        if space == "shared":
            return self.shared[self.home(thread, address)[0]], address - self.home(thread, address)[1]
        if space == "local":
            assert isinstance(thread, Thread)
            return thread.local, 0
        return (self.params, 0) if space == "param" else (self.memory, FIRST_ADDRESS)

    def read(self, space: str, actor: Actor, address: int, nbytes: int) -> bytes:
        """Read memory; an address outside it is an error, as programs must not have any."""
        memory, first = self.bytes_of(space, actor, address)
        start = address - first
        if start < 0 or start + nbytes > len(memory):
            raise IndexError(f"{nbytes} bytes at {address:#x} of {space} memory")
        return bytes(memory[start : start + nbytes])

    def write(self, space: str, actor: Actor, address: int, data: bytes) -> bool:
        """Write memory; returns whether it already held these bytes."""
        same = self.read(space, actor, address, len(data)) == data
        memory, first = self.bytes_of(space, actor, address)
        memory[address - first : address - first + len(data)] = data
        self.events += not same
        return same

    def note(
        self, actor: Actor, space: str, address: int, nbytes: int, writes: bool, scope: int, same: bool, line: int
    ) -> Access:
        """Record an access, and the races that it has."""
        access = Access(actor, actor.clock, space, writes, scope, same, line)
        if space in ("shared", "global"):
            self.shadow.enter(self.pieces(actor, space, address, nbytes), access)
        return access

    def pieces(self, actor: Actor, space: str, address: int, nbytes: int) -> list[Piece]:
        """The pieces of an access: space, block and address of bytes, or of words if all accesses are of words."""
        home, first = self.home(actor, address) if space == "shared" else (-1, address)
        return [(space, home, offset) for offset in range(first, first + nbytes, self.granule)]

    def warp_of(self, thread: Thread) -> list[Thread]:
        """The live lanes of a thread's warp."""
        first = thread.cta * self.block + thread.warp * WARP
        last = min(first + WARP, (thread.cta + 1) * self.block)
        return [one for one in self.threads[first:last] if not one.ended]

    def meet(self, thread: Thread, mask: int, perform: Callable[[list[Thread]], None]) -> bool:
        """A thread reaches a warp operation, which is performed once all live lanes of the mask have reached it."""
        thread.meeting, thread.waits = (thread.pc, mask, perform), True
        return self._try_meeting(thread)

    def _try_meeting(self, thread: Thread) -> bool:
        assert thread.meeting is not None
        site, mask, perform = thread.meeting
        named = [one for one in self.warp_of(thread) if mask >> one.lane & 1]
        if any(one.meeting is None or one.meeting[:2] != (site, mask) for one in named):
            return True
        for one in named:
            one.meeting, one.waits = None, False
        self.events += 1
        perform(named)
        return True

    def end(self, thread: Thread) -> bool:
        """A thread exits; operations that waited only for it are performed."""
        thread.ended, thread.waits = True, True
        self.events += 1
        self.living[thread.cta] -= 1
        for one in self.warp_of(thread):
            if one.meeting is not None:
                self._try_meeting(one)
        self.barriers.look_again(thread.cta)
        self.clusters.look(thread.cta // self.cluster)
        return True

    def run(self) -> str:
        """Run to the end; returns how it ended."""
        idle = 0
        for _ in range(_ROUNDS):
            before = self.events
            ran = self._round()
            if all(thread.ended for thread in self.threads):
                self._complete()
                return "finished"
            if self.events != before:
                idle = 0
            elif not self._complete():
                idle += 1
                if not ran or idle > _PATIENCE:
                    parted = any(thread.meeting is not None for thread in self.threads)
                    return "stuck" if parted else "deadlocked"
        return "deadlocked"

    def _round(self) -> bool:
        """Run every thread that can for a while; returns whether there was one."""
        ready = [thread for thread in self.threads if not thread.waits]
        patience = 64
        if self.random is not None:
            self.random.shuffle(ready)
            patience = self.random.choice((3, 20, 64))
        for thread in ready:
            if not thread.waits:
                self._advance(thread, patience)
        return bool(ready)

    def _advance(self, thread: Thread, patience: int) -> None:
        """Run a thread until it waits, polls in vain, or its turn is over."""
        steps = self.steps
        for _ in range(patience):
            step = steps[thread.pc]
            thread.pc += 1
            if step(thread):
                return

    def _complete(self) -> bool:
        """Complete all asynchronous operations; returns whether there were any."""
        waiting, self.in_flight = self.in_flight, []
        for operation in waiting:
            operation.complete()
        self.events += len(waiting)
        return bool(waiting)

    def arrays(self) -> list[Array]:
        """Copies of the arrays."""
        found = []
        for start, given in self._arrays:
            data = bytes(self.memory[start : start + given.nbytes])
            found.append(np.frombuffer(data, given.dtype).reshape(given.shape))
        return found


def execute(
    kernel: Kernel, grid: int, block: int, args: Sequence[Array | int], seed: int | None = None, cluster: int = 1
) -> Outcome:
    """Run a kernel for `grid` blocks of `block` threads in one dimension; `seed` draws another order of threads.

    Each `cluster` blocks form a cluster. `args` are the kernel's parameters: numbers, or arrays, which are not modified
    (the outcome has copies).
    """
    from kernbench.ptx.reference.instructions import steps_of

    machine = Machine(kernel, grid, block, args, seed, cluster)
    machine.steps = steps_of(machine)
    status = machine.run()
    if machine.before_init:
        machine.misuse.append("an mbarrier is used that nobody initialises")
    return Outcome(machine.arrays(), status, machine.shadow.races, machine.misuse)
