"""Summary of a session's records, by kernel.

Launches, findings folded by cause, and launches that did not end.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from kernbench.ptx.comparing.verdicts import FUSED, IDENTICAL, ORDER, OUTCOMES
from kernbench.ptx.doors.causes import Cause, causes_of, is_of_one_kernel, key_of
from kernbench.ptx.doors.identity import KernelIdentity, labels, read_identity
from kernbench.ptx.doors.options import CHECKED, LEFT_OUT, REFUSED
from kernbench.ptx.doors.records import HOST, TIME_SUFFIX, Record, read_records, run_file
from kernbench.result.finding import Finding, SourceLocation, read_fault, read_finding, read_location
from kernbench.result.following import in_a_row
from kernbench.result.launches import joined_metrics
from kernbench.result.load import load_runs
from kernbench.result.reading import Data, Reader
from kernbench.result.run import KEPT, Run, Status

# stands for the kernel of calls of the host
HOST_CALLS = KernelIdentity(HOST)
# largest number of configurations named in a sentence
_MOST_NAMED = 4


@dataclass
class KernelSummary:
    """All launches of one kernel; `title` is its name, or its name and source where another kernel has that name."""

    title: str
    launches: list[Record] = field(default_factory=list)
    # faults and formal findings, with the launches that have them
    causes: list[Cause] = field(default_factory=list)
    formal_causes: list[Cause] = field(default_factory=list)
    # choices of the autotuner
    tuned: list[str] = field(default_factory=list)
    # launches that started and never ended: the process died in them
    unfinished: list[Record] = field(default_factory=list)
    # without a kernel: host calls with findings
    calls: list[Record] = field(default_factory=list)
    identity: KernelIdentity = HOST_CALLS
    # the program's own comparisons after its launches: how many, and the lines of those that failed
    compared: int = 0
    wrong: list[str] = field(default_factory=list)
    # where the launch that takes longest is saved with the explanation of its time
    explained_in: Path | None = None

    @property
    def findings(self) -> list[Finding]:
        """Its faults."""
        return [cause.finding for cause in self.causes]

    @property
    def formal(self) -> list[Finding]:
        """Its formal findings."""
        return [cause.finding for cause in self.formal_causes]

    @property
    def seconds(self) -> float:
        """The time of all launches here."""
        return float(sum(launch["seconds"] for launch in self.launches))

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all launches here."""
        return float(sum(launch.get("cpu_seconds", 0.0) for launch in self.launches))

    @property
    def checked(self) -> int:
        """Number of launches with checks."""
        return sum(launch["treatment"] == CHECKED for launch in self.launches)

    @property
    def verdict(self) -> str:
        """Kinds of findings, or why there are none."""
        kinds = ", ".join(dict.fromkeys(_kind_of(finding) for finding in self.findings))
        refused = "refused" if any(launch["treatment"] == REFUSED for launch in self.launches) else ""
        if kinds or self.failed or self.unfinished:
            ended = len(self.failed) > len(self.refused) or self.unfinished
            return ", ".join(filter(None, (kinds, "did not end" if ended and not kinds else "", refused)))
        if self.checked:
            return "none (some refused)" if refused else "none"
        if refused:
            return refused
        return "not run" if all(launch["treatment"] == LEFT_OUT for launch in self.launches) else "not checked"

    @property
    def failed(self) -> list[Record]:
        """Launches that did not run to their end, or could not run."""
        bad = [launch for launch in self.launches if launch["status"] not in ("finished", "not run")]
        return [launch for launch in bad if not launch.get("accepted")]

    @property
    def refused(self) -> list[Record]:
        """Launches that did not even start, except those that no GPU would run and whose error the program noticed."""
        return [launch for launch in self.failed if launch["treatment"] == REFUSED]

    @property
    def accepted(self) -> str:
        """Launches that no GPU would run and whose error the program noticed; else empty."""
        found = [launch for launch in self.launches if launch.get("accepted")]
        if not found:
            return ""
        which, why = _launch_words(found[0], len(found)), found[0]["error"]
        return f"{which}: refused, as by a GPU, and reported to the program: {why}"

    @property
    def ok(self) -> bool:
        """Whether all ran to their end without findings."""
        return not self.findings and not self.failed and not self.unfinished

    @property
    def safe(self) -> bool | None:
        """As `ok`; None if nothing is wrong but no launch was checked."""
        return None if self.ok and not self.checked else self.ok

    @property
    def errors(self) -> list[str]:
        """Why launches did not run to their end, in words."""
        reasons: dict[str, list[Record]] = {}
        for one in self.failed:
            refused = "refused: " if one["treatment"] == REFUSED else ""
            reasons.setdefault(refused + (one["error"] or one["status"]), []).append(one)
        failed = [f"{_launch_words(launches[0], len(launches))}: {why}" for why, launches in reasons.items()]
        return failed + [f"{_launch_words(one, 1)}: the process ended in it" for one in self.unfinished]

    @property
    def predicted_ps(self) -> int | None:
        """The predicted time of all launches on a GPU; None if not requested, or one has no time."""
        times = [launch.get("predicted", {}).get("time_ps") for launch in self.launches]
        return sum(times) if times and None not in times and not self.unfinished else None

    @cached_property
    def explained(self) -> Run | None:
        """The launch that takes longest with the explanation of its time; None if the kernel has no time."""
        known = self.predicted_ps is not None and self.explained_in is not None
        return load_runs(self.explained_in).runs[0] if known and self.explained_in is not None else None

    @property
    def longest(self) -> Record:
        """The launch that takes longest, of a kernel with a time."""
        return max(self.launches, key=lambda launch: int(launch["predicted"]["time_ps"]))

    @property
    def agreement(self) -> dict[str, int]:
        """How many launches agree with another device, by outcome; empty if none was compared."""
        found = [launch["agreement"]["outcome"] for launch in self.launches if launch.get("agreement")]
        return {outcome: found.count(outcome) for outcome in OUTCOMES} if found else {}

    @property
    def differing(self) -> int:
        """Launches with results on another device that PTX does not permit to differ, or that could not be compared."""
        return sum(count for outcome, count in self.agreement.items() if outcome not in (IDENTICAL, ORDER, FUSED))

    @property
    def untimed(self) -> str:
        """Why a launch has no time; empty if all have one, or it was not requested."""
        return next((why for launch in self.launches if (why := launch.get("predicted", {}).get("no_time", ""))), "")

    @property
    def parting(self) -> str:
        """The compile-time constants that distinguish launches that went wrong from those that did not.

        Empty if none do. A launch that did not run to its end and has no finding is neither: one that was interrupted
        or took too long.
        """
        ended = [launch for launch in self.launches if launch["findings"] or launch["status"] == "finished"]
        judged = [launch for launch in ended if launch["treatment"] == CHECKED]
        constants = [launch["details"].get("constants", {}) for launch in judged]
        names = dict.fromkeys(name for one in constants for name in one)
        differ = [name for name in names if len({str(one.get(name)) for one in constants}) > 1]
        bad, good = dict[str, None](), dict[str, None]()
        for launch, one in zip(judged, constants, strict=True):
            words = ", ".join(f"{name} {one[name]}" for name in differ if name in one)
            (bad if launch["findings"] else good)[words] = None
        if not bad or not good or bad.keys() & good.keys():
            return ""
        return f"wrong with {_some(bad)}; not with {_some(good)}"

    def run(self, arch: str) -> Run:
        """All launches as one run, for reports."""
        runs = [_run_of(launch, arch) for launch in self.launches]
        bad = next((run.status for run in runs if run.status is not Status.FINISHED), Status.FINISHED)
        bad = Status.FAILED if self.unfinished and bad is Status.FINISHED else bad
        checked = next((run.checked for run in runs if run.checked), ())
        total = sum(run.metrics["thread_instructions"] for run in runs)
        metrics = {"thread_instructions": total, "launches": len(runs), "seconds_here": self.seconds}
        origin = {"target": "ptx", "kernel": self.title, "device": "emulator", "arch": arch}
        origin |= {"errors": "; ".join(self.errors)} if self.errors else {}
        found, formal = ([cause.at_launch for cause in causes] for causes in (self.causes, self.formal_causes))
        whole = Run({}, found, checked, bad, metrics=metrics, origin=origin, formal=formal)
        if self.compared:
            whole.views["compared"] = {"times": self.compared, "wrong": self.wrong}
        whole.launches = runs if len(runs) > 1 else []
        return whole if self.predicted_ps is None else self._timed(whole, [run.metrics for run in runs])

    def _timed(self, whole: Run, parts: Sequence[Data]) -> Run:
        """The run with the time of the launch that takes longest, its explanation, and the time of all launches."""
        if self.explained is None:
            whole.metrics = {**joined_metrics(parts), **whole.metrics}
            return whole
        whole.metrics = {**self.explained.metrics, **whole.metrics, "in_all": self.in_all}
        # what was saved of sources is of that launch only
        whole.views |= {name: view for name, view in self.explained.views.items() if name not in KEPT}
        whole.timeline = self.explained.timeline
        return whole

    @property
    def in_all(self) -> Data:
        """The time of all launches, and which one takes longest."""
        site = launch_site_of(self.longest)
        where = {} if site is None else {"site": str(site)}
        found: Data = {"launches": len(self.launches), "time_ps": self.predicted_ps}
        return {**found, "longest": self.longest["number"], **where}


