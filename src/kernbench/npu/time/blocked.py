"""Errors for recordings that would deadlock on a chip of another shape: smaller rings, or fewer clusters.

A launch there would be refused, or end with a full ring that never drains. Blocks of safe runs wait for each other
only if they start together.
"""

from kernbench.common.errors import MachineError
from kernbench.npu.isa.model import ChipModel
from kernbench.npu.recording.record import Command, NpuRecording, TaskRecord
from kernbench.result.finding import SourceLocation


def full_ring(
    recording: NpuRecording, chip: ChipModel, command: Command, ring: int, oldest: TaskRecord | None = None
) -> MachineError:
    """A submit waits for a ring for ever: the scope of its `oldest` task closes later, or it is too small."""
    tasks = chip.tasks
    sizes = f"{tasks.window} tasks, {tasks.heap:,} bytes and {tasks.dependences} dependences"
    if oldest is None:
        why = "which is smaller than what it needs"
    else:
        why = f"which is full, and its oldest task, {_named(oldest)}, belongs to a scope that is closed only later"
    return _error(
        recording,
        chip,
        recording.tables.sites[command.site],
        f"the submit of {_named(recording.tasks[command.target])} would wait for ever for ring {ring} of "
        f"{tasks.rings}, {why} (a ring has {sizes}: keys tasks.window, tasks.heap, tasks.dependences)",
    )


def no_cores(recording: NpuRecording, chip: ChipModel, number: int) -> MachineError:
    """Blocks of a task never get cores."""
    task = recording.tasks[number]
    start = " start together and" if task.sync_start else ""
    return _error(
        recording,
        chip,
        recording.tables.sites[task.site],
        f"the {task.blocks} blocks of {_named(task)}{start} would wait for ever for cores of its {chip.clusters.count} "
        "clusters (key clusters.count)",
    )


def _error(recording: NpuRecording, chip: ChipModel, where: SourceLocation, what: str) -> MachineError:
    return MachineError(
        f"{where}: on chip '{chip.name}' {what}: a deadlock, which has no time\n"
        "  next: launch on this chip, which reports what is too small; or time it on a larger one"
    )


def _named(task: TaskRecord) -> str:
    return f"task {task.number} ({task.name})"
