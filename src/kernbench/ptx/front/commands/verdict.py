"""Prints the verdict of `kernbench exec`: formal findings, faults, a table of kernels, and notes."""

from collections import Counter
from collections.abc import Iterator, Set
from math import prod

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernbench.cli.output.console import errors
from kernbench.ptx.doors.causes import Cause, is_of_one_kernel
from kernbench.ptx.doors.options import LEFT_OUT, Options
from kernbench.ptx.doors.summary import KernelSummary, SessionSummary
from kernbench.ptx.emulator.program.locations import library_of
from kernbench.ptx.front.commands.agreement import show_agreement
from kernbench.ptx.front.ending import Ended
from kernbench.report import finding_text, formal_text
from kernbench.report.time.explanation import duration, row_text
from kernbench.report.time.kernels import kernels_text
from kernbench.result.run import Run, Status

# exit code where the program ended well, but no kernel was run
NOTHING_RAN = 3


def show_verdict(summary: SessionSummary, options: Options, ended: Ended, nothing_ran: bool) -> None:
    """Print the verdict on standard error."""
    console = errors()
    _show_kernels(console, summary, options, ended)
    if nothing_ran:
        console.print(
            f"no kernel was run, so nothing is known: exit code {NOTHING_RAN}, or 0 with --allow-no-launches",
            soft_wrap=True,
        )


def _show_kernels(console: Console, summary: SessionSummary, options: Options, ended: Ended) -> None:
    if not summary.kernels:
        console.print(
            "kernbench exec: the program launched no kernel that was seen; those of programs that use CUDA's driver or "
            "runtime library are, and those of Triton, unless Python was started with -I, -E or -S",
            soft_wrap=True,
        )
        if ended.by:
            console.print(ended.by)
        return
    # what counts comes last, just above the table
    _show_formal(console, summary)
    for cause, titles in summary.causes:
        console.print(finding_text(cause.at_launch), end="" if len(titles) > 1 else "\n", soft_wrap=True)
        if len(titles) > 1:
            console.print(f"  in {len(titles)} kernels: {', '.join(titles)}\n", soft_wrap=True)
    console.print(_table(summary, options))
    timed = summary.by_time if options.time else []
    explained = list(kernels_text([(kernel.title, kernel.run(options.arch)) for kernel in timed]))
    for _, text in explained:
        console.print(text, highlight=False, soft_wrap=True, end="")
    said = {str(run.origin["kernel"]) for run, _ in explained}
    if options.compare:
        show_agreement(console, summary, options.compare)
    for line in (*_left_out(summary, options), *_notes(summary, ended.code, said)):
        console.print(line, soft_wrap=True)
    if ended.by:
        console.print(f"{ended.by}; what was found until then is above")


def _show_formal(console: Console, summary: SessionSummary) -> None:
    """The formal findings: those of the program's own files for each kernel, those of a library together."""
    libraries: dict[str, list[Cause]] = {}
    own = []
    for kernel in summary.kernels:
        for cause in kernel.formal_causes:
            libraries.setdefault(_library_of(cause), []).append(cause)
        formal = [cause.at_launch for cause in kernel.formal_causes if not _library_of(cause)]
        own += [Run({}, [], (), Status.FINISHED, origin={"kernel": kernel.title}, formal=formal)] * bool(formal)
    if own:
        console.print(formal_text(Run({}, [], (), Status.FINISHED, launches=own)), soft_wrap=True)
    for library, causes in libraries.items():
        if library:
            console.print(_of_library(library, causes), soft_wrap=True)


def _library_of(cause: Cause) -> str:
    where = cause.finding.where
    return "" if where is None else library_of(where.file)


def _of_library(library: str, causes: list[Cause]) -> Text:
    """A line for each kind of formal finding of a library."""
    text = Text(f"  formal, in {library}: ", style="bold yellow")
    text.append("breaks the rules, and changes no result on hardware that exists (--strict makes it count)\n")
    kinds = Counter(cause.finding.kind for cause in causes)
    for kind, count in kinds.items():
        first = next(cause.finding for cause in causes if cause.finding.kind == kind)
        lines = len({cause.finding.where for cause in causes if cause.finding.kind == kind})
        more = f" ({count} findings at {lines} lines, of which this is the first)" if count > 1 else ""
        text.append(f"    {first.where}: {kind}: {first.message}{more}\n")
        if first.is_compilers:
            text.append(f"      {first.blame}\n")
    text.rstrip()
    return text


