"""`kernbench exec`: run any program unchanged, as if this machine had a GPU, and check every launch."""

import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.arguments.options import HTML, JOBS, STRICT, schedule_of
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, check_targets, errors
from kernbench.cli.output.document import JSON, write_document
from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.driver.library import LibraryError
from kernbench.ptx.doors.driver.running import driver_environment
from kernbench.ptx.doors.gpus import whole_architecture
from kernbench.ptx.doors.opening.environment import child_environment, python_for
from kernbench.ptx.doors.options import Options
from kernbench.ptx.doors.predicting import gpu_that_runs
from kernbench.ptx.doors.records import RUN_SUFFIX
from kernbench.ptx.doors.summary import KernelSummary, SessionSummary, read_session
from kernbench.ptx.front.commands.options import EXACT, GPU, SCHEDULE, SENSITIVITY, TRACE
from kernbench.ptx.front.commands.verdict import NOTHING_RAN, show_verdict
from kernbench.ptx.front.ending import Ended, end_program
from kernbench.ptx.launching.blocks import read_blocks
from kernbench.report import page_html, trace_bytes
from kernbench.report.export.junit import junit_xml
from kernbench.result.finding import location_dict
from kernbench.result.load import load_runs
from kernbench.result.run import Run, write_bytes
from kernbench.safety.jobs import allow

# kernels with a timeline in a page or document: those that take most, as each may have millions of bytes
_DRAWN = 32
# exit code of a program stopped by --end-after (as in timeout(1)), and the seconds it has to end after SIGTERM
TIMED_OUT, _GRACE = 124, 10.0

PROGRAM = Annotated[list[str], typer.Argument(metavar="PROGRAM [ARGS]...", help="The program and its arguments.")]
ARCH = Annotated[str, typer.Option("--arch", metavar="SM", help="Architecture of the GPU, such as sm_90a or sm_100a.")]
ONLY = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="KERNEL",
        help="Check these kernels (* and ? match; NAME@FILE:LINE where several have one name); others run without "
        "checks.",
    ),
]
SKIP = Annotated[list[str] | None, typer.Option("--skip", metavar="KERNEL", help="Do not run these kernels at all.")]
FIRST = Annotated[
    int | None,
    typer.Option("--first", metavar="N", help="Check the first N launches of each kernel; others run without.", min=0),
]
BLOCKS = Annotated[
    str, typer.Option("--blocks", metavar="0-3,17", help="Run these blocks of each grid and leave the others out.")
]
CHECKS = Annotated[bool, typer.Option("--checks/--no-checks", help="Races, bounds, uninitialised reads, barriers.")]
SECONDS = Annotated[
    float, typer.Option("--max-seconds", metavar="S", help="Seconds before a launch is stopped.", min=0.01)
]
TOTAL = Annotated[
    float | None,
    typer.Option(
        "--end-after", metavar="S", help="End the program after S seconds; the verdict on what ran comes then.", min=0.1
    ),
]
STOP = Annotated[
    bool, typer.Option("--stop-at-finding", help="Raise an error in the program at a launch that has findings.")
]
KEEP_GOING = Annotated[
    bool,
    typer.Option(
        "--keep-going",
        help="Let the program go on after a failed assertion, a trap or a deadlock; on a GPU every later call fails.",
    ),
]
CONFIGS = Annotated[
    bool,
    typer.Option("--all-configs", help="Run every configuration of an autotuned kernel, not the first that fits."),
]
BEST = Annotated[
    bool,
    typer.Option(
        "--best-config",
        help="Of an autotuned kernel, take the configuration with the shortest predicted time, not the first that "
        "fits: each is recorded and timed once.",
    ),
]
TIME = Annotated[
    bool,
    typer.Option(
        "--time",
        help="Predict how long launches take on a GPU, and say where the time of kernels goes: of launches with the "
        "same code, grid and numbers passed the first safe one is recorded and timed, and later ones count as alike.",
    ),
]
COMPARE = Annotated[
    str,
    typer.Option(
        "--compare",
        metavar="DEVICE",
        help="Run every launch on another device as well, from the same bytes, and say which differ and where: cuda, "
        "the GPU of this computer. The emulator is exact then.",
    ),
]
SEARCH = Annotated[
    bool,
    typer.Option("--search/--no-search", help="With --compare: look for the first instruction whose result differs."),
]
SMS = Annotated[
    int | None,
    typer.Option("--sms", metavar="N", help="Multiprocessors that the program sees; without it the product's.", min=1),
]
JUNIT = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write a verdict for each kernel as JUnit XML.")
]
ALLOW_NOTHING = Annotated[
    bool,
    typer.Option(
        "--allow-no-launches",
        help=f"A program of which no kernel was run ends with 0; without this with {NOTHING_RAN}.",
    ),
]
RECORDS = Annotated[
    Path | None, typer.Option("--records", metavar="FOLDER", help="Keep the records of all launches in this folder.")
]


