"""Answers requests of the driver library: memory, modules and launches of one process, on one session."""

import os
import sys
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from threading import RLock

from kernbench.common.errors import KernbenchError, MisuseError, OtherHardwareError
from kernbench.ptx.doors.device import LaunchRequest
from kernbench.ptx.doors.driver import kernels, maps, properties
from kernbench.ptx.doors.driver.allocations import Allocations
from kernbench.ptx.doors.driver.images.device_runtime import with_device_runtime
from kernbench.ptx.doors.driver.images.errors import ImageError
from kernbench.ptx.doors.driver.images.images import NoPtxError, texts_of
from kernbench.ptx.doors.driver.images.kept import FOLDER as KEPT
from kernbench.ptx.doors.driver.images.linking import link_texts
from kernbench.ptx.doors.driver.images.sources import at_own_lines
from kernbench.ptx.doors.driver.refusals import Caller, Refusals
from kernbench.ptx.doors.driver.requests import Answer, FaultyCallError, RefusedError, Request, Result
from kernbench.ptx.doors.forecast import LaunchRefusedError
from kernbench.ptx.doors.gpus import gpu_of
from kernbench.ptx.doors.session import Launch, LoadedText, Notes, Session, UnsafeLaunchError
from kernbench.ptx.doors.terms.running import running_test
from kernbench.ptx.doors.terms.sites import launch_site, own_files
from kernbench.ptx.doors.terms.unwritten import Gap
from kernbench.ptx.doors.terms.words import CUDA, words_of
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Kernel

_STOPS = {"timeout": Result.LAUNCH_TIMEOUT, "assert": Result.ASSERT, "trap": Result.LAUNCH_FAILED}
# exception -> the driver's error code; the first match counts
_CODES: tuple[tuple[type[BaseException], Result], ...] = (
    (NoPtxError, Result.NO_BINARY_FOR_GPU),
    (ImageError, Result.INVALID_IMAGE),
    (OtherHardwareError, Result.NO_BINARY_FOR_GPU),
    (LaunchRefusedError, Result.LAUNCH_TIMEOUT),
    (UnsafeLaunchError, Result.LAUNCH_FAILED),
    (PtxError, Result.INVALID_PTX),
    (MisuseError, Result.INVALID_VALUE),
    (KernbenchError, Result.NOT_SUPPORTED),
)
# requests that are still answered when there is no GPU any more
_GIVING_BACK = (Request.FREE, Request.UNLOAD, Request.UNREGISTER, Request.RANGE, Request.RESET)
Words = Sequence[int]


