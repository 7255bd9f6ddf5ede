"""Checks all benches among files, each file in a process of its own, as before a merge.

A file that ends its process, crashes it, never ends or exhausts memory is a failed case, with its reason; its
remaining panels are run in another process, and other files are not affected (docs/adr/0019).
"""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernbench.bench.checking.warm import get_ready, targets_named
from kernbench.bench.discovery.collection import Case
from kernbench.bench.discovery.modules import IMPORT_SECONDS
from kernbench.bench.discovery.recognising import makes_bench
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.result.acknowledged import Entry
from kernbench.result.load import read_run
from kernbench.result.reading import Data, Reader
from kernbench.safety.children import REMEDY, Child, Children, Ended, start_method

PANEL_SECONDS = 600.0
# more processes gain little, and each takes memory
_MOST_JOBS = 8
_LEAST_MEMORY = 2 << 30
_OUTPUT_LINES = 12
_LINE = 160


@dataclass(frozen=True)
class Conditions:
    """How files are checked: options of `run_bench`, the number of processes, and the limits of each.

    `seconds` limits one panel (an import at most to `IMPORT_SECONDS`), `memory` the bytes of a process;
    None: a share of the machine's. With `timelines` the runs keep theirs. With `strict` formal findings count.
    """

    seed: int = 0
    schedule: str | int | None = None
    baseline: Sequence[Entry] = ()
    jobs: int = 0
    seconds: float = PANEL_SECONDS
    memory: int | None = None
    timelines: bool = False
    strict: bool = False
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if self.jobs < 0 or not self.seconds > 0 or (self.memory is not None and self.memory < 1):
            raise BenchError("jobs, seconds and memory of a check are positive numbers")


def check_files(files: Sequence[Path], how: Conditions | None = None) -> Generator[Case, None, None]:
    """Each panel of each bench among files, in order; a bench that cannot be loaded is a failed case.

    In a folder, files that make no bench are skipped; a single file is always loaded. The runs
    have everything but their outputs' values and their recording.
    """
    yield from check_works(works_of(files), how or Conditions())


def works_of(files: Sequence[Path]) -> "list[Work]":
    """The work for each file that is not skipped."""
    return [work for file in files if (work := _work_of(file, alone=len(files) == 1)) is not None]


def check_works(works: "Sequence[Work]", how: Conditions) -> Generator[Case, None, None]:
    """The cases of files in processes of this machine, in the order of the files."""
    with Children(how.clock) as children:
        yield from _Check(works, how, children).cases()


