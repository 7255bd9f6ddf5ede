"""Threads, memory, and whose turn it is: each thread runs on by itself until it waits for others.

Lanes of a warp know nothing of each other: a `.sync` operation waits until all living lanes that its mask names stand
at it. When no thread can go on, asynchronous operations complete; when that changes nothing either, it is a deadlock.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.reference.barriers import ClusterBarriers, CtaBarriers
from kernbench.ptx.reference.order import Access, Knowledge, Party, Patterns, Shadow
from kernbench.ptx.reference.program import Program, program_of
from kernbench.ptx.text.module import Kernel

if TYPE_CHECKING:
    from kernbench.ptx.reference.asynchronous import LaterArrival, Mbarrier, Operation, Sent

WARP = 32
FIRST_ADDRESS = 1 << 20
# addresses of shared memory from here on name a rank of the cluster (plus one), and an offset in its memory
CLUSTER_WINDOW = 1 << 24
# rounds in which threads run but nothing changes: they poll for something that never comes
_PATIENCE = 12
_ROUNDS = 20_000
Step = Callable[["Thread"], object]
Piece = tuple[str, int, int]


class StuckError(Exception):
    """A program that cannot go on, and is no deadlock: lanes of a warp that never meet."""


@dataclass(eq=False)
class Thread(Party):
    """One thread: its registers, its program counter, and what it waits for."""

    tid: int = 0
    registers: dict[str, int] = field(default_factory=dict)
    local: bytearray = field(default_factory=bytearray)
    pc: int = 0
    ended: bool = False
    waits: bool = False
    # the phase of its cluster's barrier in which it arrived last
    cluster_phase: int = -1
    # the operation of its warp at which it stands, with the lanes that this needs
    meeting: tuple[int, int, Callable[[list["Thread"]], None]] | None = None
    # copies begun and not waited for: committed groups, then the open one
    groups: list[list["Operation"]] = field(default_factory=lambda: [[]])
    bulk: list[list["Operation"]] = field(default_factory=lambda: [[]])

    @property
    def lane(self) -> int:
        """Its number in its warp."""
        return self.tid % WARP


@dataclass
class Outcome:
    """What became of a launch: arrays as it left them, how it ended, and what was wrong."""

    arrays: list[Array]
    # "finished", "deadlocked", or "stuck" where lanes of a warp never met
    status: str
    # lines of both accesses, space and address
    races: list[tuple[int, int, str, int]]
    # other faults that make the result depend on luck
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
        # threads that wait for the init of an mbarrier
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
        self._parties = grid * block
        self.steps: list[Step] = []
        # bytes that are looked at as one
        self.granule = 4

    def _lay_out_arrays(self, kernel: Kernel, args: Sequence[Array | int]) -> None:
        """Arrays lie one behind the other in global memory; parameters hold addresses and numbers."""
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

    def new_party(self, begun_by: Party, proxied: bool) -> Party:
        """An asynchronous operation: it knows what the thread that begins it knows."""
        self._parties += 1
        known, warp = begun_by.known(), begun_by.warp
        return Party(
            self._parties, begun_by.cta, known, asynchronous=True, proxied=proxied, warp=warp, cluster=begun_by.cluster
        )

    def home(self, party: Party, address: int) -> tuple[int, int]:
        """The block whose shared memory an address names, and the address there: its own, or one of its cluster."""
        rank, offset = divmod(address, CLUSTER_WINDOW)
        return (party.cta // self.cluster * self.cluster + rank - 1 if rank else party.cta), offset

    def in_block(self, rank: int, address: int) -> int:
        """The same offset in the shared memory of a block of the cluster."""
        return (rank + 1) * CLUSTER_WINDOW + address % CLUSTER_WINDOW

    def bytes_of(self, space: str, thread: Party, address: int) -> tuple[bytearray, int]:
        """A space's memory as a thread sees it, and its first address."""
        if space == "shared":
            return self.shared[self.home(thread, address)[0]], address - self.home(thread, address)[1]
        if space == "local":
            assert isinstance(thread, Thread)
            return thread.local, 0
        return (self.params, 0) if space == "param" else (self.memory, FIRST_ADDRESS)

    def read(self, space: str, party: Party, address: int, nbytes: int) -> bytes:
        """Bytes of memory; an address outside it is an error, as programs are to be free of them."""
        memory, first = self.bytes_of(space, party, address)
        start = address - first
        if start < 0 or start + nbytes > len(memory):
            raise IndexError(f"{nbytes} bytes at {address:#x} of {space} memory")
        return bytes(memory[start : start + nbytes])

    def write(self, space: str, party: Party, address: int, data: bytes) -> bool:
        """Put bytes in memory; whether they were there already."""
        same = self.read(space, party, address, len(data)) == data
        memory, first = self.bytes_of(space, party, address)
        memory[address - first : address - first + len(data)] = data
        self.events += not same
        return same

    def note(
        self, party: Party, space: str, address: int, nbytes: int, writes: bool, scope: int, same: bool, line: int
    ) -> Access:
        """Enter an access that others may race with."""
        access = Access(party, party.clock, space, writes, scope, same, line)
        if space in ("shared", "global"):
            self.shadow.enter(self.pieces(party, space, address, nbytes), access)
        return access

    def pieces(self, party: Party, space: str, address: int, nbytes: int) -> list[Piece]:
        """The bytes of an access, each by space, block and address; words where a program accesses only words."""
        home, first = self.home(party, address) if space == "shared" else (-1, address)
        return [(space, home, offset) for offset in range(first, first + nbytes, self.granule)]

    def warp_of(self, thread: Thread) -> list[Thread]:
        """The living lanes of a thread's warp."""
        first = thread.cta * self.block + thread.warp * WARP
        last = min(first + WARP, (thread.cta + 1) * self.block)
        return [one for one in self.threads[first:last] if not one.ended]

    def meet(self, thread: Thread, mask: int, perform: Callable[[list[Thread]], None]) -> bool:
        """A thread comes to an operation of its warp; it is performed when all living lanes of the mask stand there."""
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
        """A thread ends: those who waited for it only go on."""
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
        """Run to the end; how it ended."""
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
        """Every thread that can goes on for a while; whether one could."""
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
        """Run a thread until it waits, polls in vain, or others have their turn."""
        steps = self.steps
        for _ in range(patience):
            step = steps[thread.pc]
            thread.pc += 1
            if step(thread):
                return

    def _complete(self) -> bool:
        """Complete all asynchronous operations; whether there were any."""
        waiting, self.in_flight = self.in_flight, []
        for operation in waiting:
            operation.complete()
        self.events += len(waiting)
        return bool(waiting)

    def arrays(self) -> list[Array]:
        """The arrays as they are now."""
        found = []
        for start, given in self._arrays:
            data = bytes(self.memory[start : start + given.nbytes])
            found.append(np.frombuffer(data, given.dtype).reshape(given.shape))
        return found


def execute(
    kernel: Kernel, grid: int, block: int, args: Sequence[Array | int], seed: int | None = None, cluster: int = 1
) -> Outcome:
    """Run a kernel for `grid` blocks of `block` threads in one dimension; `seed` draws another order of threads.

    `cluster` blocks each form a cluster.
    `args` follow the kernel's parameters: arrays, which stay as they are (the outcome has copies), or numbers.
    """
    from kernbench.ptx.reference.instructions import steps_of

    machine = Machine(kernel, grid, block, args, seed, cluster)
    machine.steps = steps_of(machine)
    status = machine.run()
    if machine.before_init:
        machine.misuse.append("an mbarrier is used that nobody initialises")
    return Outcome(machine.arrays(), status, machine.shadow.races, machine.misuse)
