"""The door for torch: modes, names of `torch.cuda`, and properties of tensors."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernbench.ptx.doors.driver.local import torch_in_use
from kernbench.ptx.doors.gpus import gpu_of
from kernbench.ptx.doors.patching import Patches
from kernbench.ptx.doors.session import Session
from kernbench.ptx.doors.terms.running import running_test
from kernbench.ptx.doors.terms.sites import launch_site
from kernbench.ptx.doors.torch_door import dlpack, fakes, gradients, saving
from kernbench.ptx.doors.torch_door.cuda_names import (
    accelerator_names,
    cuda_names,
    device_module,
    graph_names,
    nvtx_names,
    own_functions,
    profiled_on_the_host,
)
from kernbench.ptx.doors.torch_door.definedness.following import Following
from kernbench.ptx.doors.torch_door.generators import generators
from kernbench.ptx.doors.torch_door.graphs import Graphs
from kernbench.ptx.doors.torch_door.modes import (
    DeviceDispatch,
    DeviceFunction,
    is_cuda_device,
    moved_to,
    registrations_for,
    transfer,
)
from kernbench.ptx.doors.torch_door.operators.autocast import Autocast
from kernbench.ptx.doors.torch_door.ordinals import first_argument, require_device
from kernbench.ptx.doors.torch_door.storages import Storages, is_plain, raw_device
from kernbench.ptx.doors.torch_door.streams import Event, Stream, current_stream
from kernbench.result.finding import location_dict

_DEVICE = torch.device("cuda", 0)
_ENGINE = "_engine_run_backward"
# methods in which the host reads a tensor without an operator, so that no mode sees it
_READS = ("tolist", "__repr__")


class TorchDoor:
    """The door for torch, for one session."""

    def __init__(self, session: Session):
        self._session = session
        self._storages = Storages(session.memory, session.device.machine.memory_bytes)
        self._registrations = registrations_for(self._storages)
        self._graphs = Graphs(session)
        self._following = Following(self._storages, session)
        self._patches = Patches()
        self._modes: list[Any] = []
        # whether torch moved fresh tensors by an operator before
        self._lifted = False

    def open(self) -> None:
        """Let tensors stand for CUDA tensors."""
        gpu = gpu_of(self._session.arch, self._session.options.sms)
        for name, value in own_functions(cuda_names(gpu, self._session.memory)).items():
            self._patches.set(torch.cuda, name, value)
        for name, value in own_functions(graph_names(self._graphs)).items():
            self._patches.set(torch.cuda, name, value)
            self._patches.set_if_there(torch.cuda.graphs, name, value)
        if hasattr(torch, "accelerator"):
            for name, value in own_functions(accelerator_names()).items():
                self._patches.set_if_there(torch.accelerator, name, value)
        if hasattr(torch, "get_device_module"):
            self._patches.set(torch, "get_device_module", device_module(torch.get_device_module))
        for name, value in nvtx_names().items():
            self._patches.set_if_there(torch.cuda.nvtx, name, value)
        self._patches.set(torch._C, "_cuda_getCurrentRawStream", lambda device=0: current_stream().cuda_stream)
        self._patches.set(torch._C, "_host_emptyCache", lambda: None)
        # files that Inductor has written make their tensors by this name, which a CPU build refuses
        self._patches.set_if_there(torch._C._dynamo.guards, "_empty_strided_cuda", _empty_strided)
        if torch.version.cuda is None:
            # a build with CUDA has its own version, which other packages compare with theirs
            self._patches.set(torch.version, "cuda", "12.8")
        self._tensors()
        self._others()
        self._lifted = _lift_on_the_host(True)
        operators = DeviceDispatch(self._storages, self._registrations, self._graphs, self._following)
        self._modes = [operators, DeviceFunction(self._storages)]
        for mode in self._modes:
            mode.__enter__()
        torch_in_use()

    def close(self) -> None:
        """Restore torch; tensors keep their content."""
        while self._modes:
            self._modes.pop().__exit__(None, None, None)
        _lift_on_the_host(self._lifted)
        self._patches.undo()

    def _tensors(self) -> None:
        """Properties and methods of tensors that depend on their device."""
        storages, tensor = self._storages, torch.Tensor

        def device(self: torch.Tensor) -> Any:
            inside = is_plain(self) and not fakes.BELOW.operator and storages.holds(self)
            return _DEVICE if inside else raw_device(self)

        def is_cuda(self: torch.Tensor) -> bool:
            return storages.holds(self)

        def is_cpu(self: torch.Tensor) -> bool:
            return raw_device(self).type == "cpu" and not is_cuda(self)

        def get_device(self: torch.Tensor) -> int:
            return 0 if is_cuda(self) else -1

        def cuda(self: torch.Tensor, *args: object, **kwargs: object) -> Any:
            require_device(first_argument(args, kwargs))
            return transfer(storages, self, True)

        def cpu(self: torch.Tensor, *args: object, **kwargs: object) -> Any:
            return transfer(storages, self, False)

        def to(self: torch.Tensor, *args: object, **kwargs: object) -> Any:
            return moved_to(storages, self, *args, **kwargs)

        for name, getter in (("device", device), ("is_cuda", is_cuda), ("is_cpu", is_cpu)):
            self._patches.set(tensor, name, property(getter))
        self._patches.set(tensor, "get_device", get_device)
        # for calls that no mode sees: those that torch makes inside another call
        self._patches.set(tensor, "cuda", cuda)
        self._patches.set(tensor, "cpu", cpu)
        self._patches.set(tensor, "to", to)
        # torch checks the stream before it calls a mode; freed memory is kept until work that uses it is done anyway
        self._patches.set(tensor, "record_stream", lambda tensor, stream: None)
        for name in _READS:
            self._patches.set(tensor, name, self._waiting(getattr(tensor, name)))

    def _waiting(self, read: Callable[..., object]) -> Callable[..., object]:
        """A method for which the host synchronises with the device."""
        graphs, following = self._graphs, self._following

        @functools.wraps(read)
        def waiting(tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
            if (graphs.now is not None or graphs.loss) and tensor.is_cuda:
                graphs.wait()
            # what a text shows it reads by `tolist`
            if read.__name__ == "tolist":
                following.read(tensor, "is taken to the host by tolist()")
            return read(tensor, *args, **kwargs)

        return waiting

    def _others(self) -> None:
        """Generators, compilation and threads."""
        self._patches.set(torch, "Generator", generators(torch.Generator))
        for name, ours in (("Stream", Stream), ("Event", Event)):
            if hasattr(torch, name):
                self._patches.set(torch, name, _either(getattr(torch, name), ours))
        self._patches.set(torch, "compile", _uncompiled)
        Autocast().install(self._patches)
        gradients.install(self._patches, self._storages)
        fakes.install(self._patches)
        saving.install(self._patches, self._storages)
        profiler = torch.autograd.profiler.profile
        self._patches.set(profiler, "__init__", profiled_on_the_host(profiler.__init__))
        dlpack.install(self._patches, self._session.memory)
        self._registrations.install(self._patches)
        self._patches.set(torch.testing, "assert_close", self._comparing(torch.testing.assert_close))
        self._patches.set(Event, "elapsed_time", self._timing(Event.elapsed_time))
        self._patches.set(Event, "record", self._recording(Event.record))
        storages, registrations, graphs = self._storages, self._registrations, self._graphs
        following = self._following
        start = threading.Thread.start
        for module in (torch.autograd, torch.autograd.graph):
            if hasattr(module, _ENGINE):
                self._patches.set(module, _ENGINE, self._reading(getattr(module, _ENGINE)))

        def start_with_modes(thread: Any) -> None:
            # `run` may be overridden by the thread's class, as in executors
            run = thread.run

            def run_with_modes() -> None:
                vars(thread).pop("run", None)
                # modes are per thread
                with DeviceDispatch(storages, registrations, graphs, following), DeviceFunction(storages):
                    run()

            thread.run = run_with_modes
            try:
                start(thread)
            except BaseException:
                vars(thread).pop("run", None)
                raise

        self._patches.set(threading.Thread, "start", start_with_modes)

    def _reading(self, engine: Callable[..., object]) -> Callable[..., object]:
        """The autograd engine: it runs functions of the program, whose calls the function mode has to see.

        `Tensor.backward` gets here from inside a call that a mode has seen; within such a call no mode is active.
        """
        storages = self._storages

        @functools.wraps(engine)
        def run(*args: object, **kwargs: object) -> object:
            with DeviceFunction(storages):
                return engine(*args, **kwargs)

        return run

    def _timing(self, original: Callable[[Event, Event], float]) -> Callable[[Event, Event], float]:
        """The time between two events: predicted for the launches between them if known, else that of this computer.

        In the second case the verdict says that the time is not a GPU's.
        """
        session = self._session

        @functools.wraps(original)
        def elapsed_time(start: Event, end: Event) -> float:
            predicted = session.time_since(start.launches, end.launches)
            return original(start, end) if predicted is None else 1e-9 * predicted

        return elapsed_time

    def _recording(self, original: Callable[..., None]) -> Callable[..., None]:
        """Record an event, with the number of launches before it."""
        session = self._session

        @functools.wraps(original)
        def record(event: Event, stream: object = None) -> None:
            original(event, stream)
            event.launches = len(session.launches)

        return record

    def _comparing(self, original: Any) -> Any:
        """`torch.testing.assert_close` that also records its outcome."""
        session, following = self._session, self._following

        @functools.wraps(original)
        def compare(*args: object, **kwargs: object) -> None:
            right = False
            for tensor in (*args, *kwargs.values()):
                if isinstance(tensor, torch.Tensor):
                    following.read(tensor, "is compared by torch.testing.assert_close")
            try:
                original(*args, **kwargs)
                right = True
            finally:
                about = {"right": right, "test": running_test(), "launches": len(session.launches)}
                session.note({"event": "compared", "site": location_dict(launch_site()), **about})

        return compare


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=_DEVICE)


def _lift_on_the_host(lifted: bool) -> bool:
    """Whether `torch.tensor` and its kin make tensors on the host and move them by an operator; returns what was so.

    Otherwise they move them below all modes. That matters inside functions of torch that are written in Python, for
    which no function mode is active: their devices are "cuda" there.
    """
    if not hasattr(torch._C, "_set_only_lift_cpu_tensors"):
        return lifted
    before: bool = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(lifted)
    return before


def _either(original: type, ours: type) -> type:
    """`torch.Stream` or `torch.Event`: ours for the device and by default; torch's own for other devices."""

    class _Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, (original, ours))

        def __call__(cls, device: object = None, *args: object, **kwargs: object) -> object:
            on_the_device = device is None or is_cuda_device(device)
            return ours() if on_the_device else original(device, *args, **kwargs)

    class Either(metaclass=_Kind):
        """A stream or an event."""

    return Either


def _uncompiled(model: Any = None, **options: Any) -> Any:
    """`torch.compile` that returns the function unchanged: its kernels would be generated for a real device."""
    return (lambda function: function) if model is None else model
