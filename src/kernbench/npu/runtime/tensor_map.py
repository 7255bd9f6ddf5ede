"""The tensor map: the last writers of each part of each buffer, from which dependences follow.

A task that reads waits for the last overlapping writers. INOUT also replaces the entries it covers. OUT on an existing
tensor only adds an entry, and waits for the task that made the tensor; NO_DEP does only the latter. Writes after reads
are not tracked, unless asked for. A tensor with `manual_dep` is not tracked at all.
"""

from collections import defaultdict

from kernbench.npu.tasks.task import BOTH, READS, UNTRACKED, WRITES, Arg
from kernbench.npu.tasks.tensors import Tensor, covers, overlap

Entry = tuple[int, Tensor]


class TensorMap:
    """`track_war` makes writers wait for readers too."""

    def __init__(self, track_war: bool):
        self._writers: dict[int, list[Entry]] = defaultdict(list)
        self._readers: dict[int, list[Entry]] = defaultdict(list)
        self._track_war = track_war

    def lookup(self, arg: Arg) -> dict[int, str]:
        """The tasks that a task with this argument waits for, with the reasons."""
        tensor, number, maker = arg.tensor, arg.tensor.buffer.number, arg.tensor.buffer.maker
        found: dict[int, str] = {}
        is_manual = tensor.buffer.manual_dep
        if maker >= 0 and (is_manual or arg.direction in (WRITES, UNTRACKED)):
            found[maker] = f"made {tensor.name}"
        if is_manual:
            return found
        if arg.direction in (READS, BOTH):
            found |= {task: f"reads {tensor.name}" for task, view in self._writers[number] if overlap(view, tensor)}
        if self._track_war and arg.direction in (WRITES, BOTH):
            for task, view in [*self._readers[number], *self._writers[number]]:
                if overlap(view, tensor):
                    found.setdefault(task, f"overwrites {tensor.name}")
        return found

    def insert(self, arg: Arg, task: int) -> None:
        """Record the use of an argument by a task."""
        tensor, number = arg.tensor, arg.tensor.buffer.number
        if tensor.buffer.manual_dep:
            return
        if arg.direction == BOTH:
            self._writers[number] = [e for e in self._writers[number] if not covers(tensor, e[1])]
        if arg.direction in (WRITES, BOTH):
            self._writers[number].append((task, tensor))
        if self._track_war and arg.direction in (READS, BOTH):
            self._readers[number].append((task, tensor))

    def writers(self, tensor: Tensor) -> list[int]:
        """The last writers of any part of a tensor."""
        return [task for task, view in self._writers[tensor.buffer.number] if overlap(view, tensor)]
