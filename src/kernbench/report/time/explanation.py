"""Why a run takes as long as it does: floors, the critical path by kind and by kernel line, and what would help."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from kernbench.result.following import DEPENDENT, GRAPH, STREAM
from kernbench.result.launches import bound_of, launch_names
from kernbench.result.reading import Fields
from kernbench.result.run import Run
from kernbench.result.timeline import Timeline

_LINES = 5
# columns of a narrow terminal, and where words below a line of a table begin
_NARROW, _BELOW = 80, " " * 13
_ADVICE = 5
_CAUSES = 3
# caveats of a time: short in tables, and in full
_CAVEATS = {
    "not validated": "not validated, as no GPU of their kind was measured",
    "without machine code": "without machine code, and less sure",
    "lower bound": "lower bounds, as waits for others are not timed",
    "with a compiler's fault": "of code with a fault of its compiler",
}
_WORTH_SAYING = 0.001
_PREFIXES = (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0))
_UNITS = {"gemm": "FLOP/s", "math": "op/s", "exp": "exp/s", "hbm": "B/s", "link": "B/s"}
# efficiencies from here on are not worth saying
_WHOLE = 0.995
_MOVED = {"load_bytes": "loaded", "store_bytes": "stored", "send_bytes": "over links"}


def duration(picoseconds: int) -> str:
    """A time with a suitable unit."""
    for unit, scale in (("s", 10**12), ("ms", 10**9), ("us", 10**6), ("ns", 10**3)):
        if picoseconds >= scale:
            return f"{picoseconds / scale:.4g} {unit}"
    return f"{picoseconds} ps"


def scaled(value: float, unit: str, of: float | None = None) -> str:
    """A quantity with a suitable prefix; with `of`, "value of limit" with the prefix of the limit."""
    largest = value if of is None else of
    prefix, scale = next((p for p in _PREFIXES if largest >= p[1]), _PREFIXES[-1])
    numbers = [f"{number / scale:.3g}" for number in ((value,) if of is None else (value, of))]
    return f"{' of '.join(numbers)} {prefix}{unit}"


def distance(runs: Iterable[Run]) -> tuple[str, str, str]:
    """How the distance of runs from the optimum is shown: the heading, the metric of the ratio and that of the bound's
    name. Physical limits if a bench has them, else the floors of the work that was done.
    """
    if any("limit_ratio" in run.metrics for run in runs):
        return "x limit", "limit_ratio", "limit"
    return "x floor", "floor_ratio", "bound"


def time_text(run: Run) -> Text:
    """The explanation of a timed run; empty for one without time."""
    text = Text()
    metrics = run.metrics
    if "time_ps" not in metrics:
        return text
    total = metrics["time_ps"]
    text.append(f"time {duration(total)}{_whole(metrics)}", style="bold")
    text.append(f", {metrics['time_note']}\n" if "time_note" in metrics else "\n")
    if "in_all" in metrics:
        text.append(_in_all(metrics["in_all"]))
    elif run.launches:
        shown = ", ".join(f"{name} {duration(launch.metrics['time_ps'])}" for name, launch in launch_names(run))
        text.append(f"  {len(run.launches)} launches one after the other: {shown}\n")
    if "in_a_row_ps" in metrics:
        text.append(f"  {row_text(metrics['in_a_row_ps'])}\n")
    if "limits_ps" in metrics:
        shown = ", ".join(f"{name} {duration(t)}" for name, t in metrics["limits_ps"].items())
        ratio = metrics["limit_ratio"]
        text.append(f"  physical limits: {shown}" + ("\n" if ratio is None else f"; {ratio:.2f} x the largest\n"))
    floors = ", ".join(f"{name} {duration(t)}" for name, t in metrics["floors_ps"].items())
    text.append(f"  work floors: {floors}; bound by {bound_of(metrics)}\n")
    _gap(text, metrics, total)
    _work(text, metrics)
    if metrics.get("critical_path_ps"):
        text.append(f"  critical path: {_shares(metrics['critical_path_ps'], total)}\n")
    for fact in metrics.get("time_facts", ()):
        text.append(f"  {fact}\n")
    if run.timeline is not None:
        _lines(text, run.timeline, total)
    text.append_text(stalled_text(run))
    gains = {k: v for k, v in metrics.get("sensitivity", {}).items() if v >= _WORTH_SAYING}
    if gains:
        best = sorted(gains.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{name} {100 * gain:.1f} %" for name, gain in best)
        text.append(f"  10 % better would save{' (dispatch: if free)' if 'dispatch' in gains else ''}: {shown}\n")
    _advice(text, metrics)
    return text


def _in_all(whole: Fields) -> str:
    """For a kernel of a program: which of its launches this is, and the time of all of them."""
    if whole["launches"] == 1:
        return ""
    longest = f"launch {whole['longest']}" + (f" ({whole['site']})" if "site" in whole else "")
    every = f"{whole['launches']:,} launches, {duration(whole['time_ps'])} in all"
    return f"  {every}; this is {longest}, which takes longest\n"


def stalled_text(run: Run) -> Text:
    """The lines of the source, or of the kernel's text, where warps spent most cycles, and what they waited for."""
    text = Text()
    rows = run.views.get("by_source") or run.views.get("stalls") or ()
    if rows:
        of = " of the longest launch" if run.launches and "in_all" not in run.metrics else ""
        text.append(f"  where the warps{of} spend their cycles:\n")
    for row in rows[:_LINES]:
        source = row.get("source")
        where = _at(source) if source else f"line {row['line']}"
        head = f"    {100 * row['share']:5.1f} %  {where}  {row['text']}"
        text.append(f"{shorten(head)}\n")
        text.append(f"{_indented('; '.join(_stalls(row)))}\n", style="dim")
    return text


