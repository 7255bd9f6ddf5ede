"""When a submit gets its slot in a ring: which earlier slots must be reclaimed, and what each reclaim waits for.

Slots of a ring are taken and reclaimed in order, so this follows from the recording alone.
"""

from dataclasses import dataclass, field

from kernbench.npu.isa.model import ChipModel
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.time.blocked import full_ring


@dataclass
class Waits:
    """`slot_of[command]` is the task whose slot (and all older ones of its ring) must be reclaimed first, -1 for none.

    `holders[task]` are the tasks that must be done before its slot is reclaimed: itself, its consumers so far and the
    users of its tensors; `ring_before` and `ring_after` its neighbours in its ring; `closed_by` the command that
    closes its scope.
    `ring_of[task]` is the ring of a task, `ring_first` the first task of each ring.
    """

    slot_of: list[int] = field(default_factory=list)
    holders: list[tuple[int, ...]] = field(default_factory=list)
    ring_before: list[int] = field(default_factory=list)
    ring_after: list[int] = field(default_factory=list)
    ring_of: list[int] = field(default_factory=list)
    ring_first: list[int] = field(default_factory=list)
    closed_by: list[int] = field(default_factory=list)


def ring_waits(recording: NpuRecording, chip: ChipModel) -> Waits:
    """Simulate the rings of a recording; a chip with rings too small for one of its submits is an error."""
    waits = Waits()
    tasks = recording.tasks
    consumers: list[list[int]] = [[] for _ in tasks]
    for task in tasks:
        for earlier in sorted({*task.dependences, *task.holds}):
            consumers[earlier].append(task.number)
    closes = {c.target: i for i, c in enumerate(recording.commands) if c.verb == "close"}
    waits.closed_by = [closes.get(t.scope, -1) for t in tasks]
    limits = (chip.tasks.window, chip.tasks.heap, chip.tasks.dependences)
    # as recorded, except for scopes that are too deep for this chip: they share its last ring
    waits.ring_of = [min(task.ring, chip.tasks.rings - 1) for task in tasks]
    rings: dict[int, _Ring] = {}
    waits.ring_before, waits.ring_after = [-1] * len(tasks), [-1] * len(tasks)
    # the task that needed each slot; later tasks cannot hold it
    wanted_by = [len(tasks)] * len(tasks)
    for number, command in enumerate(recording.commands):
        slot = -1
        if command.makes_task:
            task = tasks[command.target]
            ring = rings.setdefault(waits.ring_of[task.number], _Ring(limits))
            amounts = (1, task.created_bytes, len(task.dependences))
            waits.ring_before[task.number] = ring.members[-1] if ring.members else -1
            for earlier in ring.take(task.number, amounts):
                if not 0 <= waits.closed_by[earlier] < number:
                    raise full_ring(recording, chip, command, waits.ring_of[task.number], tasks[earlier])
                wanted_by[earlier] = task.number
                slot = earlier
            if ring.lacks:
                raise full_ring(recording, chip, command, waits.ring_of[task.number])
        waits.slot_of.append(slot)
    waits.holders = [(t.number, *(c for c in consumers[t.number] if c < wanted_by[t.number])) for t in tasks]
    for number, earlier in enumerate(waits.ring_before):
        if earlier >= 0:
            waits.ring_after[earlier] = number
    waits.ring_first = [rings[n].members[0] if n in rings else -1 for n in range(chip.tasks.rings)]
    return waits


@dataclass
class _Ring:
    limits: tuple[int, int, int]
    members: list[int] = field(default_factory=list)
    amounts: list[tuple[int, int, int]] = field(default_factory=list)
    used: list[int] = field(default_factory=lambda: [0, 0, 0])
    oldest: int = 0

    @property
    def lacks(self) -> bool:
        """Whether its tasks hold more than its size: the last one alone, if nothing more can be reclaimed."""
        return any(used > limit for used, limit in zip(self.used, self.limits, strict=True))

    def take(self, task: int, amounts: tuple[int, int, int]) -> list[int]:
        """Add a task; returns those that must be reclaimed for it, oldest first."""
        needed = []
        while any(u + a > limit for u, a, limit in zip(self.used, amounts, self.limits, strict=True)):
            if self.oldest == len(self.members):
                break
            for i, amount in enumerate(self.amounts[self.oldest]):
                self.used[i] -= amount
            needed.append(self.members[self.oldest])
            self.oldest += 1
        self.members.append(task)
        self.amounts.append(amounts)
        for i, amount in enumerate(amounts):
            self.used[i] += amount
        return needed