@dataclass
class SessionSummary:
    """Everything that the processes of a session recorded."""

    kernels: list[KernelSummary]
    processes: int
    # comparisons made by the program itself: how many, and the lines where they failed
    compared: int = 0
    wrong: list[SourceLocation] = field(default_factory=list)
    # how often the program asked for a time, and how often it got a prediction for a GPU
    timed: int = 0
    timed_by_prediction: int = 0

    @property
    def identities(self) -> list[KernelIdentity]:
        """The launched kernels."""
        return [kernel.identity for kernel in self.kernels if not kernel.calls]

    @property
    def ran(self) -> bool:
        """Whether a kernel was launched that was not left out."""
        launches = [one for kernel in self.kernels for one in (*kernel.launches, *kernel.unfinished)]
        return any(one.get("treatment") != LEFT_OUT for one in launches)

    @property
    def causes(self) -> list[tuple[Cause, list[str]]]:
        """The faults of all kernels, each with the kernels that have it: a line may be compiled into several."""
        known: dict[Hashable, tuple[Cause, list[str]]] = {}
        for kernel in self.kernels:
            for cause in kernel.causes:
                key = (key_of(cause.finding), kernel.identity if is_of_one_kernel(cause.finding) else None)
                if key in known:
                    whole, titles = known[key]
                    titles.append(kernel.title)
                    count = whole.finding.count + cause.finding.count
                    launches = [*whole.launches, *cause.launches]
                    known[key] = Cause(replace(whole.finding, count=count), launches), titles
                else:
                    known[key] = cause, [kernel.title]
        return list(known.values())

    @property
    def findings(self) -> int:
        """Number of findings."""
        return len(self.causes)

    @property
    def headline(self) -> str:
        """The result in words; "no findings" only refers to what was checked."""
        if found := self.findings:
            return f"{found} finding{'s' * (found > 1)}"
        refused = sum(len(kernel.refused) for kernel in self.kernels)
        failed = sum(len(kernel.failed) + len(kernel.unfinished) for kernel in self.kernels) - refused
        if failed or refused:
            were = "were" if refused > 1 else "was"
            parts = [f"{_launches(refused)} {were} refused"] * bool(refused)
            parts += [f"{_launches(failed)} did not end"] * bool(failed)
            return f"no findings, but {' and '.join(parts)}"
        return "no findings" if any(kernel.checked for kernel in self.kernels) else "nothing was checked"

    @property
    def ok(self) -> bool:
        """Whether every launch ended without findings."""
        return all(kernel.ok for kernel in self.kernels)

    @property
    def safe(self) -> bool | None:
        """As `ok`; None if nothing is wrong but no launch was checked."""
        return None if self.ok and not any(kernel.checked for kernel in self.kernels) else self.ok

    @property
    def in_a_row_ps(self) -> dict[str, int]:
        """The predicted time of all launches in program order, by how they follow each other.

        Only their gaps are between them. Empty if one has no time, there are fewer than two, or there are several
        processes.
        """
        launches = sorted((one for kernel in self.kernels for one in kernel.launches), key=lambda one: one["number"])
        known = [one.get("predicted", {}) for one in launches]
        if len(known) < 2 or self.processes != 1 or self.unfinished or not all("following_ps" in one for one in known):
            return {}
        return in_a_row([one["time_ps"] for one in known], [one["following_ps"] for one in known])

    @property
    def by_time(self) -> list[KernelSummary]:
        """The kernels, those with the longest predicted time first; others after them, in their order."""
        return sorted(self.kernels, key=lambda kernel: -(kernel.predicted_ps or 0))

    @property
    def unfinished(self) -> list[Record]:
        """Launches in which a process died."""
        return [launch for kernel in self.kernels for launch in kernel.unfinished]