def shorten(line: str) -> str:
    """A line of a table that fits into a narrow terminal."""
    return line if len(line) <= _NARROW else f"{line[: _NARROW - 3]}..."


def _indented(words: str) -> str:
    """Words below a line of a table, in as many lines as a narrow terminal needs."""
    return textwrap.fill(words, _NARROW, initial_indent=_BELOW, subsequent_indent=_BELOW, break_on_hyphens=False)


def _stalls(row: Fields) -> Iterator[str]:
    """What warps waited for at a line, what it moved, and the functions that are inlined there or called from."""
    waits = sorted(row["waits"].items(), key=lambda item: -item[1])
    named = [f"{name} {100 * share:.1f} %" for name, share in waits if share >= _WORTH_SAYING] or [waits[0][0]]
    yield ", ".join(named[:_CAUSES])
    if row.get("bytes"):
        share = row["coalescing"]
        used = f", {100 * share:.0f} % coalesced" if share is not None and share < _WHOLE else ""
        yield f"{scaled(row['bytes'], 'B')}{used}"
    if row.get("shared_bytes"):
        share = row["bank_efficiency"]
        more = f" in {1 / share:.1f} times the passes needed" if share is not None and share < _WHOLE else ""
        yield f"{scaled(row['shared_bytes'], 'B')} of shared memory{more}"
    for key, word in (("inner", "in"), ("callers", "called at")):
        if row.get(key):
            yield f"{word} {', '.join(map(_at, row[key]))}"


def _at(frame: Fields) -> str:
    """File and line in short."""
    return f"{Path(frame['file']).name}:{frame['line']}"


def row_text(ways: Mapping[str, int]) -> str:
    """How launches follow each other, with the time of each kind, in words."""
    return (
        f"queued behind each other {duration(ways[STREAM])} in a stream, {duration(ways[GRAPH])} in a graph, "
        f"{duration(ways[DEPENDENT])} where each is begun early"
    )


def _advice(text: Text, metrics: Fields) -> None:
    """What changes of the kernel would save, and advice with its gain; neither is a finding."""
    for change in metrics.get("changes", ()):
        needs = f", needs {change['needs']}" if change["needs"] else ""
        text.append(f"  {change['what']} would save {100 * change['saves']:.1f} %{needs}\n")
    for one in metrics.get("advice", ())[:_ADVICE]:
        source = one.get("source")
        where = f" at {_at(source)}" if source else ""
        where += f", line {one['line']} of the text" if one["line"] else ""
        saves = f"would save {duration(one['cost_ps'])} ({one['sure']})"
        text.append(f"  advice: {one['kind']}{where}, {saves}: {one['message']}; ")
        text.append(f"{one['hint']}\n")
    if "advice_note" in metrics:
        text.append(f"  {metrics['advice_note']}\n")