def default_jobs() -> int:
    """As many as there are processors for this process, up to a maximum."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, _MOST_JOBS)


def default_memory(jobs: int) -> int | None:
    """Bytes for each of `jobs` processes: most of what the machine, or the container, has; None if that is unknown."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    with suppress(OSError, ValueError):
        machine = min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(_LEAST_MEMORY, machine * 8 // 10 // jobs)


@dataclass(eq=False)
class Work:
    """One file in progress: its cases so far, and the panels still to run (None: not known yet).

    `claimed`: it is known to make a bench.
    """

    file: Path
    claimed: bool
    cases: list[Case] = field(default_factory=list)
    panels: list[str] | None = None
    current: str = ""
    began: float = 0.0
    done: bool = False

    def fail(self, panel: str, seconds: float, error: str, output: str = "") -> None:
        """Add a failed case without a run."""
        self.cases.append(Case(self.file, panel, seconds, error=error, output=output))


def _work_of(file: Path, alone: bool) -> Work | None:
    """The work for a file; None for one that is skipped."""
    try:
        makes = alone or makes_bench(file)
    except KernbenchError as error:
        refused = Work(file, claimed=True, done=True)
        refused.fail("load", 0.0, str(error))
        return refused
    return None if makes is False else Work(file, claimed=makes is True)


class _Check:
    """Works through files with several processes at once; cases come out in the order of the files."""

    def __init__(self, works: Sequence[Work], how: Conditions, children: Children):
        self._works, self._how, self._children = works, how, children
        self._waiting = deque(work for work in works if not work.done)
        self._jobs = how.jobs or default_jobs()
        self._memory = how.memory or default_memory(min(self._jobs, max(1, len(self._waiting))))
        self._running: dict[Child, Work] = {}

    def cases(self) -> Iterator[Case]:
        if start_method() == "fork":
            for target in targets_named(work.file for work in self._waiting):
                get_ready(target)
        self._fill()
        events = self._children.events()
        for work in self._works:
            given = 0
            while True:
                yield from work.cases[given:]
                given = len(work.cases)
                if work.done:
                    break
                self._take(*next(events))
        for _ in events:
            # output of processes at their exit
            continue

    def _fill(self) -> None:
        while self._waiting and len(self._children) < self._jobs:
            work = self._waiting.popleft()
            work.began = time.perf_counter()
            seconds = min(self._how.seconds, IMPORT_SECONDS)
            child = self._children.start(_TARGET, self._given(work), seconds, self._memory)
            self._running[child] = work

    def _given(self, work: Work) -> dict[str, object]:
        how = self._how
        options = {"seed": how.seed, "schedule": how.schedule, "timeline": how.timelines, "strict": how.strict}
        known = [asdict(entry) for entry in how.baseline]
        given = {"file": str(work.file), "claimed": work.claimed or work.panels is not None, "panels": work.panels}
        return {**options, **given, "baseline": known}

    def _take(self, child: Child, event: Data | Ended) -> None:
        work = self._running[child]
        if isinstance(event, Ended):
            del self._running[child]
            self._ended(work, child, event)
            self._fill()
        elif "loaded" in event:
            work.panels = event["loaded"] if work.panels is None else work.panels
        elif "begin" in event:
            work.current, work.began = event["begin"], time.perf_counter()
            child.limit(self._how.seconds)
        elif "refused" in event:
            work.fail("load", time.perf_counter() - work.began, event["refused"], _last_lines(child))
            work.panels, work.done = [], True
        elif "no_bench" in event:
            work.panels, work.done = [], True
        else:
            self._case(work, child, event["case"])

    def _case(self, work: Work, child: Child, data: Data) -> None:
        assert work.panels is not None
        run, error = None, data["error"]
        try:
            run = None if data["run"] is None else read_run(Reader(data["run"], str(work.file)))
        except KernbenchError as problem:
            error = f"{work.file}: its result cannot be read: {problem}"
        output = _last_lines(child)
        work.cases.append(Case(work.file, work.current, data["seconds"], run, error, output))
        work.panels.remove(work.current)
        work.current = ""
        work.done = not work.panels

    def _ended(self, work: Work, child: Child, ended: Ended) -> None:
        """A process has ended: its unfinished work has failed, or is done by another."""
        if work.done:
            return
        panel = work.current or (work.panels[0] if work.panels else "load")
        error = _death(work, ended, self._how.seconds)
        work.fail(panel, time.perf_counter() - work.began, error, _last_lines(child))
        work.panels = [one for one in work.panels or [] if one != panel]
        # a file that could not be loaded again would not be the next time either
        work.done = not work.panels or not work.current
        work.current = ""
        if not work.done:
            self._waiting.appendleft(work)


_TARGET = "kernbench.bench.checking.worker:check_file"


def _death(work: Work, ended: Ended, seconds: float) -> str:
    """The error of a case without a verdict: what happened, where, and what to do next."""
    doing = f"running {work.current}" if work.current else "importing it"
    if ended.over == "time":
        limit = seconds if work.current else min(seconds, IMPORT_SECONDS)
        where = f"; it was at {ended.where[0]}:{ended.where[1]} in {ended.where[2]}" if ended.where else ""
        what = f"{doing} did not end within {limit:g} s{where}"
        return f"{work.file}: {what}\n  next: {_more_time(work.current)}"
    return f"{work.file}: the process that was {doing} {ended.reason()}\n  next: {_next(ended)}"


def _more_time(running: str) -> str:
    if running:
        return "mend what does not end there, or give it more time with --max-seconds SECONDS"
    return "mend what does not end there: an import defines a bench, and launch does the work"


def _next(ended: Ended) -> str:
    if ended.lost:
        return "close only the descriptors that the bench has opened (no os.closerange over all)"
    if ended.signal == signal.SIGKILL:
        return "look for os.kill; or it needs less memory: a smaller size, --jobs 1, or a machine with more"
    if ended.deep:
        return REMEDY
    if ended.signal is not None:
        return (
            "look at the call into C code at that line (ctypes, an extension module, data nested too deeply for repr)"
        )
    return "a bench returns its Run or raises an error, and does not end its process"


def _last_lines(child: Child) -> str:
    """The end of what a process has printed since the last time."""
    lines = [_shortened(line) for line in child.output.take().rstrip().splitlines()]
    more = ["..."] if len(lines) > _OUTPUT_LINES else []
    return "\n".join(more + lines[-_OUTPUT_LINES:])


def _shortened(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[:_LINE]}..."