def _left_out(summary: SessionSummary, options: Options) -> Iterator[str]:
    """Notes about what the options excluded, and about options that excluded nothing."""
    if options.blocks is not None:
        yield (
            f"--blocks: at most {len(options.blocks)} of each grid's blocks ran; races with the others are not known, "
            "and what they would have written counts as written, so that later results are not the program's"
        )
    for kernel in summary.kernels:
        blocks = [prod(launch["grid"]) for launch in kernel.launches if launch["treatment"] == LEFT_OUT]
        if blocks and options.blocks is not None and min(options.blocks) >= min(blocks):
            yield f"{kernel.title}: a grid has {_blocks(min(blocks))}, and --blocks begins with {min(options.blocks)}"
    left = sum(launch["treatment"] == LEFT_OUT for kernel in summary.kernels for launch in kernel.launches)
    if left:
        yield (
            f"{left} launch{'es were' if left != 1 else ' was'} left out: what would have been written counts as "
            "written, so that reads of it are no findings, and later results are not the program's"
        )
    for pattern in options.unmatched(summary.identities):
        yield f"{pattern}: the program launched no kernel of such a name"


def _blocks(count: int) -> str:
    return "1 block (number 0)" if count == 1 else f"{count:,} blocks (0 to {count - 1:,})"


def _notes(summary: SessionSummary, code: int = 0, said: Set[str] = frozenset()) -> Iterator[str]:
    """Notes printed below the table; `code` is the program's exit code, and `said` the kernels explained before."""
    for kernel in summary.kernels:
        yield from (f"{kernel.title}, {error}" for error in (*kernel.errors, kernel.accepted) if error)
        for tuned in dict.fromkeys(kernel.tuned):
            yield f"{kernel.title}: autotuned to {tuned}"
        if kernel.parting:
            yield f"{kernel.title}: {kernel.parting}"
        if kernel.untimed:
            yield f"{kernel.title}: no time: {kernel.untimed}"
    yield from _of_times(summary, said)
    yield from _without_lines(summary)
    if summary.in_a_row_ps:
        yield f"all launches {row_text(summary.in_a_row_ps)}"
    if summary.compared:
        wrong = ", ".join(str(location) for location in dict.fromkeys(summary.wrong))
        found = f"wrong at {wrong}" if wrong else "right each time"
        failed = f"; the program failed all the same, with exit code {code}" if code and not wrong else ""
        often = _often(summary.compared)
        yield f"the program compared results {often} (torch.testing.assert_close): {found}{failed}"
    if summary.timed_by_prediction:
        often = _often(summary.timed_by_prediction)
        yield f"the program measured time {often} and got what is predicted for its launches alone"
    if unpredicted := summary.timed - summary.timed_by_prediction:
        remedy = "" if summary.timed_by_prediction else "; with --time it gets what is predicted for its launches"
        yield f"the program measured time {_often(unpredicted)}, which says nothing of a GPU{remedy}"


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _of_times(summary: SessionSummary, said: Set[str] = frozenset()) -> Iterator[str]:
    """Notes on how times were predicted, but of kernels in `said`; each names its kernels if they differ."""
    notes: dict[str, dict[str, None]] = {}
    for kernel in summary.kernels:
        for launch in kernel.launches if kernel.title not in said else ():
            if "time_note" in launch.get("predicted", {}):
                notes.setdefault(launch["predicted"]["time_note"], {})[kernel.title] = None
    for note, titles in notes.items():
        yield note if len(notes) == 1 and not said else f"{', '.join(titles)}: {note}"


def _without_lines(summary: SessionSummary) -> Iterator[str]:
    """Kernels whose findings are at lines of PTX, and how to get source lines."""
    for kernel in summary.kernels:
        if any(finding.where is not None and is_of_one_kernel(finding) for finding in kernel.findings):
            yield (
                f"{kernel.title}: findings at lines of PTX are of instructions that name no line of a source; nvcc "
                "adds lines with -lineinfo"
            )


def _table(summary: SessionSummary, options: Options) -> Table:
    """The table of the verdict: a row for each kernel."""
    table = Table(title=f"{options.arch}: {summary.headline}", title_justify="left")
    # a narrow terminal has no room for both
    work = "predicted" if options.time else "instructions"
    for name in ("kernel", "launches", "checked", work, "seconds", "findings"):
        table.add_column(name, justify="left" if name in ("kernel", "findings") else "right", overflow="fold")
    for kernel in summary.by_time:
        formal = f" ({len(kernel.formal)} formal)" if kernel.formal else ""
        instructions = sum(launch["thread_instructions"] for launch in kernel.launches)
        table.add_row(
            kernel.title,
            str(len(kernel.launches)),
            str(kernel.checked),
            _predicted(kernel) if options.time else f"{instructions:,}",
            f"{kernel.seconds:.2f}",
            Text(kernel.verdict + formal, style="dim" if kernel.ok else "red"),
        )
    return table


def _predicted(kernel: KernelSummary) -> str:
    """The predicted time of all launches of a kernel together."""
    return "none" if kernel.predicted_ps is None else duration(kernel.predicted_ps)
