"""A compiled orchestration as the runtime runs it: called with the runtime and the arguments of the launch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import DTYPES, ITEMSIZE
from kernbench.common.errors import KernelError
from kernbench.npu.cpp import process as programs
from kernbench.npu.cpp.ends import crash
from kernbench.npu.cpp.kernel import CALL, argument_words
from kernbench.npu.cpp.locations import Caller, caller, first_line, of_address
from kernbench.npu.cpp.memory import ELEMENTS, SIZES, WIDE, memory_of
from kernbench.npu.cpp.process import BODY, CRASHED, ENDED, FAILED, KIND, OPERATION, QUESTION, Process
from kernbench.npu.runtime.runtime import Runtime
from kernbench.npu.tasks.predicates import PREDICATE
from kernbench.npu.tasks.task import CREATE, IN, INOUT, NO_DEP, OUT, Arg, Create, Task
from kernbench.npu.tasks.tensors import Tensor
from kernbench.result.finding import SourceLocation

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__kernbench_internal__ = True
_SUBMIT = Struct("<4i4B3Iq")
_GIVEN = Struct("<4Q4B11I")
_ACCESS = Struct("<3Q16s")
_SUBMITS, _DUMMY, _ALLOCATE = range(3)
_INPUT, _OUTPUT, _INOUT, _EXISTING, _NO_DEP = range(5)
_OPERATORS = ("", "eq", "ne", "gt", "lt", "ge", "le")
_NONE = (1 << 64) - 1
_MOST_ARGUMENTS = 64


@dataclass(frozen=True)
class Redeclared:
    """A tensor argument of the submits of a line that is declared with another direction than the source says."""

    file: str
    line: int
    position: int
    direction: str


class CppOrchestration:
    """An orchestration of a C++ file. Its arguments are arrays and numbers in the order in which it takes them; `names`
    is what they are called in reports, one for each; `elements` are the numbers of their types where those are stored
    as another (0 where not).
    """

    def __init__(
        self,
        library: Path,
        source: Path,
        symbol: str = "aicpu_orchestration_entry",
        names: Sequence[str] = (),
        elements: Sequence[int] = (),
    ):
        self.library, self.source, self.symbol = library, source, symbol
        self.elements, self._names = tuple(elements), tuple(names)
        # the directions of the arguments of each line that submits, in the order of their submits
        self.submits: dict[SourceLocation, tuple[str, ...]] = {}
        self.redeclared: Redeclared | None = None
        self.__name__ = self.__qualname__ = symbol
        kind = Parameter.POSITIONAL_OR_KEYWORD
        called = names or [f"argument{number}" for number in range(_MOST_ARGUMENTS)]
        self.__signature__ = Signature([Parameter(name, kind) for name in ("rt", *called)])
        self.__code__ = caller(str(source), first_line(source, symbol), symbol).__code__

    def redeclaring(self, change: Redeclared) -> "CppOrchestration":
        """The same orchestration with one argument declared otherwise."""
        made = CppOrchestration(self.library, self.source, self.symbol, self._names, self.elements)
        made.redeclared = change
        return made

    def __repr__(self) -> str:
        return f"<C++ orchestration {self.symbol} of {self.source}>"

    def __call__(self, rt: Runtime, *arguments: object, **named: object) -> None:
        """Run the orchestration, in a process of its own."""
        process, is_done = programs.take(), False
        try:
            running = _Running(self, rt, process)
            running.begin((*arguments, *named.values()))
            is_done = running.serve()
        finally:
            programs.give_back(process, is_done)


class _Running:
    """One run of an orchestration."""

    def __init__(self, program: CppOrchestration, rt: Runtime, process: Process):
        self.program, self.rt, self.process = program, rt, process
        self._memory = memory_of(rt.context)
        self._scopes: list[AbstractContextManager[None]] = []
        self._last = 0

    def begin(self, arguments: tuple[object, ...]) -> None:
        """Have the process call it."""
        for value, element in zip(arguments, self.program.elements, strict=False):
            if element and isinstance(value, Tensor):
                self._memory.shown_as[value.buffer.number] = element
        words = b"".join(argument_words(self._memory, value) for value in arguments)
        number = self.process.library(self.program.library, self.program.source)
        head = CALL.pack(number, len(arguments), 0, 1, 0, 0, self.program.symbol.encode())
        self.process.call(programs.ORCHESTRATE, head + words)

    def serve(self) -> bool:
        """Do what its records say until it has ended."""
        for record in self.process.records():
            kind, name, site = KIND.unpack_from(record)
            if kind == ENDED:
                return True
            if kind == CRASHED:
                raise crash(record[BODY:], "the orchestration", self.program.library, self._location(site))
            if kind == FAILED:
                why = record[BODY:].decode(errors="replace")
                raise KernelError("misuse", f"{self.program.source}: {why}: there is no such function to call")
            self._last = site or self._last
            verb, payload = self.process.names[name], record[BODY:]
            if kind == OPERATION:
                self._caller(site)(self._do, (verb, payload))
            elif kind == QUESTION:
                answer = self._ask_at(verb, site, payload)
                assert isinstance(answer, bytes)
                self.process.answer(answer)
        raise KernelError("kernel-error", f"{self.program!r} ended its process", "", self._location(self._last))

    def _ask_at(self, verb: str, site: int, payload: bytes) -> object:
        if verb == "gm_read":
            _, _, pc, _ = _ACCESS.unpack(payload)
            return self._call_at(pc)(self._read_bytes, (payload,))
        return self._caller(site)(self._ask, (verb, payload))

    # What it does

    def _do(self, verb: str, payload: bytes) -> None:
        if verb == "scope_begin":
            scope = self.rt.scope(manual=bool(payload[8]))
            scope.__enter__()
            self._scopes.append(scope)
        elif verb == "scope_end":
            self._scopes.pop().__exit__(None, None, None)
        elif verb == "write":
            element, bits = self._element(payload)
            size = ITEMSIZE[element.dtype]
            for number, one in enumerate(_singles(element)):
                self.rt.write(one, value=_number(bits[number * size :][:size], one.dtype))
        elif verb == "gm_write":
            raise KernelError(
                "misuse", "an orchestration writes device memory through a pointer", "use set_tensor_data"
            )
        else:
            raise KernelError("misuse", f"the orchestration reports an error: {payload.decode(errors='replace')}")

    def _ask(self, verb: str, payload: bytes) -> bytes:
        if verb == "submit":
            return self._submit(payload)
        if verb == "clusters":
            return self.rt.clusters.to_bytes(4, "little")
        if verb == "aivs":
            return self.rt.aivs.to_bytes(4, "little")
        if verb == "read":
            element, _ = self._element(payload)
            values = [self.rt.read(one) for one in _singles(element)]
            return np.array(values, DTYPES[element.dtype].numpy).tobytes()
        raise KernelError("misuse", f"the runtime knows no {verb!r}")

    def _read_bytes(self, payload: bytes) -> bytes:
        offset, size, _, _ = _ACCESS.unpack(payload)
        found = self._memory.find(offset)
        if found is None:
            raise KernelError("out-of-bounds", f"address {offset:#x} of device memory is in no tensor")
        buffer, at = found
        item = ITEMSIZE[buffer.dtype]
        first, last = at // item, -(-(at + size) // item)
        if first < 0 or last * item > buffer.nbytes:
            raise KernelError("out-of-bounds", f"elements {first} to {last - 1} of {buffer.describe()}")
        values = [self.rt.read(Tensor(buffer, number, (), ())) for number in range(first, last)]
        return np.array(values, DTYPES[buffer.dtype].numpy).tobytes()[at - first * item :][:size]

    # Tensors and submits

    def _tensor(self, words: tuple[int, ...]) -> Tensor:
        """A tensor of the program as a view of its buffer."""
        address, _, start, _, dtype, _, _, _, ndims, *sizes = words
        shape, strides = tuple(sizes[:ndims]), tuple(sizes[5 : 5 + ndims])
        found = self._memory.find(address - self.process.base)
        if found is None:
            raise KernelError("out-of-bounds", f"address {address - self.process.base:#x} is in no tensor")
        whole, at = found
        name = "i32" if dtype in WIDE else ELEMENTS[dtype]
        buffer = self._memory.as_type(whole, name) if name else None
        if buffer is None or at % SIZES[dtype] or ITEMSIZE[name] != ITEMSIZE[whole.dtype]:
            raise KernelError("dtype", f"{whole.describe()} is used as elements of another size")
        if dtype in WIDE:
            start, shape, strides = 2 * start, (*shape, 2), (*(2 * step for step in strides), 1)
        tensor = Tensor(buffer, at // ITEMSIZE[name] + start, shape, strides)
        low, high = tensor.extent
        size = whole.nbytes // ITEMSIZE[whole.dtype]
        if low < 0 or high > size:
            message = f"elements {low} to {high - 1} of {whole.describe()}, which has {size}"
            raise KernelError("out-of-bounds", message, "check the shape and the offsets of the view")
        return tensor

    def _element(self, payload: bytes) -> tuple[Tensor, bytes]:
        """One element of a tensor, and the bits of the value that goes with it."""
        words = _GIVEN.unpack(payload)
        return self._tensor((*words[:8], 0, *([0] * 10))), words[3].to_bytes(8, "little")

    def _argument(self, words: tuple[int, ...]) -> Arg | Create:
        _, _, _, initial, dtype, tag, filled, manual, ndims, *sizes = words
        if tag == _OUTPUT:
            return self._created(dtype, tuple(sizes[:ndims]), initial if filled else None, bool(manual))
        kinds = {_INPUT: IN, _INOUT: INOUT, _EXISTING: OUT, _NO_DEP: NO_DEP}
        return NO_DEP(self._tensor(words)) if manual and tag == _INPUT else kinds[tag](self._tensor(words))

    def _created(self, dtype: int, shape: tuple[int, ...], initial: int | None, manual: bool) -> Create:
        """A tensor for the runtime to make."""
        name = "i32" if dtype in WIDE else ELEMENTS[dtype]
        if not name:
            raise KernelError("dtype", "tensors of 16-bit integers are not known to the machine")
        bits = b"" if initial is None else initial.to_bytes(8, "little")
        if dtype in WIDE:
            shape = (*shape, 2)
            if bits[:4] != bits[4:]:
                raise KernelError("dtype", "an initial value of 64 bits whose halves differ", "write it in a task")
        return CREATE(shape, name, "", _number(bits, name) if bits else None, manual)

    def _submit(self, payload: bytes) -> bytes:
        words = _SUBMIT.unpack_from(payload)
        kernels, blocks, (sync, early, predicate, verb) = words[:3], words[3], words[4:8]
        tensors, scalars, deps, target = words[8:]
        at = _SUBMIT.size
        args: list[object] = []
        made: list[int] = []
        for _ in range(tensors):
            given = _GIVEN.unpack_from(payload, at)
            args.append(self._argument(given))
            made += [given[4]] if given[5] == _OUTPUT else []
            at += _GIVEN.size
        args = self._declared(args)
        bits = [int.from_bytes(payload[at + 8 * i : at + 8 * i + 8], "little") for i in range(scalars + deps)]
        at += 8 * len(bits)
        condition = None
        if predicate:
            element = self._tensor((*_GIVEN.unpack_from(payload, at)[:8], 0, *([0] * 10)))
            condition = PREDICATE(element, _OPERATORS[predicate], target)
        waits = [number for number in bits[scalars:] if number != _NONE]
        if verb == _ALLOCATE:
            return self._made(self.rt.make(*(a for a in args if isinstance(a, Create))), made)
        if verb == _DUMMY:
            known = [a for a in args if isinstance(a, Arg)]
            task = self.rt.submit_dummy(args=known, deps=waits, allow_early_resolve=bool(early))
            return self._made(task, [])
        lanes = {name: number for name, number in zip(("aic", "aiv0", "aiv1"), kernels, strict=True) if number >= 0}
        task = self.rt.submit(
            **lanes, args=[*args, *bits[:scalars]], block_num=blocks, sync_start=bool(sync), deps=waits,
            predicate=condition, allow_early_resolve=bool(early),
        )  # fmt: skip
        return self._made(task, made)

    def _declared(self, args: list[object]) -> list[object]:
        """Note the directions of a submit, and change the one that is to be another."""
        where, change = replace(self._location(self._last), function=""), self.program.redeclared
        directions = tuple(a.direction if isinstance(a, Arg) else "" for a in args)
        self.program.submits.setdefault(where, directions)
        if change is None or (change.file, change.line) != (where.file, where.line) or change.position >= len(args):
            return args
        changed = args[change.position]
        assert isinstance(changed, Arg)
        return [*args[: change.position], replace(changed, direction=change.direction), *args[change.position + 1 :]]

    def _made(self, task: Task, elements: list[int]) -> bytes:
        """What a submit gives back: the task's number, and the addresses of what was made for it (of these types)."""
        for output, element in zip(task.outputs, elements, strict=False):
            if element in WIDE:
                self._memory.shown_as[output.buffer.number] = element
        addresses = [self.process.base + self._memory.address(made.buffer) for made in task.outputs]
        return b"".join(number.to_bytes(8, "little") for number in (task.task_id, 0, *addresses))

    # Source locations

    def _caller(self, site: int) -> Caller:
        return caller(*self._spot(site))

    def _spot(self, site: int) -> tuple[str, int, str]:
        sites: Mapping[int, tuple[str, int, str]] = self.process.sites
        return sites.get(site or self._last) or (str(self.program.source), 1, self.program.symbol)

    def _location(self, site: int) -> SourceLocation:
        return SourceLocation(*self._spot(site))

    def _call_at(self, pc: int) -> Caller:
        where = of_address(self.program.library, pc - 1) or self._location(self._last)
        return caller(where.file, where.line, where.function)


def _singles(tensor: Tensor) -> list[Tensor]:
    """The single elements of which a program's element is made."""
    return [tensor[number] for number in range(tensor.shape[0])] if tensor.shape else [tensor]


def _number(bits: bytes, dtype: str) -> float | int:
    value: float | int = np.frombuffer(bits[: ITEMSIZE[dtype]], DTYPES[dtype].numpy)[0].item()
    return value
