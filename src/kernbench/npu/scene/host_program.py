"""Host programs that drive one chip (level 3): the objects that they use, and the tasks that they submit.

A chip task is launched when it is submitted, and a host function is called when it is submitted: each task sees the
writes of those before it, which is one of the orders that its dependences allow. Other processes, frames and mailboxes
of the reference's worker are not modelled; a program that uses them is refused with the name it asks for.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import DTYPES
from kernbench.common.errors import BenchError
from kernbench.npu.scene.offered import ArgDirection, Scalar, TaskArgsBuilder, TensorArg


class TensorArgType(IntEnum):
    """The direction of a tensor argument."""

    INPUT = 0
    OUTPUT = 1
    INOUT = 2
    OUTPUT_EXISTING = 3
    NO_DEP = 4


class DataType(IntEnum):
    """Element types by their numbers."""

    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    INT16 = 3
    INT8 = 4
    UINT8 = 5
    BFLOAT16 = 6
    INT64 = 7
    UINT64 = 8
    UINT16 = 9
    UINT32 = 10


_WRITTEN = (TensorArgType.OUTPUT_EXISTING, TensorArgType.INOUT)
_TAGS = {
    ArgDirection.IN: TensorArgType.INPUT,
    ArgDirection.OUT: TensorArgType.OUTPUT_EXISTING,
    ArgDirection.INOUT: TensorArgType.INOUT,
}


class Given(NamedTuple):
    """A host tensor as an argument: its name, and its array or torch tensor."""

    name: str
    value: object


class TaskArgs:
    """The arguments of a task: tensors with their directions, and numbers of 64 bits."""

    def __init__(self) -> None:
        self.tensors: list[tuple[Given, TensorArgType]] = []
        self.scalars: list[int] = []

    def add_tensor(self, tensor: Given, tag: TensorArgType = TensorArgType.INPUT) -> None:
        """Add a tensor."""
        if not isinstance(tensor, Given):
            raise BenchError(f"add_tensor: a tensor of a buffer or of the test's arguments is wanted, got {tensor!r}")
        self.tensors.append((tensor, TensorArgType(tag)))

    def add_scalar(self, value: int) -> None:
        """Add a number."""
        self.scalars.append(int(value))


class CallConfig(SimpleNamespace):
    """Settings of a call; those of the chip come from the case."""


class Callables:
    """The callables of a test, as attributes: tasks for the chip, their signatures (`NAME_sig`), host functions."""

    def __init__(self, entries: Mapping[str, object]):
        self._entries = dict(entries)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or name not in self._entries:
            raise AttributeError(f"the test names no {name!r}: there are {', '.join(self._entries)}")
        return self._entries[name]

    def keep(self, *things: object) -> object:
        """Keep objects alive until the program ends."""
        return things[0] if len(things) == 1 else things


class Buffer:
    """Host memory that tasks may be given."""

    def __init__(self, number: int, nbytes: int):
        self.nbytes, self._name = nbytes, f"buffer_{number}"
        self._bytes = np.zeros(nbytes, np.uint8)
        self.shm = SimpleNamespace(buf=self._bytes.data)

    def tensor(self, shapes: Sequence[int], dtype: int, byte_offset: int = 0) -> Given:
        """A part of it as elements of a type."""
        name = DataType(dtype).name.lower()
        kind = DTYPES["bf16"].numpy if name == "bfloat16" else np.dtype(name)
        count = int(np.prod(shapes))
        values = np.frombuffer(self._bytes.data, kind, count, byte_offset).reshape(tuple(shapes))
        return Given(self._name, values)

    def close(self) -> None:
        """The program no longer needs the buffer."""


Launch = Callable[[str, list[TensorArg | Scalar]], None]


@dataclass
class Worker:
    """One chip and the host functions beside it; `launch` runs a task by the name of its callable."""

    launch: Launch
    platform: str
    buffers: list[Buffer] = field(default_factory=list)

    def create_buffer(self, nbytes: int) -> Buffer:
        """Allocate host memory that tasks may be given."""
        self.buffers.append(Buffer(len(self.buffers), int(nbytes)))
        return self.buffers[-1]

    def run(self, program: Callable[..., object], args: object = None, config: object = None) -> None:
        """Run a program to its end."""
        program(self, args, CallConfig() if config is None else config)

    def submit_next_level(self, task: str, args: TaskArgs, config: object = None, *, worker: int = 0) -> None:
        """Launch a task of the chip."""
        if worker != 0:
            raise BenchError(f"submit_next_level(worker={worker}): there is one chip, number 0")
        names = [given.name for given, _ in args.tensors]
        named = [
            TensorArg(name if names.count(name) == 1 else f"{name}_{i}", given.value)
            for i, (name, (given, _)) in enumerate(zip(names, args.tensors, strict=True))
        ]
        for (_, tag), one in zip(args.tensors, named, strict=True):
            _check_apart(one, tag, named)
        scalars = [Scalar(f"scalar_{i}", value) for i, value in enumerate(args.scalars)]
        self.launch(task, [*named, *scalars])

    def submit_sub(self, function: Callable[..., object], args: TaskArgs | None = None) -> None:
        """Call a host function."""
        function(args)


def _check_apart(one: TensorArg, tag: TensorArgType, named: list[TensorArg]) -> None:
    """A written tensor must not overlap another argument: each is copied to the chip separately."""
    for other in named:
        arrays = isinstance(one.value, np.ndarray) and isinstance(other.value, np.ndarray)
        if tag in _WRITTEN and other is not one and arrays and np.may_share_memory(one.value, other.value):
            raise BenchError(f"arguments {one.name} and {other.name} of one task lie in the same memory")


def scalar_to_uint64(value: object) -> int:
    """A number as the 64 bits that a task takes; fractions as f32."""
    if isinstance(value, (float, ctypes.c_float)):
        number = value if isinstance(value, float) else value.value
        return int(np.float32(number).view(np.uint32))
    if isinstance(value, ctypes.c_double):
        return int(np.float64(value.value).view(np.uint64))
    whole = getattr(value, "value", value)
    if not isinstance(whole, int):
        raise BenchError(f"{value!r}: a task takes tensors and numbers")
    return whole & 0xFFFFFFFFFFFFFFFF


def named_tensor(given: TaskArgsBuilder, name: str) -> Given:
    """An argument of the test as one of a task."""
    return Given(name, getattr(given, name))


def task_args(
    given: TaskArgsBuilder, signature: Sequence[ArgDirection], worker: object = None
) -> tuple[TaskArgs, list[str]]:
    """All arguments of the test as those of a task with this signature, and the names of those that it writes."""
    made, written = TaskArgs(), []
    tensors = [spec for spec in given.specs if isinstance(spec, TensorArg)]
    for spec, direction in zip(tensors, signature, strict=False):
        made.add_tensor(Given(spec.name, spec.value), _TAGS[ArgDirection(direction)])
        if made.tensors[-1][1] in _WRITTEN:
            written.append(spec.name)
    for number in (spec for spec in given.specs if isinstance(spec, Scalar)):
        made.add_scalar(scalar_to_uint64(number.value))
    return made, written