def times_text(runs: Sequence[tuple[str, Run]]) -> Text:
    """For several timed runs a line each about what the time consists of, and the caveats of these times."""
    timed = [(title, run.metrics) for title, run in runs if "time_ps" in run.metrics]
    spent = [(title, metrics) for title, metrics in timed if metrics.get("critical_path_ps") and metrics["time_ps"]]
    lines = ["where the time goes (one panel by itself has more):"] if spent else []
    for title, metrics in spent:
        most = dict(sorted(metrics["critical_path_ps"].items(), key=lambda item: -item[1])[:_CAUSES])
        lines.append(f"  {title}: {_shares(most, metrics['time_ps'])}")
    caveats: dict[str, list[str]] = {}
    for title, metrics in timed:
        for caveat in filter(None, str(metrics.get("caveat", "")).split(", ")):
            caveats.setdefault(caveat, []).append(title)
    lines += [f"times that are {_CAVEATS.get(one, one)}: {', '.join(titles)}" for one, titles in caveats.items()]
    return Text("\n".join(lines))


def no_time_text(runs: Sequence[tuple[str, Run]]) -> Text:
    """Why runs have no time, a line for each reason; empty if all have one, or none was asked for."""
    reasons: dict[str, list[str]] = {}
    for title, run in runs:
        if "no_time" in run.metrics:
            reasons.setdefault(str(run.metrics["no_time"]), []).append(title)
    lines = [f"no time{_of(titles, len(runs))}: {reason}" for reason, titles in reasons.items()]
    return Text("\n".join(lines))


def untimed(run: Run) -> str:
    """Why a run has no time: its target's reason, else by its verdicts; empty if it has one."""
    if "time_ps" in run.metrics or "gpu_time_ns" in run.metrics:
        return ""
    if "no_time" in run.metrics:
        return str(run.metrics["no_time"])
    if run.right is False or run.safe is False:
        return "its result is wrong" if run.right is False else "it is not safe"
    if run.timeline is not None and run.timeline.unit == "order":
        return "this target has an order, but no clock"
    return "it was not asked for, or this target has none"


def _of(titles: Sequence[str], runs: int) -> str:
    """The runs that are meant, unless all are."""
    return "" if len(titles) == runs else f" of {', '.join(titles)}"


def _whole(metrics: Fields) -> str:
    """The time of the whole job, if a run is one of many equal ones."""
    repeats = metrics.get("repeats")
    if not repeats:
        return ""
    return f", {duration(metrics['time_ps'] * repeats['count'])} for {repeats['count']} {repeats['of']}"


def _gap(text: Text, metrics: Fields, total: int) -> None:
    """The parts of the whole time: the binding floor and the causes of the gap above it."""
    if "gap_ps" not in metrics or not total:
        return
    bound = metrics["bound"]
    causes = {name: time for name, time in metrics["gap_ps"].items() if time >= _WORTH_SAYING * total}
    floor = f"{bound} floor {100 * metrics['floors_ps'][bound] / total:.1f} %"
    text.append(f"  time by cause: {', '.join(filter(None, (floor, _shares(causes, total))))}\n")


def _work(text: Text, metrics: Fields) -> None:
    """Achieved rates against the machine's peak, and the bytes that moved."""
    rates = metrics.get("rates", {})
    shown = ", ".join(
        f"{name} {scaled(r['achieved'], _UNITS.get(name, ''), r['peak'])} ({100 * r['achieved'] / r['peak']:.1f} %)"
        for name, r in rates.items()
        if r["peak"]
    )
    if shown:
        text.append(f"  achieved: {shown}\n")
    moved = ", ".join(f"{scaled(metrics[key], 'B')} {word}" for key, word in _MOVED.items() if metrics.get(key))
    if moved:
        text.append(f"  moved: {moved}\n")


def _shares(shares: Mapping[str, int], total: int) -> str:
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * time / total:.1f} %" for name, time in ordered)


def _lines(text: Text, timeline: Timeline, total: int) -> None:
    """The kernel lines with most time on the critical path."""
    spent: dict[Any, int] = {}
    for step in timeline.critical_path:
        spent[step.where] = spent.get(step.where, 0) + step.lag + step.finish - step.start
    for where, time in sorted(spent.items(), key=lambda item: -item[1])[:_LINES]:
        if where is not None:
            text.append(f"    {100 * time / total:5.1f} %  {where}  {where.text}\n", style="dim")
