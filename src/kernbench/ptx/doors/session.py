"""A session: a program's modules and launches on an emulated GPU, checked and recorded."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakMethod

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.ptx.doors.causes import HostCall, Judged, describe, summary_of
from kernbench.ptx.doors.device import DoorDevice, LaunchRequest, RunSetting
from kernbench.ptx.doors.forecast import Forecast, LaunchRefusedError, clock, cpu_clock
from kernbench.ptx.doors.gpus import whole_architecture
from kernbench.ptx.doors.identity import KernelIdentity, identity_of
from kernbench.ptx.doors.lost import Loss
from kernbench.ptx.doors.memory import DeviceMemory, process_memory
from kernbench.ptx.doors.options import CHECKED, LEFT_OUT, REFUSED, UNCHECKED, Options
from kernbench.ptx.doors.predicting import LaunchTimes, Predictions, gpu_that_runs
from kernbench.ptx.doors.records import HOST, TIME_SUFFIX, Record, RecordWriter
from kernbench.ptx.doors.terms.blame import Compiler, blamed
from kernbench.ptx.doors.terms.own_lines import located
from kernbench.ptx.doors.terms.running import running_test
from kernbench.ptx.doors.terms.unwritten import History, LaunchName
from kernbench.ptx.doors.terms.words import Words
from kernbench.ptx.emulator.checks.findings.advice import MADE
from kernbench.ptx.launching.device_base import kernel_of
from kernbench.ptx.names.demangling import title as title_of
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Kernel, Module
from kernbench.ptx.text.parser import parse
from kernbench.result.finding import Finding, SourceLocation, location_dict
from kernbench.result.following import STREAM, in_a_row
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget

if TYPE_CHECKING:
    from kernbench.ptx.comparing.sessions import LaunchComparison
    from kernbench.ptx.machine.model import Gpu

_STEPS = 2_000_000_000


class UnsafeLaunchError(KernbenchError):
    """A launch had findings, and the options ask to stop the program there; `launch` is its record."""

    def __init__(self, launch: "Launch | HostCall"):
        found = "; ".join(str(finding) for finding in launch.findings[:3]) or str(launch.status)
        super().__init__(f"{launch.title}: {found}")
        self.launch = launch


class LaunchConfigurationError(MisuseError, RuntimeError):
    """A grid, block or cluster that no GPU accepts, or not for this kernel; a `RuntimeError`, as in front ends."""


@dataclass(frozen=True)
class Notes:
    """What a front end knows about a launch.

    Names of arrays by address, details for reports, its terms for hints, the kernel if it knows its source, and the
    compiler if programs cannot cause all that may be wrong with its kernels.
    """

    names: Mapping[int, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    words: Words | None = None
    identity: KernelIdentity | None = None
    compiler: Compiler | None = None


@dataclass(frozen=True)
class Launch:
    """One launch of a session: what was launched where, how it was treated, and its result.

    - `number` counts the launches of the session, from 1. `site` is the line of the program that launched.
    - `identity` says which of the kernels of that title it is.
    - `run` is None for a launch that was left out or refused. `accepted` says that a GPU refuses the launch as well,
      and the error was reported to the program.
    - `details` come from the front end: a configuration, a signature.
    - `predicted` are the metrics of its time on a GPU, if requested, or why it has none.
    - `agreement` is the verdict on the results of another device (`comparing.verdicts.Verdict`), if launches are
      compared.
    - `seconds` exclude the compilation of the emulator's loops; `cpu_seconds`, of this process and its workers, include
      it.
    """

    number: int
    kernel: str
    title: str
    treatment: str
    site: SourceLocation | None = None
    run: Run | None = None
    seconds: float = 0.0
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    predicted: Mapping[str, object] = field(default_factory=dict)
    agreement: Mapping[str, object] | None = None
    cpu_seconds: float = 0.0
    accepted: bool = False
    identity: KernelIdentity | None = None

    @property
    def findings(self) -> list[Finding]:
        """Its faults."""
        return [] if self.run is None else self.run.findings

    @property
    def formal(self) -> list[Finding]:
        """Findings that break the letter of the rules, but change no result on existing hardware."""
        return [] if self.run is None else self.run.formal

    @property
    def status(self) -> str:
        """How it ended."""
        if self.treatment == REFUSED:
            return "refused"
        return (self.error and "failed") or ("not run" if self.run is None else str(self.run.status))

    @property
    def whole(self) -> bool:
        """Whether it ran to its end; otherwise what it would have written is unknown."""
        return not self.error and self.run is not None and self.run.status is Status.FINISHED

    @property
    def printed(self) -> list[str]:
        """The output of `printf`."""
        return [] if self.run is None else list(self.run.views.get("printf", []))

    @property
    def ok(self) -> bool:
        """Whether it ran to its end without findings."""
        finished = self.run is None or self.run.status is Status.FINISHED
        return finished and not self.findings and (not self.error or self.accepted)

    @property
    def heading(self) -> str:
        """Which one it is, with its kernel and the line that launched."""
        return f"{self.title} ({self.short}{f' launched at {self.site}' if self.site else ''})"

    @property
    def short(self) -> str:
        """Which one it is, by its number."""
        return f"launch {self.number}"

    def to_dict(self) -> Record:
        """Plain data for JSON."""
        run = self.run
        return {
            "event": "launch",
            "number": self.number,
            "kernel": self.kernel,
            **(self.identity or KernelIdentity(self.title)).to_dict(),
            "treatment": self.treatment,
            "status": self.status,
            "site": location_dict(self.site),
            "grid": list(self.grid),
            "block": list(self.block),
            "seconds": round(self.seconds, 6),
            "cpu_seconds": round(self.cpu_seconds, 6),
            "thread_instructions": 0 if run is None else run.metrics.get("thread_instructions", 0),
            "findings": [finding.to_dict() for finding in self.findings],
            "formal": [finding.to_dict() for finding in self.formal],
            "checked": [] if run is None else list(run.checked),
            "printf": self.printed,
            "details": dict(self.details),
            "error": self.error,
            "predicted": dict(self.predicted),
            **({"accepted": True} if self.accepted else {}),
            **({} if self.agreement is None else {"agreement": dict(self.agreement)}),
        }


class LoadedText:
    """A module of a session: its kernels and its variables, which keep their addresses and values."""

    def __init__(self, session: "Session", module: Module):
        self._session = session
        self.module = module
        self.kernels = module.kernels

    def kernel(self, name: str) -> Kernel:
        """A kernel by its name in the PTX text."""
        if name not in self.kernels:
            raise MisuseError(f"the module has no kernel {name!r}; it has: {', '.join(self.kernels) or 'none'}")
        return self.kernels[name]

    def variables(self) -> dict[str, tuple[int, int]]:
        """Address and bytes of each global and constant variable."""
        found = self._session.device.variables(self.module)
        return {name: (allocation.address, allocation.nbytes) for name, allocation in found.items()}

    def variable(self, name: str) -> tuple[int, int]:
        """Address and bytes of a variable; `Session.memory.view` reads and writes it."""
        found = self.variables()
        if name not in found:
            raise MisuseError(f"the module has no variable {name!r}; it has: {', '.join(found) or 'none'}")
        return found[name]


class Session:
    """An emulated GPU that a program's launches run on; `launches` and `findings` are those so far."""

    def __init__(self, options: Options | None = None, *, folder: Path | None = None, keep_runs: bool = True):
        self.options = options or Options()
        self.arch = whole_architecture(self.options.arch)
        self.memory: DeviceMemory = process_memory()
        self.device = DoorDevice(self.arch, self.memory)
        self.launches: list[Launch] = []
        # calls of the host with a finding
        self.calls: list[HostCall] = []
        self.history = History(self.memory)
        # whether the GPU is lost: front ends without a driver of their own ask before each call
        self.loss = Loss(self.options.keep_going)
        self._writer = None if folder is None else RecordWriter(folder)
        self._keep_runs = keep_runs
        self._texts: dict[str, LoadedText] = {}
        self._counts: Counter[KernelIdentity] = Counter()
        # kernels whose source no front end says, by their number, which stays theirs as long as they are kept here
        self._identities: dict[tuple[int, str], tuple[Kernel, KernelIdentity]] = {}
        # launches that would take too long, by shape and arguments, with the message for the first
        self._too_long: dict[Hashable, str] = {}
        # whether output of kernels goes to this process's stdout
        self.prints = True
        # while a graph is captured: the steps of its replay, in order; launches are not run until then
        self.captured: list[Callable[[], object]] | None = None
        # while launches are recorded and timed without checks: the predictions
        self._predictions: Predictions | None = None
        gpu = gpu_that_runs(self.arch, self.options.gpu) if self.options.time else None
        self._times = None if gpu is None else LaunchTimes(gpu, self.options.sensitivity)
        self._comparison = _comparison(self.device, self.options) if self.options.compare else None
        self._lock = RLock()
        forget = WeakMethod(self._after_fork)
        os.register_at_fork(after_in_child=lambda: (found := forget()) and found())

    @property
    def exact(self) -> bool:
        """Whether launches round as ptxas's code does: if requested, or if results are compared."""
        return self.options.exact or bool(self.options.compare)

    @property
    def findings(self) -> list[Finding]:
        """All findings of all launches, in order, and those of calls of the host."""
        return [finding for one in self._judged() for finding in one.findings]

    def _judged(self) -> list[Judged]:
        return [*self.launches, *self.calls]

    def assert_safe(self) -> None:
        """Raise `AssertionError` with all findings, if there are any or a launch did not end."""
        bad = [one for one in self._judged() if not one.ok]
        if bad:
            raise AssertionError(f"{summary_of(bad)}\n{describe(bad)}")

    def _after_fork(self) -> None:
        """Reset locks in a forked child: the parent's threads, which may hold them, do not exist there."""
        self._lock = RLock()
        self.memory.lock = RLock()

    @contextmanager
    def predicting(self, gpu: "Gpu") -> Iterator[Predictions]:
        """Inside the block, launches run without checks, and their times on a GPU are predicted."""
        before, self._predictions = self._predictions, Predictions(gpu)
        try:
            yield self._predictions
        finally:
            self._predictions = before

    def time_since(self, first: int, end: int | None = None) -> int | None:
        """The time of launches in a row for a program that asks: from the one after `first` earlier ones to `end`.

        It is predicted, in picoseconds; None if there are no launches, or one has no time. The verdict says which it
        was.
        """
        known: list[Any] = [launch.predicted for launch in self.launches[first:end]]
        predicted = bool(known) and all("following_ps" in one for one in known)
        self.note({"event": "timed", "predicted": predicted})
        if not predicted:
            return None
        return in_a_row([one["time_ps"] for one in known], [one["following_ps"] for one in known])[STREAM]

    def note(self, record: Record) -> None:
        """Write a record of something other than a launch."""
        if self._writer is not None:
            self._writer.write(record)

    @property
    def judges(self) -> bool:
        """Whether anything is checked now."""
        return self.options.checks and self._predictions is None

    def report(self, finding: Finding, test: str | None = None) -> HostCall:
        """Keep and record a finding of a call of the host, outside of any launch, in the running test or another."""
        with self._lock:
            call = HostCall(len(self.calls) + 1, finding)
            self.calls.append(call)
            about = {"title": HOST, "number": call.number, "test": running_test() if test is None else test}
            self.note({"event": "host", **about, "findings": [finding.to_dict()]})
        return call

    def load(self, text: str) -> LoadedText:
        """The module of a PTX text; the same text gives the same module with its variables."""
        with self._lock:
            known = self._texts.get(text)
            if known is None:
                known = self._texts[text] = LoadedText(self, parse(text))
            return known

    def load_again(self, text: str) -> LoadedText:
        """Load another module from a text, with variables of its own that have their initial values."""
        return LoadedText(self, parse(text))

    def launch(
        self,
        kernel: Any,
        grid: Any,
        block: Any,
        parameters: Sequence[bytes],
        *,
        shared_bytes: int = 0,
        cluster: Any = None,
        cooperative: bool = False,
        title: str = "",
        site: SourceLocation | None = None,
        notes: "Notes | None" = None,
    ) -> Launch:
        """Run a kernel to its end, as the options say; findings are kept, recorded, and raised if requested.

        Every launch may synchronise its whole grid, so `cooperative` has no effect. `title` is the kernel's name in
        reports, `site` the line of the program that launches. While a graph is captured, the launch is kept for its
        replays, and the returned `Launch` says that it was not run.
        """
        kernel = kernel_of(kernel)
        notes = notes or Notes()
        request = LaunchRequest(kernel, grid, block, parameters, shared_bytes, cluster, notes.names)
        identity = notes.identity or self.identity(kernel, title)
        if self.captured is not None:
            self.captured.append(lambda: self._perform(request, identity, site, notes))
            return Launch(0, kernel.name, identity.title, LEFT_OUT, site, identity=identity)
        return self._perform(request, identity, site, notes)

    def identity(self, kernel: Kernel, title: str = "") -> KernelIdentity:
        """Which kernel this is, by its PTX."""
        title = title or title_of(kernel.name)
        known = self._identities.get((id(kernel), title))
        if known is None:
            known = self._identities[id(kernel), title] = (kernel, identity_of(kernel, title))
        return known[1]

    def _perform(
        self, request: LaunchRequest, identity: KernelIdentity, site: SourceLocation | None, notes: Notes
    ) -> Launch:
        with self._lock, self.memory.lock:
            try:
                _ = request.shape
            except MisuseError as problem:
                sizes = {name: _sizes(getattr(request, name)) for name in ("grid", "block")}
                # the error is raised in the program that launches
                self.refuse(request.kernel.name, str(problem), identity=identity, site=site, accepted=True, **sizes)
                raise LaunchConfigurationError(f"CUDA error: invalid configuration argument: {problem}") from None
            launch = self._run(request, identity, site, notes)
        if self.options.stop_at_finding and not launch.ok and launch.treatment == CHECKED:
            raise UnsafeLaunchError(launch)
        return launch

    def refuse(
        self,
        kernel: str,
        reason: str,
        *,
        grid: tuple[int, ...] = (),
        block: tuple[int, ...] = (),
        identity: KernelIdentity | None = None,
        site: SourceLocation | None = None,
        accepted: bool = False,
    ) -> Launch:
        """Record a launch that is not run, and why: the program gets an error, which it may ignore.

        `accepted` says that no GPU would run it and that the error is raised in the program. A launch of a skipped
        kernel is left out, whatever is wrong with it.
        """
        with self._lock:
            identity = identity or KernelIdentity(title_of(kernel))
            number = len(self.launches) + 1
            skipped = self.options.skips(identity)
            treatment = LEFT_OUT if skipped else REFUSED
            launch = Launch(number, kernel, identity.title, treatment, site, None, 0.0, grid, block, identity=identity)
            launch = replace(launch, error="" if skipped else reason, accepted=accepted and not skipped)
            self._keep(launch)
        return launch

    def accept_refusal(self, launch: Launch) -> None:
        """The program has asked for the error of a launch that no GPU would run."""
        with self._lock:
            if launch.number <= len(self.launches) and self.launches[launch.number - 1] is launch:
                self.launches[launch.number - 1] = replace(launch, accepted=True)
                self.note({"event": "refusal seen", "number": launch.number, "title": launch.title})

    def _run(
        self, request: LaunchRequest, identity: KernelIdentity, site: SourceLocation | None, notes: Notes
    ) -> Launch:
        kernel, title = request.kernel.name, identity.title
        treatment = self.options.treatment(identity, self._counts[identity], prod(request.shape[0]))
        if self._predictions is None:
            self._counts[identity] += 1
        elif treatment == CHECKED:
            treatment = UNCHECKED
        number = len(self.launches) + 1
        grid, block, _ = request.shape
        began, before_work = clock(), cpu_clock()
        about = {"kernel": kernel, "number": number, "site": location_dict(site), "grid": list(grid)}
        about |= identity.to_dict() | {"test": running_test()}
        run, error, agreement = None, "", None
        predicted: Mapping[str, object] = {}
        alike = None if self._times is None else self._alike(request)
        try:
            if treatment != LEFT_OUT:
                forecast = self._forecast(request, title, treatment)
                forecast.before(self._instructions(request, title))
                self.note({"event": "begin", **about})
                before = None if self._comparison is None else self._comparison.before()
                used = self.history.before(request.parameters)
                run = self._emulate(request, self._setting(treatment, forecast, alike), notes)
                self.history.after(used, LaunchName(number, title, site, grid))
                if self._comparison is not None and before is not None:
                    agreement = self._comparison.after(request, run, before).to_dict()
                if self._predictions is not None:
                    self._predictions.add(run)
                elif self._times is not None:
                    predicted, run = self._predicted(self._times, (alike, identity), number, run)
        except KernbenchError as problem:
            error = str(problem)
            raise
        except BaseException as problem:
            # Ctrl-C, or an exception of the program's own alarm
            error = f"interrupted by {type(problem).__name__}: {problem}".rstrip(": ")
            raise
        finally:
            if run is not None or error or treatment == LEFT_OUT:
                # without the compilation of the emulator's loops
                seconds = clock() - began
                kept = self._slim(number, run)
                worked = cpu_clock() - before_work
                about_it = (seconds, grid, block, notes.details, error, predicted, agreement, worked)
                launch = Launch(number, kernel, title, treatment, site, kept, *about_it, identity=identity)
                self._keep(launch)
                self._leave(launch, request)
        return launch

    def _emulate(self, request: LaunchRequest, setting: RunSetting, notes: Notes) -> Run:
        """Run a launch; hints use the terms of its front end, if known, and findings say whose fault they are."""
        words = notes.words
        try:
            run = self.device.run(request, setting)
        except LaunchRefusedError as problem:
            self._too_long[_same(request, setting.checks)] = str(problem)
            raise
        if words is not None:
            run.findings, run.formal = words.fit(run.findings), words.fit(run.formal)
        initialised = MADE if words is None else words.made
        run.findings = self.history.explained(run.findings, request.parameters, request.names, initialised)
        run.findings, run.formal = (blamed(found, notes.compiler) for found in (run.findings, run.formal))
        return run

    def _alike(self, request: LaunchRequest) -> Hashable:
        """What launches have in common that take as long: the code, the shape, and numbers, which may count turns."""
        return request.kernel, request.shape, request.shared_bytes, self._numbers(request)

    def _numbers(self, request: LaunchRequest) -> tuple[bytes, ...]:
        """The parameters of a launch without the addresses in them."""
        found = []
        for data in request.parameters:
            words = [data[at : at + 8] for at in range(0, len(data), 8)]
            found += [b"" if self._is_address(word) else word for word in words]
        return tuple(found)

    def _is_address(self, word: bytes) -> bool:
        return len(word) == 8 and self.memory.holds(int.from_bytes(word, "little"))

    def _leave(self, launch: Launch, request: LaunchRequest) -> None:
        """Prepare memory for later launches: what an incomplete launch would have written is unknown."""
        if not launch.whole or self.options.blocks is not None:
            self.memory.assume_written(request.parameters)

    def _predicted(
        self, times: LaunchTimes, which: tuple[Hashable, KernelIdentity], number: int, run: Run
    ) -> tuple[Mapping[str, object], Run]:
        """The metrics of a launch's time, and the run without its recording, with an explanation if it has one."""
        if self.options.blocks is not None:
            return {"no_time": "only some of its blocks were run"}, run
        found, explained = times.of(*which, number, run)
        run.recording = None
        if explained is None:
            return found, run
        if self._writer is not None:
            self._writer.write_run(number, explained, TIME_SUFFIX)
        explained.recording = None
        return found, explained if self._keep_runs else run

    def _slim(self, number: int, run: Run | None) -> Run | None:
        """The part of a run that is kept: whole on disk if requested, in memory without what is large."""
        if run is not None:
            if self.options.keep_timelines and run.timeline is not None and self._writer is not None:
                self._writer.write_run(number, run)
            if self.options.strict:
                run.strict()
            if not self._keep_runs:
                run.timeline = None
                run.views.pop("pipeline", None)
        return run

    def _keep(self, launch: Launch) -> None:
        self.launches.append(launch)
        self.note({**launch.to_dict(), "test": running_test()})
        if launch.printed and self.prints:
            # as on a GPU, output of kernels is output of the program
            sys.stdout.write("".join(launch.printed))
            sys.stdout.flush()

    def _setting(self, treatment: str, forecast: Forecast, alike: Hashable) -> RunSetting:
        budget = Budget(steps=_STEPS, seconds=self.options.max_seconds)
        checks, blocks = treatment == CHECKED, self.options.blocks
        times = self._times is not None and blocks is None and self._times.records(alike)
        predicts = times or self._predictions is not None
        return RunSetting(checks, self.options.schedule, budget, blocks, forecast.during, predicts, self.exact)

    def _forecast(self, request: LaunchRequest, title: str, treatment: str) -> Forecast:
        if known := self._too_long.get(_same(request, treatment == CHECKED)):
            raise LaunchRefusedError(known)
        grid, block, _ = request.shape
        blocks = prod(grid) if self.options.blocks is None else min(len(self.options.blocks), prod(grid))
        return Forecast(title, blocks, prod(block), treatment == CHECKED, self.options.max_seconds)

    def _instructions(self, request: LaunchRequest, title: str) -> int:
        """The number of instructions of a program; an error in its PTX gets the source line."""
        try:
            return self.device.instructions(request)
        except PtxError as problem:
            raise located(problem, request.kernel, title) from None

    def close(self) -> None:
        """End the session: modules are forgotten. Memory held by the program stays."""
        if self._comparison is not None:
            self._comparison.close()
        self.device.close()
        self._texts.clear()


def _same(request: LaunchRequest, checked: bool) -> Hashable:
    """A key that is equal for equal launches."""
    return request.kernel, request.shape, request.shared_bytes, checked, tuple(request.parameters)


def _sizes(given: int | Sequence[int]) -> tuple[int, ...]:
    """A grid or block as given, valid or not."""
    return (given,) if isinstance(given, int) else tuple(given)


def _comparison(device: DoorDevice, options: Options) -> "LaunchComparison":
    """The comparison with another device; imported lazily, as few sessions compare."""
    from kernbench.ptx.comparing.sessions import LaunchComparison

    return LaunchComparison(device, options.compare, options.search, options.max_seconds)