def read_session(folder: Path, kept: Iterable[Record] | None = None) -> SessionSummary:
    """The summary of the records in a folder."""
    records = list(read_records(folder) if kept is None else kept)
    of_kernels = [record for record in records if record["event"] not in ("compared", "timed")]
    kernels: dict[KernelIdentity, KernelSummary] = {}
    open_launches: dict[tuple[int, int], Record] = {}
    which = _which([read_identity(record) for record in of_kernels if record["event"] != "refusal seen"])
    for record in of_kernels:
        if record["event"] == "refusal seen":
            _see_refusal(record, kernels)
            continue
        identity = which[read_identity(record)]
        kernel = kernels.setdefault(identity, KernelSummary(identity.title, identity=identity))
        if record["title"] == HOST:
            _add_call(record, kernel)
        else:
            _add(record, kernel, open_launches)
    for begun in open_launches.values():
        kernels[which[read_identity(begun)]].unfinished.append(begun)
    # refused calls, each of which the program noticed
    if HOST_CALLS in kernels and not kernels[HOST_CALLS].calls:
        del kernels[HOST_CALLS]
    names = labels(kernels)
    for kernel in kernels.values():
        kernel.title = names[kernel.identity]
        kernel.causes = causes_of([*kernel.launches, *kernel.calls], "findings")
        kernel.formal_causes = causes_of(kernel.launches, "formal")
        kernel.explained_in = _explained_in(folder, kernel)
    compared = [record for record in records if record["event"] == "compared"]
    for record in compared:
        _add_comparison(record, kernels.values())
    locations = [launch_site_of(record) for record in compared if not record["right"]]
    wrong = [location for location in locations if location is not None]
    timed = [record["predicted"] for record in records if record["event"] == "timed"]
    processes = len({record["process"] for record in records})
    return SessionSummary(list(kernels.values()), processes, len(compared), wrong, len(timed), sum(timed))