def exec_program(
    program: PROGRAM,
    arch: ARCH = "sm_90a",
    only: ONLY = None,
    skip: SKIP = None,
    first: FIRST = None,
    blocks: BLOCKS = "",
    checks: CHECKS = True,
    schedule: SCHEDULE = "canonical",
    exact: EXACT = False,
    max_seconds: SECONDS = 600.0,
    end_after: TOTAL = None,
    stop_at_finding: STOP = False,
    keep_going: KEEP_GOING = False,
    all_configs: CONFIGS = False,
    best_config: BEST = False,
    time: TIME = False,
    gpu: GPU = "",
    sensitivity: SENSITIVITY = False,
    compare: COMPARE = "",
    search: SEARCH = True,
    sms: SMS = None,
    strict: STRICT = False,
    json: JSON = None,
    html: HTML = None,
    junit: JUNIT = None,
    trace: TRACE = None,
    records: RECORDS = None,
    allow_no_launches: ALLOW_NOTHING = False,
    jobs: JOBS = 0,
) -> None:
    """Run a program as if this machine had the GPU, and check every launch of its kernels.

    Triton kernels run as they are, and torch's CPU build takes tensors on "cuda". What the program prints is its own;
    the verdict comes on standard error when it has ended: a table of kernels, and findings at the program's source
    lines. Exit code: the program's own, or where that is 0, 1 if there are findings or --only names no kernel, and 3 if
    no kernel was run.
    """
    check_targets({"--json": json, "--html": html, "--junit": junit, "--trace": trace})
    allow(jobs)
    options = Options(arch, tuple(only or ()), tuple(skip or ()), first, read_blocks(blocks) if blocks else None)
    options = replace(
        options, checks=checks, schedule=schedule_of(schedule), max_seconds=max_seconds, strict=strict, sms=sms,
        stop_at_finding=stop_at_finding, keep_going=keep_going, all_configs=all_configs, best_config=best_config,
        time=time or sensitivity or bool(gpu), gpu=_named(gpu, arch), sensitivity=sensitivity,
        keep_timelines=trace is not None, exact=exact or bool(compare), compare=compare, search=search,
    )  # fmt: skip
    with _folder(records) as folder:
        ended = run_program(python_for(program), options, folder, end_after)
        summary = read_session(folder)
        code = ended.code or _judged(summary, options, allow_no_launches)
        show_verdict(summary, options, ended, nothing_ran=not ended.code and code == NOTHING_RAN)
        if trace is not None:
            _write_trace(trace, _traced(folder))
        _write_pages(html, junit, program, summary, arch)
        write_document(json, "exec", lambda: _data(summary, options, ended.code))
    raise typer.Exit(code)


def _named(gpu: str, arch: str) -> str:
    """The GPU as every process of the program finds it; one that does not run its code is refused at once."""
    if not gpu:
        return ""
    name = str(Path(gpu).absolute()) if Path(gpu).is_file() else gpu
    gpu_that_runs(whole_architecture(arch), name)
    return name


def _judged(summary: SessionSummary, options: Options, allow_no_launches: bool) -> int:
    """The exit code for a program that ended well."""
    agrees = not any(kernel.differing for kernel in summary.kernels)
    # --only with a misspelt name would check nothing and always pass
    chosen = not options.chooses_none(summary.identities)
    if not (summary.ok and agrees and chosen):
        return FOUND
    return RIGHT_AND_SAFE if summary.ran or allow_no_launches else NOTHING_RAN


def _write_pages(html: Path | None, junit: Path | None, program: list[str], summary: SessionSummary, arch: str) -> None:
    """Write the HTML page and the JUnit file, if they are asked for."""
    if html is not None:
        runs = [(str(run.origin["kernel"]), run) for run in _runs(summary, arch)]
        write_bytes(html, page_html(" ".join(program), runs).encode())
    if junit is not None:
        named = next((word for word in program if word.endswith(".py")), program[0])
        write_bytes(junit, junit_xml([_Case(named, kernel, arch) for kernel in summary.kernels]))


