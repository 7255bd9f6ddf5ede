"""Single values of tensors that the orchestrator itself reads and writes, and what it waits for before.

A read waits for the last writers. A write waits for the last writers and the task that made the tensor, and for the
tasks that retain these: readers of tensors of the runtime, and tasks that name them in deps=. Readers that retain
nothing are not seen, as in the reference; a write that may come too early for them is a finding.
"""

from collections.abc import Callable
from typing import Any

from kernbench.npu.execution.execute import Executor
from kernbench.npu.runtime.tensor_map import TensorMap
from kernbench.npu.tasks.fitting import fitting
from kernbench.npu.tasks.task import Context
from kernbench.npu.tasks.tensors import Tensor

__kernbench_internal__ = True


class Values:
    """The tasks that the orchestrator knows to be done (`known`, a bit for each), and its accesses to memory."""

    def __init__(
        self,
        context: Context,
        executor: Executor,
        tensors: TensorMap,
        command: Callable[[str, int, tuple[int, ...]], None],
    ):
        self._context, self._executor, self._map, self._command = context, executor, tensors, command
        self.known = 0

    def read(self, tensor: Tensor, at: tuple[int, ...]) -> Any:
        """Read an element as a number."""
        element = self._element("read", tensor, at)
        self._wait("read", element, self._map.writers(element))
        if element.buffer.external:
            self._context.asked.append((element.buffer.number, element.offset))
        else:
            self._context.share()
        array = element.buffer.array
        if array is None:
            self._context.fail(
                "value-needed",
                f"the orchestrator needs a value of {tensor.buffer.describe()}; this run carries no floats",
                "run with data, or pass the value as an argument",
            )
        if not element.buffer.external and not element.buffer.shadow.holds(element.offset):
            self._context.report(
                "uninitialised-read",
                f"the orchestrator reads element {list(at)} of {tensor.buffer.describe()}, which no task wrote",
                "submit the task that writes it first",
                None,
                tensor.name,
            )
        return array[element.offset].item()

    def write(self, tensor: Tensor, at: tuple[int, ...], value: float | int) -> None:
        """Set an element."""
        element = self._element("write", tensor, at)
        number = fitting(self._context, value, element.dtype)
        self._context.share()
        self._wait("write", element, self._to_write(element))
        here = self._context.sites.locations[self._context.sites.here(3)]
        element.buffer.shadow.write_by_orchestrator(element, self.known, here)
        if element.buffer.array is not None and not self._executor.stopped:
            element.buffer.array[element.offset] = number

    def _element(self, verb: str, tensor: Tensor, at: tuple[int, ...]) -> Tensor:
        if not isinstance(tensor, Tensor):
            self._context.fail("misuse", f"{verb}: a tensor is wanted, got {tensor!r}")
        element = tensor[at] if at else tensor
        if element.shape:
            self._context.fail("shape", f"{verb}: an index for each axis of {tensor!r} is wanted; got {at}")
        if element.buffer.closed:
            self._context.use_after_free(element)
        return element

    def _to_write(self, element: Tensor) -> list[int]:
        """Writers, the maker, and the tasks that retain them."""
        tasks, maker = self._context.tasks, element.buffer.maker
        producers = {*self._map.writers(element), *([maker] if maker >= 0 else [])}
        retained = {number for producer in producers for number in tasks[producer].retained_by}
        return sorted(producers | retained)

    def _wait(self, verb: str, element: Tensor, numbers: list[int]) -> None:
        tasks = self._context.tasks
        self._command(verb, element.buffer.number, tuple(numbers))
        while not all(tasks[n].done for n in numbers) and self._executor.run_one():
            pass
        if not all(tasks[n].done for n in numbers):
            self._executor.stand_still()
        for number in numbers:
            self.known |= tasks[number].ancestors | 1 << number