def _kind_of(finding: Finding) -> str:
    """The kind of a finding, and whose fault it is if not the program's own."""
    return finding.kind if finding.blame is None else f"{finding.kind} ({finding.blame.who})"


def _explained_in(folder: Path, kernel: KernelSummary) -> Path | None:
    """Where the launch that takes longest is saved, of those that were timed by themselves."""
    timed = [launch for launch in kernel.launches if "timed_launch" in launch.get("predicted", {})]
    for launch in sorted(timed, key=lambda one: -one["predicted"].get("time_ps", 0)):
        saved = run_file(folder, launch["process"], launch["number"], TIME_SUFFIX)
        if saved.exists():
            return saved
    return None


def _which(seen: list[KernelIdentity]) -> dict[KernelIdentity, KernelIdentity]:
    """Which kernel is meant: one of which only the name is known is the only one of that name, if there is one."""
    known: dict[str, dict[KernelIdentity, None]] = {}
    for kernel in seen:
        if not kernel.is_bare:
            known.setdefault(kernel.title, {})[kernel] = None
    named = {title: next(iter(found)) for title, found in known.items() if len(found) == 1}
    return {kernel: named.get(kernel.title, kernel) if kernel.is_bare else kernel for kernel in seen}


def _add_comparison(record: Record, kernels: Iterable[KernelSummary]) -> None:
    """A comparison of the program's own is about the kernels launched before it, in a test in the same one."""
    for kernel in kernels:
        if any(_is_before(launch, record) for launch in kernel.launches):
            kernel.compared += 1
            kernel.wrong += [] if record["right"] else [str(launch_site_of(record) or "an unknown line")]


