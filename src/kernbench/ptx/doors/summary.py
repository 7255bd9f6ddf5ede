"""What a session's records say, by kernel: launches, findings folded by source line, and what did not end."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernbench.ptx.comparing.verdicts import FUSED, IDENTICAL, ORDER, OUTCOMES
from kernbench.ptx.doors.options import CHECKED, LEFT_OUT, REFUSED
from kernbench.ptx.doors.records import HOST, read_records
from kernbench.result.finding import Finding, FindingLog, Place, read_fault, read_finding, read_place
from kernbench.result.following import in_a_row
from kernbench.result.launches import joined_metrics
from kernbench.result.reading import Reader
from kernbench.result.run import Run, Status

# a line of what a session wrote: of a launch, what `Launch.to_dict` gives
Record = dict[str, Any]
# configurations that a sentence names
_MOST_NAMED = 4


@dataclass
class KernelSummary:
    """All launches of one kernel."""

    title: str
    launches: list[Record] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    formal: list[Finding] = field(default_factory=list)
    # what an autotuner chose
    tuned: list[str] = field(default_factory=list)
    # launches that were begun and of which nothing more was heard: the process ended in them
    unfinished: list[Record] = field(default_factory=list)
    # of no kernel: calls of the program itself in which something was found
    calls: list[Record] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """What all launches took here."""
        return float(sum(launch["seconds"] for launch in self.launches))

    @property
    def cpu_seconds(self) -> float:
        """What the processors of this computer worked for them."""
        return float(sum(launch.get("cpu_seconds", 0.0) for launch in self.launches))

    @property
    def checked(self) -> int:
        """Launches with checks."""
        return sum(launch["treatment"] == CHECKED for launch in self.launches)

    @property
    def verdict(self) -> str:
        """Kinds of findings, or why there are none."""
        kinds = ", ".join(dict.fromkeys(finding.kind for finding in self.findings))
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
        """Launches that did not even begin, but for those that no GPU would run and the program has heard of."""
        return [launch for launch in self.failed if launch["treatment"] == REFUSED]

    @property
    def accepted(self) -> str:
        """Launches that no GPU would run, where the program has heard of the error; else nothing."""
        found = [launch for launch in self.launches if launch.get("accepted")]
        if not found:
            return ""
        which = f"launch {found[0]['number']}{_and_more(len(found))}"
        return f"{which}: refused, as by a GPU, and reported to the program: {found[0]['error']}"

    @property
    def ok(self) -> bool:
        """Whether all ran to their end and nothing was found."""
        return not self.findings and not self.failed and not self.unfinished

    @property
    def safe(self) -> bool | None:
        """As `ok`; None where nothing speaks against it and no launch was checked."""
        return None if self.ok and not self.checked else self.ok

    @property
    def errors(self) -> list[str]:
        """Why launches did not run to their end, in words."""
        reasons: dict[str, list[int]] = {}
        for one in self.failed:
            refused = "refused: " if one["treatment"] == REFUSED else ""
            reasons.setdefault(refused + (one["error"] or one["status"]), []).append(one["number"])
        failed = [f"launch {numbers[0]}{_and_more(len(numbers))}: {why}" for why, numbers in reasons.items()]
        return failed + [f"launch {one['number']}: the process ended in it" for one in self.unfinished]

    @property
    def predicted_ps(self) -> int | None:
        """What all launches take on a GPU, as predicted; None where that was not asked, or one has no time."""
        times = [launch.get("predicted", {}).get("time_ps") for launch in self.launches]
        return sum(times) if times and None not in times and not self.unfinished else None

    @property
    def agreement(self) -> dict[str, int]:
        """How many launches agree with another device, by outcome; nothing where none was compared."""
        found = [launch["agreement"]["outcome"] for launch in self.launches if launch.get("agreement")]
        return {outcome: found.count(outcome) for outcome in OUTCOMES} if found else {}

    @property
    def differing(self) -> int:
        """Launches that left something else on another device than PTX leaves open, or could not be compared."""
        return sum(count for outcome, count in self.agreement.items() if outcome not in (IDENTICAL, ORDER, FUSED))

    @property
    def untimed(self) -> str:
        """Why a launch has no time; empty where all have one, or it was not asked for."""
        return next((why for launch in self.launches if (why := launch.get("predicted", {}).get("no_time", ""))), "")

    @property
    def parting(self) -> str:
        """Which of its constants a kernel was compiled for in launches that went wrong, where others went well; else
        nothing.
        """
        judged = [launch for launch in self.launches if launch["treatment"] == CHECKED]
        constants = [launch["details"].get("constants", {}) for launch in judged]
        names = dict.fromkeys(name for one in constants for name in one)
        differ = [name for name in names if len({str(one.get(name)) for one in constants}) > 1]
        bad, good = dict[str, None](), dict[str, None]()
        for launch, one in zip(judged, constants, strict=True):
            words = ", ".join(f"{name} {one[name]}" for name in differ if name in one)
            (bad if launch["findings"] or launch in self.failed else good)[words] = None
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
        whole = Run({}, self.findings, checked, bad, metrics=metrics, origin=origin, formal=self.formal)
        whole.launches = runs if len(runs) > 1 else []
        if self.predicted_ps is None:
            return whole
        whole.metrics = {**joined_metrics([run.metrics for run in runs]), **metrics}
        return whole


@dataclass
class SessionSummary:
    """All that the processes of a session recorded."""

    kernels: list[KernelSummary]
    processes: int
    # what the program compared by itself: how often, and the lines where it was wrong
    compared: int = 0
    wrong: list[Place] = field(default_factory=list)
    # how often the program asked how long something took, and how often what it got was predicted for a GPU
    timed: int = 0
    timed_by_prediction: int = 0

    @property
    def titles(self) -> list[str]:
        """The kernels that were launched."""
        return [kernel.title for kernel in self.kernels if not kernel.calls]

    @property
    def findings(self) -> int:
        """How many findings there are."""
        return sum(len(kernel.findings) for kernel in self.kernels)

    @property
    def headline(self) -> str:
        """What was found, in words: that nothing was, only of what was looked at."""
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
        """Whether every launch ended and nothing was found."""
        return all(kernel.ok for kernel in self.kernels)

    @property
    def safe(self) -> bool | None:
        """As `ok`; None where nothing speaks against it and no launch was checked."""
        return None if self.ok and not any(kernel.checked for kernel in self.kernels) else self.ok

    @property
    def in_a_row_ps(self) -> dict[str, int]:
        """What all launches take on a GPU in the order of the program, by how they follow each other, where nothing is
        between them but their gaps; nothing where one has no time, there are fewer than two, or several processes.
        """
        launches = sorted((one for kernel in self.kernels for one in kernel.launches), key=lambda one: one["number"])
        known = [one.get("predicted", {}) for one in launches]
        if len(known) < 2 or self.processes != 1 or self.unfinished or not all("following_ps" in one for one in known):
            return {}
        return in_a_row([one["time_ps"] for one in known], [one["following_ps"] for one in known])

    @property
    def unfinished(self) -> list[Record]:
        """Launches in which a process ended."""
        return [launch for kernel in self.kernels for launch in kernel.unfinished]


def read_session(folder: Path, kept: Iterable[Record] | None = None) -> SessionSummary:
    """The summary of the records in a folder."""
    kernels: dict[str, KernelSummary] = {}
    open_launches: dict[tuple[int, int], Record] = {}
    processes = set()
    compared: list[Record] = []
    timed: list[bool] = []
    for record in read_records(folder) if kept is None else kept:
        processes.add(record["process"])
        if record["event"] == "compared":
            compared.append(record)
            continue
        if record["event"] == "timed":
            timed.append(record["predicted"])
            continue
        kernel = kernels.setdefault(record["title"], KernelSummary(record["title"]))
        if record["title"] == HOST:
            _add_call(record, kernel)
        else:
            _add(record, kernel, open_launches)
    for begun in open_launches.values():
        kernels[begun["title"]].unfinished.append(begun)
    # calls that were refused, and the program heard of each
    if HOST in kernels and not kernels[HOST].calls:
        del kernels[HOST]
    for kernel in kernels.values():
        kernel.findings = list(_folded([*kernel.launches, *kernel.calls], "findings"))
        kernel.formal = list(_folded(kernel.launches, "formal"))
    locations = [launch_site_of(record) for record in compared if not record["right"]]
    wrong = [location for location in locations if location is not None]
    return SessionSummary(list(kernels.values()), len(processes), len(compared), wrong, len(timed), sum(timed))


def _add(record: Record, kernel: KernelSummary, begun: dict[tuple[int, int], Record]) -> None:
    """What a record says of a kernel; `begun` are launches that have not ended, by process and number."""
    key = (record["process"], record.get("number", 0))
    if record["event"] == "begin":
        begun[key] = record
    elif record["event"] == "launch":
        begun.pop(key, None)
        kernel.launches.append(record)
    elif record["event"] == "refusal seen":
        for launch in kernel.launches:
            if (launch["process"], launch["number"]) == key:
                launch["accepted"] = True
    elif record["event"] == "autotune":
        kernel.tuned.append(f"{record['chosen']} of {record['of']} configurations ({record['how']})")


def _add_call(record: Record, host: KernelSummary) -> None:
    """What a record says of calls of the program itself: of those that are refused it may ask why, later."""
    same = [call for call in host.calls if (call["process"], call["number"]) == (record["process"], record["number"])]
    if record["event"] == "host":
        host.calls.append(record)
    elif record["event"] == "host line":
        for call in same:
            call["findings"] = record["findings"]
    elif record["event"] == "refusal seen":
        host.calls = [call for call in host.calls if call not in same]


def _launches(count: int) -> str:
    return f"{count} launch{'es' * (count > 1)}"


def _and_more(count: int) -> str:
    return f" and {count - 1} more" if count > 1 else ""


def _some(words: Iterable[str]) -> str:
    """The first few of them."""
    known = list(words)
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return "; ".join(known[:_MOST_NAMED]) + more


def _folded(launches: list[Record], name: str) -> Iterator[Finding]:
    log = FindingLog()
    for launch in launches:
        for data in launch[name]:
            log.add(read_finding(Reader(data, name)), subject=data["message"].partition(":")[0])
    yield from log.findings()


def launch_site_of(launch: Record) -> Place | None:
    """The line of the program that launched."""
    return Reader(launch["site"], "site").maybe(read_place)


def _run_of(launch: Record, arch: str) -> Run:
    """One launch as a run."""
    found = [read_fault(Reader(data, "findings")) for data in launch["findings"]]
    formal = [read_finding(Reader(data, "formal")) for data in launch["formal"]]
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
        **({"error": launch["error"]} if launch["error"] else {}),
        **launch["details"],
    }
    metrics = {"thread_instructions": launch["thread_instructions"], "seconds_here": launch["seconds"]}
    metrics |= launch.get("predicted", {})
    return Run({}, found, tuple(launch["checked"]), status, metrics=metrics, origin=origin, formal=formal)