def _runs(summary: SessionSummary, arch: str) -> list[Run]:
    """The kernels as runs, those with the longest predicted time first."""
    runs = [kernel.run(arch) for kernel in summary.by_time]
    for run in runs[_DRAWN:]:
        run.timeline = None
    return runs


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """The folder for records: the given one, or a temporary one that is removed afterwards."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        if any(kept.glob("*.launches.jsonl")):
            raise MisuseError(f"--records {kept} has records of another run: name an empty folder")
        yield kept.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="kernbench-exec-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _traced(folder: Path) -> Run | None:
    """The run to draw, among those with a timeline: the first with findings, else the first."""
    runs = [run for path in sorted(folder.glob(f"*{RUN_SUFFIX}")) for run in load_runs(path).runs]
    return next((run for run in runs if run.findings), runs[0] if runs else None)


def _write_trace(target: Path, run: Run | None) -> None:
    if run is None or run.timeline is None:
        errors().print("--trace: in no launch do warps hand work to each other; nothing is written", soft_wrap=True)
        return
    write_bytes(target, trace_bytes(run.timeline))


def run_program(words: list[str], options: Options, folder: Path, end_after: float | None = None) -> Ended:
    """Run a program to its end; signals to this process are passed on to it.

    A program that takes longer than `end_after` seconds is ended, and its exit code is 124.
    """
    environment = child_environment(options, folder, os.environ)
    with _driver(options, folder, environment) as added:
        return _run(words, {**environment, **added}, end_after)


@contextmanager
def _driver(options: Options, folder: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Environment variables with which the program finds kernbench's driver library; none if it cannot be built."""
    with ExitStack() as stack:
        try:
            added = stack.enter_context(driver_environment(options, folder, environment))
        except LibraryError as problem:
            errors().print(f"kernbench exec: {problem}", style="dim", soft_wrap=True)
            added = {}
        yield added


def _run(words: list[str], environment: dict[str, str], end_after: float | None) -> Ended:
    try:
        child = subprocess.Popen(words, env=environment)
    except FileNotFoundError:
        raise MisuseError(f"there is no program {words[0]!r}: write kernbench exec -- python my_test.py") from None
    except (PermissionError, OSError) as problem:
        raise MisuseError(f"{words[0]!r} cannot be run: {problem}") from None
    with _passing_signals(child):
        try:
            code = child.wait(end_after)
        except subprocess.TimeoutExpired:
            end_program(child, _GRACE)
            return Ended(TIMED_OUT, "the program was ended after --end-after")
    return Ended(code) if code >= 0 else Ended(128 - code, f"the program was ended by {_signal_name(-code)}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def _passing_signals(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Signals that would end this process end the program instead, so that the verdict is still printed.

    Ctrl-C reaches the program by itself, as it shares the terminal; other signals are sent on. The third signal kills
    the program.
    """
    seen: Counter[int] = Counter()

    def pass_on(number: int, frame: object) -> None:
        seen[number] += 1
        if seen[number] > 2:
            child.kill()
        elif number != signal.SIGINT:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Case:
    """A kernel as a JUnit test case; the program is its suite."""

    def __init__(self, program: str, kernel: KernelSummary, arch: str):
        self.file, self.panel, self.seconds = program, kernel.title, kernel.seconds
        self.passed, self.error, self.output = kernel.ok, "\n".join(kernel.errors), "\n".join(kernel.errors)
        # a kernel without findings that did not run to its end is an error, with the reason
        self.run = kernel.run(arch) if kernel.findings or kernel.ok else None


def _cpu_seconds() -> float:
    """CPU seconds of the program and of the processes that emulated its GPU."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(used.ru_utime + used.ru_stime, 3)


def _data(summary: SessionSummary, options: Options, code: int) -> dict[str, object]:
    """The JSON document."""
    return {
        "arch": options.arch,
        "exact": options.exact,
        "exit_code": code,
        "safe": summary.safe,
        "processes": summary.processes,
        "cpu_seconds": _cpu_seconds(),
        "compared": summary.compared,
        "timed": summary.timed,
        "timed_by_prediction": summary.timed_by_prediction,
        "in_a_row_ps": summary.in_a_row_ps,
        "wrong": [location_dict(location) for location in summary.wrong],
        "kernels": [
            {
                "kernel": kernel.identity.title,
                "name": kernel.title,
                "source": location_dict(kernel.identity.source),
                "content": kernel.identity.content,
                "launches": len(kernel.launches),
                "checked": kernel.checked,
                "seconds": kernel.seconds,
                "cpu_seconds": kernel.cpu_seconds,
                "safe": kernel.safe,
                "autotuned": kernel.tuned,
                "predicted_ps": kernel.predicted_ps,
                "agreement": kernel.agreement,
                "findings": [cause.to_dict() for cause in kernel.causes],
                "formal": [cause.to_dict() for cause in kernel.formal_causes],
                "compared": kernel.compared,
                "runs": kernel.launches,
            }
            for kernel in summary.kernels
        ],
        "unfinished": summary.unfinished,
        # what `kernbench report` and `compare` read
        **({"runs": [run.to_dict() for run in _runs(summary, options.arch)]} if options.time else {}),
    }
