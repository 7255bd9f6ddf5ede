"""CUDA graphs of torch: captured work is kept in order, not done, and done at each replay.

During a capture, an operator that only changes tensors is not run. An operator that creates tensors is run, since the
program continues with its results; their content is undefined before a replay. Launches are kept with the bytes of
their parameters, as in CUDA.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import torch

from kernbench.ptx.doors.session import Session
from kernbench.ptx.doors.torch_door.storages import is_plain, storage_address

_ATEN = torch.ops.aten
# operators that return a tensor's content to the host, which would have to wait
_READS = {
    getattr(_ATEN, name)
    for name in ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2")
    if hasattr(_ATEN, name)
}
# they change a tensor's shape or storage, not its content
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
    """Alias information of an argument or result: the names it shares, and whether it is written."""

    before_set: set[str]
    is_write: bool


class Argument(Protocol):
    """An argument or a result in the schema of an operator."""

    name: str
    alias_info: Alias | None


class Schema(Protocol):
    """The schema of an operator."""

    arguments: Sequence[Argument]
    returns: Sequence[Argument]


class Recording:
    """The captured steps, and the tensors they need."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.kept: list[object] = []
        self.broken = False


class Graphs:
    """The captures of a session: one graph at a time."""

    def __init__(self, session: Session):
        self._session = session
        self.loss = session.loss
        self.now: Recording | None = None

    def begin(self) -> Recording:
        """Begin to capture the device's work."""
        if self.now is not None:
            raise RuntimeError("CUDA graphs cannot be nested: another capture is under way")
        self.now = Recording()
        self._session.captured = self.now.steps
        return self.now

    def end(self) -> None:
        """End the capture; the device's work is done immediately again."""
        self.now = self._session.captured = None

    def refuse(self) -> None:
        """The host would have to wait for the device: invalidate the capture, as on a GPU."""
        if self.now is not None:
            self.now.broken = True
        raise RuntimeError(_NOT_PERMITTED)

    def wait(self) -> None:
        """The host synchronises: there is nothing to wait for, but it is not permitted during a capture.

        If the GPU is lost, the program gets the error here.
        """
        self.loss.check()
        if self.now is not None:
            self.refuse()

    def operator(self, recording: Recording, func: object, args: Given, kwargs: Named, run: Run) -> object:
        """Capture an operator; `run(args, kwargs)` runs it and moves its results to the device."""
        packet = getattr(func, "overloadpacket", None)
        # higher-order operators have none
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
    """The tensors with storage in arguments or results of an operator, in order."""
    if isinstance(values, torch.Tensor):
        if is_plain(values):
            yield values
    elif isinstance(values, Mapping):
        yield from tensors_in(list(values.values()))
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)


def _again(run: Run, args: Given, kwargs: Named, result: object, known: set[int]) -> None:
    """Run an operator again, and copy its results into the tensors that the program has."""
    fresh = run(args, kwargs)
    with _NO_FUNCTION_MODE():
        for old, new in zip(tensors_in(result), tensors_in(fresh), strict=True):
            if storage_address(old) not in known:
                old.copy_(new)


def _is_written(argument: Argument) -> bool:
    return argument.name in _RUNNING or (argument.alias_info is not None and argument.alias_info.is_write)


def _arguments(schema: Schema, args: Given, kwargs: Named) -> Iterator[tuple[Argument, object]]:
    """The arguments of a call with their schema; omitted ones are skipped."""
    for position, argument in enumerate(schema.arguments):
        if position < len(args):
            yield argument, args[position]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]


def _changed(schema: Schema, args: Given, kwargs: Named) -> object:
    """The result of an operator that only changes its arguments: those that its schema names."""
    by_name = {
        frozenset(argument.alias_info.before_set): value
        for argument, value in _arguments(schema, args, kwargs)
        if argument.alias_info is not None
    }
    found = [by_name.get(frozenset(one.alias_info.before_set)) for one in schema.returns if one.alias_info is not None]
    return None if not found else found[0] if len(found) == 1 else tuple(found)


def _copied(schema: Schema, args: Given, kwargs: Named) -> tuple[list[object], dict[str, object]]:
    """Arguments for an operator that changes some and creates others: what it would change is copied."""

    def copy(argument: Argument, value: object) -> object:
        return value.clone() if isinstance(value, torch.Tensor) and _is_written(argument) else value

    copies = {argument.name: copy(argument, value) for argument, value in _arguments(schema, args, kwargs)}
    names = [argument.name for argument in schema.arguments][: len(args)]
    return [copies[name] for name in names], {name: copies[name] for name in kwargs}


class CapturedGraph:
    """A graph: captured once, replayed often."""

    # the captures of the session
    graphs: Graphs

    def __init__(self, keep_graph: bool = False):
        self._recording: Recording | None = None
        self._captured: Recording | None = None

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global", **options: object) -> None:
        """Begin to capture."""
        self._captured, self._recording = None, self.graphs.begin()

    def capture_end(self) -> None:
        """End the capture; it fails if the host asked for a value."""
        recording, self._recording = self._recording, None
        if recording is None:
            raise RuntimeError("capture_end was called before capture_begin")
        self.graphs.end()
        if recording.broken:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self._captured = recording

    def instantiate(self) -> None:
        """No operation: a captured graph is ready."""

    def replay(self) -> None:
        """Do the captured work."""
        if self._captured is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        with torch.no_grad():
            for step in self._captured.steps:
                step()

    def reset(self) -> None:
        """Drop the captured work."""
        self._captured = None

    def pool(self) -> tuple[int, int]:
        """A handle for its memory pool, which is its own."""
        return (0, id(self))

    def enable_debug_mode(self) -> None:
        """No operation."""

    def debug_dump(self, debug_path: str) -> None:
        """No operation."""


def graph_class(graphs: Graphs) -> type[CapturedGraph]:
    """`torch.cuda.CUDAGraph` of a session."""

    class CUDAGraph(CapturedGraph):
        """The class that programs instantiate."""

    CUDAGraph.graphs = graphs
    return CUDAGraph