class DriverService:
    """The driver state of one process; `shared` says that the program runs in another process."""

    def __init__(self, session: Session, *, shared: bool = False):
        self.session = session
        # in another process, the program itself prints the output of kernels
        session.prints = not shared
        capacity = session.device.machine.memory_bytes
        self.memory = Allocations(session.memory, self._used, capacity=capacity, shared=shared)
        self._shared = shared
        self._gpu = gpu_of(session.arch, session.options.sms)
        self._modules: dict[int, LoadedText] = {}
        self._loaded: dict[str, int] = {}
        self._kernels: dict[int, Kernel] = {}
        self._refusals = Refusals()
        # copies of unwritten memory that are reported
        self._reported: set[Hashable] = set()
        # if not empty, why only requests that free resources are answered
        self._closed = ""
        self._lock = RLock()
        self._handlers: dict[Request, Callable[[Words, bytes], Answer]] = {
            Request.HELLO: self._hello,
            Request.LOAD: self._load,
            Request.UNLOAD: self._unload,
            Request.KERNEL: self._kernel,
            Request.KERNEL_NAMES: self._kernel_names,
            Request.VARIABLE: self._variable,
            Request.LAUNCH: self._launch,
            Request.OCCUPANCY: self._occupancy,
            Request.TENSOR_MAP: lambda words, data: Answer(data=maps.encode_map(words)),
            Request.LIMIT: lambda words, data: Answer(),
            Request.USAGE: self._usage,
            Request.REFUSED: self._refused,
            Request.TIMED: self._timed,
            Request.ERROR_SEEN: lambda words, data: self._refusals.seen(self.session, words),
            Request.CALLER: lambda words, data: self._refusals.called(self.session, words, data),
            **self.memory.handlers,
            Request.RESET: self._reset,
        }

    def use(self, session: Session | None) -> None:
        """Switch to another session: modules are loaded there, with initial variables. None: no session."""
        with self._lock:
            self._closed = ""
            if session is None:
                self._closed = "no emulated GPU is in use any more: open one with kernbench.ptx.emulated()"
            elif session is not self.session:
                self._change(session)

    def _change(self, session: Session) -> None:
        if gpu_of(session.arch, session.options.sms) != self._gpu:
            self._closed = (
                f"this process has used CUDA's driver on {self.session.arch} with {self._gpu.sms} multiprocessors, and "
                f"what it read of that GPU stays: use another process for {session.arch}"
            )
            return
        self.session = session
        for number, loaded in self._modules.items():
            self._modules[number] = LoadedText(session, loaded.module)

    def answer(self, request: int, words: Words, data: bytes) -> Answer:
        """Answer a request; never raises."""
        try:
            with self._lock:
                if self._closed and request not in _GIVING_BACK:
                    raise RefusedError(Result.DEINITIALIZED, self._closed)
                return self._handlers[Request(request)](words, data)
        except RefusedError as problem:
            number: tuple[int, ...] = ()
            # in this process, front ends raise it as an exception: what a program catches is intended
            if self._shared and isinstance(problem, FaultyCallError):
                number = (self._refusals.fault(self.session, problem),)
            return Answer(problem.result, number, str(problem).encode())
        except KernbenchError as problem:
            code = next(code for kind, code in _CODES if isinstance(problem, kind))
            return Answer(code, data=str(problem).encode())
        except Exception as problem:
            traceback.print_exc(file=sys.stderr)
            text = f"kernbench failed at {Request(request).name}: {type(problem).__name__}: {problem}"
            return Answer(Result.UNKNOWN, data=text.encode())

    def _hello(self, words: Words, data: bytes) -> Answer:
        values = properties.attributes(self._gpu)
        values[0] = self.session.device.machine.memory_bytes
        return Answer(words=tuple(values), data=self._gpu.name.encode())

    def _timed(self, words: Words, data: bytes) -> Answer:
        """Picoseconds between two events, given the number of launches before each; 0 if unknown."""
        return Answer(words=(self.session.time_since(*words) or 0,))

    def _usage(self, words: Words, data: bytes) -> Answer:
        total = self.session.device.machine.memory_bytes
        return Answer(words=(max(0, total - self.memory.in_use), total))

    def _load(self, words: Words, data: bytes) -> Answer:
        # the data is the name of the file that contains the image, then the image
        folder, file = os.environ.get(KEPT), data[: words[0]].decode(errors="replace")
        image, kept = data[words[0] :], Path(folder) if folder else None
        # files of another process are unknown
        files = [] if self._shared else own_files()
        texts = [at_own_lines(text, files) for text in texts_of(image, self.session.arch, kept, in_file=file)]
        text = link_texts(with_device_runtime(texts))
        number = len(self._modules) + 1
        self._modules[number] = self._module(text)
        return Answer(words=(number,))

    def _used(self, gap: Gap) -> tuple[int, ...]:
        """The host gets a copy of memory that nobody wrote: report it; the answer has the number of the call."""
        session, where = self.session, None if self._shared else launch_site()
        uses = () if gap.held is None else session.history.uses(gap.held)
        key = (gap.name, gap.made, where, running_test(), None if where else (gap.count, gap.first, len(uses)))
        if key in self._reported or not session.judges:
            return ()
        self._reported.add(key)
        found = replace(gap, uses=uses).finding("is copied to the host", where, CUDA.made, "bytes")
        if self._shared:
            return (self._refusals.used(session, found),)
        session.report(found)
        return ()

    def _module(self, text: str) -> LoadedText:
        """Load a module: if it has variables and was loaded before, it gets its own copy of them."""
        earlier = self._loaded.get(text)
        self._loaded[text] = 1
        first = self.session.load(text)
        if earlier is None or not any(v.space in ("global", "const") for v in first.module.variables.values()):
            return first
        return self.session.load_again(text)

    def _reset(self, words: Words, data: bytes) -> Answer:
        """Destroy the context: modules are loaded again when used, with initial variables."""
        for loaded in self._modules.values():
            self.session.device.forget(loaded.module)
        return self.memory.handlers[Request.RESET](words, data)

    def _found(self, number: int) -> LoadedText:
        if number not in self._modules:
            raise RefusedError(Result.INVALID_HANDLE)
        return self._modules[number]

    def _unload(self, words: Words, data: bytes) -> Answer:
        self._found(words[0])
        del self._modules[words[0]]
        return Answer()

    def _kernel(self, words: Words, data: bytes) -> Answer:
        module, name = self._found(words[0]), data.decode(errors="replace")
        if name not in module.kernels:
            raise RefusedError(Result.NOT_FOUND)
        kernel = module.kernels[name]
        number = len(self._kernels) + 1
        self._kernels[number] = kernel
        shared = self.session.device.declared_shared(kernel)
        about = kernels.kernel_attributes(kernel, shared, self._gpu.capability)
        return Answer(words=(number, len(kernel.params), *_unsigned(about)), data=kernels.parameter_layout(kernel))

    def _kernel_names(self, words: Words, data: bytes) -> Answer:
        names = list(self._found(words[0]).kernels)
        return Answer(words=(len(names),), data=b"".join(name.encode() + b"\0" for name in names))

    def _variable(self, words: Words, data: bytes) -> Answer:
        variables = self._found(words[0]).variables()
        found = variables.get(data.decode(errors="replace"))
        if found is None:
            raise RefusedError(Result.NOT_FOUND)
        return Answer(words=found)

    def _launch(self, words: Words, data: bytes) -> Answer:
        number, grid, block, cluster = words[0], words[1:4], words[4:7], words[7:10]
        shared, cooperative, thread, by_driver = words[10:14]
        kernel = self._kernels[number]
        parameters = kernels.split_parameters(kernel, data)
        names = kernels.pointed_to(kernel, parameters)
        given = tuple(cluster) if all(cluster) else None
        request = LaunchRequest(kernel, tuple(grid), tuple(block), parameters, shared, given, names)
        result, why = self._unfit(request, bool(cooperative))
        if why:
            caller = Caller(result, thread, self._raises(by_driver))
            said = self._refusals.decline(
                self.session, caller, kernel.name, why, grid=tuple(grid), block=tuple(block),
                identity=self.session.identity(kernel),
            )  # fmt: skip
            raise RefusedError(result, said)
        launch = self.session.launch(
            kernel,
            request.grid,
            request.block,
            parameters,
            shared_bytes=shared,
            cluster=given,
            cooperative=bool(cooperative),
            # the line in another process is unknown
            site=None if self._shared else launch_site(),
            notes=Notes(names, words=words_of(kernel.name)),
        )
        return _launched(launch, shared=self._shared, keep_going=self.session.options.keep_going)

    def _refused(self, words: Words, data: bytes) -> Answer:
        """The library itself has refused a launch; `data` has the kernel's name and the reason."""
        name, _, why = (part.decode(errors="replace") for part in data.partition(b"\0"))
        caller = Caller(words[0], words[1], self._raises(words[2]))
        grid, block = tuple(words[3:6]), tuple(words[6:9])
        said = self._refusals.decline(self.session, caller, name, why, grid=grid, block=block)
        return Answer(data=said.encode())

    def _resident(self, kernel: Kernel, threads: int, shared: int) -> int:
        """Resident blocks per multiprocessor."""
        declared = self.session.device.declared_shared(kernel)
        machine = self.session.device.machine
        if threads > 1024 or declared + shared > machine.shared_per_block:
            return 0
        return machine.resident(threads, declared + shared) // machine.sms

    def _unfit(self, request: LaunchRequest, cooperative: bool) -> tuple[Result, str]:
        """Why no GPU of this kind would start a launch, with the driver's error code; empty if it would."""
        try:
            grid, block, _ = request.shape
        except MisuseError as problem:
            return Result.INVALID_VALUE, str(problem)
        room = self._resident(request.kernel, prod(block), request.shared_bytes) * self.session.device.machine.sms
        if not cooperative or prod(grid) <= room:
            return Result.SUCCESS, ""
        resident = f"{self.session.arch} has {room} of this size resident at once"
        return Result.COOPERATIVE_LAUNCH_TOO_LARGE, f"a cooperative launch of {prod(grid)} blocks: {resident}"

    def _raises(self, by_driver: int) -> bool:
        """Whether an error is raised in the program: Python front ends do so if they call the driver themselves."""
        return bool(by_driver) and not self._shared

    def _occupancy(self, words: Words, data: bytes) -> Answer:
        return Answer(words=(self._resident(self._kernels[words[0]], words[1], words[2]),))


def _unsigned(values: Sequence[int]) -> list[int]:
    return [value & 0xFFFF_FFFF_FFFF_FFFF for value in values]


def _launched(launch: Launch, *, shared: bool, keep_going: bool) -> Answer:
    """The launch's number in the session, the bytes of its printf output, and the sticky error, if any."""
    run = launch.run
    if run is None:
        return Answer(words=(launch.number, 0, 0))
    text = "".join(launch.printed).encode(errors="replace") if shared else b""
    stop = "" if keep_going else kernels.kind_of_stop(run)
    return Answer(words=(launch.number, len(text), int(_STOPS[stop]) if stop else 0), data=text)