def _is_before(launch: Record, record: Record) -> bool:
    if (launch["process"], launch.get("test", "")) != (record["process"], record.get("test", "")):
        return False
    return bool(launch["number"] <= record.get("launches", 0))


def _see_refusal(record: Record, kernels: Mapping[KernelIdentity, KernelSummary]) -> None:
    """The program has asked for the error of a refused launch or call."""
    key = (record["process"], record["number"])
    if record["title"] == HOST:
        host = kernels[HOST_CALLS]
        host.calls = [call for call in host.calls if (call["process"], call["number"]) != key]
        return
    for kernel in kernels.values():
        for launch in kernel.launches:
            if (launch["process"], launch["number"]) == key:
                launch["accepted"] = True


def _add(record: Record, kernel: KernelSummary, begun: dict[tuple[int, int], Record]) -> None:
    """Add a record to a kernel; `begun` are launches that have not ended, by process and number."""
    key = (record["process"], record.get("number", 0))
    if record["event"] == "begin":
        begun[key] = record
    elif record["event"] == "launch":
        begun.pop(key, None)
        kernel.launches.append(record)
    elif record["event"] == "autotune":
        kernel.tuned.append(f"{record['chosen']} of {record['of']} configurations ({record['how']})")


def _add_call(record: Record, host: KernelSummary) -> None:
    """Add a record on host calls."""
    same = [call for call in host.calls if (call["process"], call["number"]) == (record["process"], record["number"])]
    if record["event"] == "host":
        host.calls.append(record)
    elif record["event"] == "host line":
        for call in same:
            call["findings"] = record["findings"]


def _launches(count: int) -> str:
    return f"{count} launch{'es' * (count > 1)}"


def _launch_words(launch: Record, count: int) -> str:
    """The first of `count` launches in words, with its line and its test."""
    site = launch_site_of(launch)
    about = [f"at {site}"] * (site is not None) + [f"in {launch.get('test')}"] * bool(launch.get("test"))
    where = f" ({', '.join(about)})" if about else ""
    return f"launch {launch['number']}{where}" + (f" and {count - 1} more" if count > 1 else "")


def _some(words: Iterable[str]) -> str:
    """The first few of them."""
    known = list(words)
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return "; ".join(known[:_MOST_NAMED]) + more


def launch_site_of(launch: Record) -> SourceLocation | None:
    """The line of the program that launched."""
    return Reader(launch["site"], "site").maybe(read_location)


def _run_of(launch: Record, arch: str) -> Run:
    """One launch as a run."""
    found = [Cause(read_fault(Reader(data, "findings")), [launch]).at_launch for data in launch["findings"]]
    formal = [Cause(read_finding(Reader(data, "formal")), [launch]).at_launch for data in launch["formal"]]
    known = [status for status in Status if str(status) == launch["status"]]
    status = known[0] if known else (Status.FAILED if launch["error"] else Status.FINISHED)
    site = launch_site_of(launch)
    origin = {
        "target": "ptx",
        "kernel": launch["title"],
        "device": "emulator",
        "arch": arch,
        "grid": launch["grid"],
        "block": launch["block"],
        "launched at": str(site) if site else "",
        **({"test": launch["test"]} if launch.get("test") else {}),
        **({"error": launch["error"]} if launch["error"] else {}),
        **launch["details"],
    }
    metrics = {"thread_instructions": launch["thread_instructions"], "seconds_here": launch["seconds"]}
    metrics |= launch.get("predicted", {})
    return Run({}, found, tuple(launch["checked"]), status, metrics=metrics, origin=origin, formal=formal)
