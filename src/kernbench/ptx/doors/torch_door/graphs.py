"""CUDA graphs of torch: what a program captures is kept in its order, not done, and done at each replay.

An operator that only changes tensors is left out while a graph is captured. One that makes tensors is run, since the
program goes on with what it makes; what they hold means nothing before a replay. Launches are kept with the bytes of
their parameters, as CUDA keeps them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import torch

from kernbench.ptx.doors.session import Session
from kernbench.ptx.doors.torch_door.storages import is_plain, storage_address

_ATEN = torch.ops.aten
# what the host wants to know of a tensor, for which it would have to wait
_READS = {
    getattr(_ATEN, name)
    for name in ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2")
    if hasattr(_ATEN, name)
}
# they change what a tensor is, not what it holds
_SHAPES = {getattr(_ATEN, name) for name in ("resize_", "set_", "resize_as_") if hasattr(_ATEN, name)}
# arguments that some operators change although their schema does not say so
_RUNNING = ("running_mean", "running_var")
_NOT_PERMITTED = "CUDA error: operation not permitted when stream is capturing"
_NO_FUNCTION_MODE = torch._C.DisableTorchFunction
Step = Callable[[], object]
# the arguments of a call, by position and by name
Given = Sequence[object]
Named = Mapping[str, object]
Run = Callable[[Given, Named], object]


class Alias(Protocol):
    """What torch says of a value that an operator shares with its caller: its names, and whether it is written."""

    before_set: set[str]
    is_write: bool


class Argument(Protocol):
    """An argument or a result in the schema of an operator."""

    name: str
    alias_info: Alias | None


class Schema(Protocol):
    """What torch says of an operator."""

    arguments: Sequence[Argument]
    returns: Sequence[Argument]


class Recording:
    """What was captured, and the tensors that it needs."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.kept: list[object] = []
        self.broken = False


class Graphs:
    """What a session captures: one graph at a time."""

    def __init__(self, session: Session):
        self._session = session
        self.loss = session.loss
        self.now: Recording | None = None

    def begin(self) -> Recording:
        """Keep from now on what the device would do."""
        if self.now is not None:
            raise RuntimeError("CUDA graphs cannot be nested: another capture is under way")
        self.now = Recording()
        self._session.captured = self.now.steps
        return self.now

    def end(self) -> None:
        """Do again what the device is to do."""
        self.now = self._session.captured = None

    def refuse(self) -> None:
        """The host would have to wait for the device: the capture is spoiled, as on a GPU."""
        if self.now is not None:
            self.now.broken = True
        raise RuntimeError(_NOT_PERMITTED)

    def wait(self) -> None:
        """The host waits for the device: there is nothing to wait for, and during a capture it may not.

        Where the GPU is lost, this is where a program hears of it.
        """
        self.loss.check()
        if self.now is not None:
            self.refuse()

    def operator(self, recording: Recording, func: object, args: Given, kwargs: Named, run: Run) -> object:
        """Capture an operator; `run(args, kwargs)` runs it and lets its results lie on the device."""
        packet = getattr(func, "overloadpacket", None)
        # operators that take functions have none
        schema: Schema | None = getattr(func, "_schema", None)
        if packet in _READS:
            self.refuse()
        if schema is None or packet in _SHAPES or not any(map(_is_written, schema.arguments)):
            result = run(args, kwargs)
        elif all(one.alias_info is not None for one in schema.returns):
            recording.steps.append(lambda: run(args, kwargs))
            return _changed(schema, args, kwargs)
        else:
            result = run(*_copied(schema, args, kwargs))
        recording.kept.append(result)
        with _NO_FUNCTION_MODE():
            known = {storage_address(tensor) for tensor in tensors_in((args, kwargs))}
            made = [tensor for tensor in tensors_in(result) if storage_address(tensor) not in known]
        if made and not getattr(packet, "__name__", "").startswith(("empty", "new_empty")):
            recording.steps.append(lambda: _again(run, args, kwargs, result, known))
        return result


def tensors_in(values: object) -> Iterator[torch.Tensor]:
    """The tensors with bytes in arguments or results of an operator, in their order."""
    if isinstance(values, torch.Tensor):
        if is_plain(values):
            yield values
    elif isinstance(values, Mapping):
        yield from tensors_in(list(values.values()))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)


def _again(run: Run, args: Given, kwargs: Named, result: object, known: set[int]) -> None:
    """Run an operator once more; the tensors that the program has hold what it makes."""
    fresh = run(args, kwargs)
    with _NO_FUNCTION_MODE():
        for old, new in zip(tensors_in(result), tensors_in(fresh), strict=True):
            if storage_address(old) not in known:
                old.copy_(new)


def _is_written(argument: Argument) -> bool:
    return argument.name in _RUNNING or (argument.alias_info is not None and argument.alias_info.is_write)


def _arguments(schema: Schema, args: Given, kwargs: Named) -> Iterator[tuple[Argument, object]]:
    """The arguments of a call with what its schema says of them; those that have their default are left out."""
    for position, argument in enumerate(schema.arguments):
        if position < len(args):
            yield argument, args[position]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _changed(schema: Schema, args: Given, kwargs: Named) -> object:
    """What an operator returns that only changes its arguments: those that its schema names."""
    by_name = {
        frozenset(argument.alias_info.before_set): value
        for argument, value in _arguments(schema, args, kwargs)
        if argument.alias_info is not None
    }
    found = [by_name.get(frozenset(one.alias_info.before_set)) for one in schema.returns if one.alias_info is not None]
    return None if not found else found[0] if len(found) == 1 else tuple(found)


def _copied(schema: Schema, args: Given, kwargs: Named) -> tuple[list[object], dict[str, object]]:
    """The arguments of an operator that changes some and makes others: copies of what it would change."""

    def copy(argument: Argument, value: object) -> object:
        return value.clone() if isinstance(value, torch.Tensor) and _is_written(argument) else value

    copies = {argument.name: copy(argument, value) for argument, value in _arguments(schema, args, kwargs)}
    names = [argument.name for argument in schema.arguments][: len(args)]
    return [copies[name] for name in names], {name: copies[name] for name in kwargs}


class CapturedGraph:
    """A graph: captured once, replayed often."""

    # of the session
    graphs: Graphs

    def __init__(self, keep_graph: bool = False):
        self._recording: Recording | None = None
        self._captured: Recording | None = None

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global", **options: object) -> None:
        """Begin to capture."""
        self._captured, self._recording = None, self.graphs.begin()

    def capture_end(self) -> None:
        """End the capture; one in which the host asked for a value is no graph."""
        recording, self._recording = self._recording, None
        if recording is None:
            raise RuntimeError("capture_end was called before capture_begin")
        self.graphs.end()
        if recording.broken:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self._captured = recording

    def instantiate(self) -> None:
        """Nothing: a graph is ready when it is captured."""

    def replay(self) -> None:
        """Do what was captured."""
        if self._captured is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        with torch.no_grad():
            for step in self._captured.steps:
                step()

    def reset(self) -> None:
        """Forget what was captured."""
        self._captured = None

    def pool(self) -> tuple[int, int]:
        """What stands for its memory, which is its own."""
        return (0, id(self))

    def enable_debug_mode(self) -> None:
        """Nothing to see."""

    def debug_dump(self, debug_path: str) -> None:
        """Nothing to write."""


def graph_class(graphs: Graphs) -> type[CapturedGraph]:
    """`torch.cuda.CUDAGraph` of a session."""

    class CUDAGraph(CapturedGraph):
        """What programs make."""

    CUDAGraph.graphs = graphs
    return CUDAGraph
