"""Compares two runs: whether both are right and safe, what changed, and where on the critical path."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernbench.report.compare.ranking import time_by_cause
from kernbench.report.compare.titles import apart
from kernbench.report.text.verdict import NO, NOT_ASKED, YES
from kernbench.report.time.explanation import duration, scaled
from kernbench.result.finding import Finding
from kernbench.result.launches import launch_names
from kernbench.result.run import Run, Status

_LINES = 12
# fraction of the longer time below which changes are not reported
_WORTH_SAYING = 0.01


@dataclass(frozen=True)
class Number:
    """A figure of both runs as text, and its change; of a `cost` less is better."""

    name: str
    a: str
    b: str
    change: str
    cost: bool = False


@dataclass(frozen=True)
class Share:
    """A part of both times, in picoseconds; `text` is the source text of a kernel line."""

    name: str
    a_ps: int
    b_ps: int
    change: str
    text: str = ""


@dataclass(frozen=True)
class Difference:
    """The differences of two runs; all data of the tables and pages."""

    title: str
    names: tuple[str, str]
    summary: str
    warnings: list[str]
    answers: list[tuple[str, str, str]]
    numbers: list[Number]
    settings: list[tuple[str, str, str]] = field(default_factory=list)
    causes: list[Share] = field(default_factory=list)
    kinds: list[Share] = field(default_factory=list)
    lines: list[Share] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON and pages."""
        return asdict(self)


def difference(a: Run, b: Run, names: tuple[str, str] = ("A", "B")) -> Difference:
    """The changes from `a` to `b`; the title is the common part of their names."""
    title, *own = apart(*names)
    names = (own[0], own[1])
    times = _time(a), _time(b)
    timed = all("time_ps" in run.metrics for run in (a, b))
    return Difference(
        title,
        names,
        _summary(a, b, names, times),
        list(_warnings(a, b, names)),
        list(_answers(a, b)),
        [_number(*figure) for figure in _figures(a, b) if figure[1] is not None or figure[2] is not None],
        _settings(a, b),
        _shares(time_by_cause(a.metrics), time_by_cause(b.metrics)) if timed else [],
        _shares(a.metrics.get("critical_path_ps", {}), b.metrics.get("critical_path_ps", {})) if timed else [],
        _line_shares(a, b) if timed else [],
    )


def _time(run: Run) -> int | None:
    """Picoseconds, modelled or measured; None without a time."""
    measured = run.metrics.get("gpu_time_ns")
    return run.metrics.get("time_ps") if measured is None else measured * 1000


def _summary(a: Run, b: Run, names: tuple[str, str], times: tuple[int | None, int | None]) -> str:
    bad = [name for name, run in zip(names, (a, b), strict=True) if not _has_speed(run)]
    if bad:
        return f"{' and '.join(bad)} {'are' if len(bad) > 1 else 'is'} not right and safe: no speed is compared"
    before, after = times
    if not before or not after:
        missing = [name for name, time in zip(names, times, strict=True) if not time]
        return f"{' and '.join(missing)} {'have' if len(missing) > 1 else 'has'} no time: only answers are compared"
    if before == after:
        return f"both take {duration(before)}"
    faster, slower = (names[1], names[0]) if after < before else (names[0], names[1])
    ratio = max(before, after) / min(before, after)
    verdict = f"{faster} is {ratio:.2f} times as fast as {slower}: {duration(before)} in {names[0]}, "
    return verdict + f"{duration(after)} in {names[1]}{_reasons(a, b, max(before, after))}"


def _has_speed(run: Run) -> bool:
    """Whether a run is right and safe, or has no fault but its compiler's."""
    return run.ok or (run.status is Status.FINISHED and run.right is not False and not run.own_findings)


def _reasons(a: Run, b: Run, longer: int) -> str:
    """Where the time changed most."""
    if not all("time_ps" in run.metrics for run in (a, b)):
        return ""
    ours, theirs = time_by_cause(b.metrics), time_by_cause(a.metrics)
    changes = {name: ours.get(name, 0) - theirs.get(name, 0) for name in theirs | ours}
    worth = sorted(changes.items(), key=lambda item: -abs(item[1]))[:4]
    reasons = [f"{name} {_signed(by)}" for name, by in worth if abs(by) >= _WORTH_SAYING * longer]
    return f" ({', '.join(reasons)})" if reasons else ""


def _signed(picoseconds: int) -> str:
    return f"{'+' if picoseconds > 0 else '-'}{duration(abs(picoseconds))}"


def _warnings(a: Run, b: Run, names: tuple[str, str]) -> Iterator[str]:
    for key in ("bench", "panel", "target", "machine_hash"):
        x, y = a.origin.get(key), b.origin.get(key)
        if x != y and x is not None and y is not None:
            yield f"{key.replace('_hash', '')} differs: {x} in {names[0]}, {y} in {names[1]}"
    measured = ["gpu_time_ns" in run.metrics for run in (a, b)]
    if measured[0] != measured[1] and all(_time(run) for run in (a, b)):
        yield f"the time of {names[measured[1]]} was measured on a GPU, that of {names[measured[0]]} is a model's"
    found = [{f.kind for f in run.findings} for run in (a, b)], [{f.kind for f in run.formal} for run in (a, b)]
    for what, (before, after) in zip(("findings", "formal findings"), found, strict=True):
        if after - before:
            yield f"only {names[1]} has {what} of kind {', '.join(sorted(after - before))}"
        if before - after:
            yield f"only {names[0]} has {what} of kind {', '.join(sorted(before - after))}"


def _answers(a: Run, b: Run) -> Iterator[tuple[str, str, str]]:
    for name, x, y in (("right", a.right, b.right), ("safe", a.safe, b.safe)):
        yield name, _word(x), _word(y)
    yield "ended", str(a.status), str(b.status)
    yield "findings", _kinds(a.findings), _kinds(b.findings)
    if a.formal or b.formal:
        yield "formal", _kinds(a.formal), _kinds(b.formal)


def _word(value: bool | None) -> str:
    return (NOT_ASKED if value is None else (YES if value else NO))[0]


def _kinds(findings: list[Finding]) -> str:
    return ", ".join(sorted({f.kind for f in findings})) or "none"


_COSTS = ("time", "x physical limit", "x floor of its work", "largest error")
# metrics that are compared: key, name, formatting
_METRICS = (
    ("limit_ratio", "x physical limit", lambda v: f"{v:.3g}"),
    ("floor_ratio", "x floor of its work", lambda v: f"{v:.3g}"),
    ("commands", "commands", lambda v: f"{v:,}"),
    ("warp_instructions", "warp instructions", lambda v: f"{v:,}"),
    ("tasks", "tasks", lambda v: f"{v:,}"),
    ("flops", "arithmetic", lambda v: scaled(v, "FLOP")),
    ("load_bytes", "loaded", lambda v: scaled(v, "B")),
    ("store_bytes", "stored", lambda v: scaled(v, "B")),
    ("send_bytes", "over links", lambda v: scaled(v, "B")),
    ("scratch_peak_bytes", "scratch at its fullest", lambda v: scaled(v, "B")),
)


def _figures(a: Run, b: Run) -> Iterator[tuple[str, object, object, object]]:
    """Name, both values and their formatting, of what at least one run has."""
    yield "time", _time(a), _time(b), duration
    yield from _launch_times(a, b)
    for key, name, show in _METRICS:
        yield name, a.metrics.get(key), b.metrics.get(key), show
    used = [run.metrics.get("utilisation", {}) for run in (a, b)]
    for engine in dict.fromkeys([*used[0], *used[1]]):
        yield f"{engine} busy", used[0].get(engine), used[1].get(engine), lambda v: f"{100 * v:.1f} %"
    errors = [max((c.max_abs for c in run.comparison or []), default=None) for run in (a, b)]
    yield "largest error", errors[0], errors[1], lambda v: f"{v:.3g}"


def _launch_times(a: Run, b: Run) -> Iterator[tuple[str, object, object, object]]:
    """The time of each launch, for runs with several; of kernels of a program, of all launches."""
    whole = [run.metrics.get("in_all", {}).get("time_ps") for run in (a, b)]
    if any(whole):
        yield "time of all launches", *whole, duration
        return
    times = [{name: _time(launch) for name, launch in launch_names(run)} for run in (a, b)]
    for name in dict.fromkeys([*times[0], *times[1]]):
        yield f"time of {name}", times[0].get(name), times[1].get(name), duration


def _number(name: str, a: object, b: object, show: Any) -> Number:
    known = [value if isinstance(value, (int, float)) else None for value in (a, b)]
    texts = ["" if value is None else show(value) for value in known]
    x, y = known
    change = "" if x is None or y is None else _change(x, y)
    return Number(name, texts[0], texts[1], change, name in _COSTS)


def _change(a: float, b: float) -> str:
    if a == b:
        return "="
    return f"{100 * (b - a) / abs(a):+.1f} %" if a else "new"


def _settings(a: Run, b: Run) -> list[tuple[str, str, str]]:
    """Differences of the origins of the runs."""
    x, y = dict(_flat(a.origin)), dict(_flat(b.origin))
    keys = dict.fromkeys([*x, *y])
    return [(key, x.get(key, ""), y.get(key, "")) for key in keys if x.get(key) != y.get(key)]


def _flat(value: Mapping[str, object], path: str = "") -> Iterator[tuple[str, str]]:
    for key, held in value.items():
        if isinstance(held, Mapping) and len(path) < 200:
            yield from _flat(held, f"{path}{key}.")
        else:
            yield f"{path}{key}", str(list(held) if isinstance(held, tuple) else held)


def _shares(a: Mapping[str, int], b: Mapping[str, int]) -> list[Share]:
    """Parts of both times, those that changed most first."""
    rows = [Share(name, int(a.get(name, 0)), int(b.get(name, 0)), "") for name in dict.fromkeys([*a, *b])]
    shown = [Share(r.name, r.a_ps, r.b_ps, _share_change(r), r.text) for r in rows if r.a_ps or r.b_ps]
    return sorted(shown, key=lambda r: -abs(r.b_ps - r.a_ps))


def _share_change(row: Share) -> str:
    return "=" if row.a_ps == row.b_ps else _signed(row.b_ps - row.a_ps)


# file, function and text of a line; time on the critical path, and the line's numbers
_Line = tuple[str, str, str]
_Spent = tuple[int, set[int]]
_Lines = dict[_Line, _Spent]
_NOTHING: _Spent = (0, set())


def _line_shares(a: Run, b: Run) -> list[Share]:
    """The critical path by kernel line, identified by its text, since it may move; equal lines of a function are
    merged.

    Lines that only one version has are matched by function and text if their files have different names.
    """
    x, y = _by_line(a), _by_line(b)
    pairs = [(key, key) for key in x if key in y] + _renamed(x, y)
    met = ({key for key, _ in pairs}, {key for _, key in pairs})
    rows = [_line_share([(key[0], x[key]), (other[0], y[other])], key[2]) for key, other in pairs]
    rows += [_line_share([(key[0], spent), ("", _NOTHING)], key[2]) for key, spent in x.items() if key not in met[0]]
    rows += [_line_share([("", _NOTHING), (key[0], spent)], key[2]) for key, spent in y.items() if key not in met[1]]
    return sorted(rows, key=lambda r: -abs(r.b_ps - r.a_ps))[:_LINES]


def _renamed(x: _Lines, y: _Lines) -> list[tuple[_Line, _Line]]:
    """Lines of two versions in files of different names; none if there are several candidates."""
    others: dict[tuple[str, str], list[_Line]] = {}
    for key in y:
        if key not in x:
            others.setdefault(key[1:], []).append(key)
    mine = [key for key in x if key not in y]
    alone = {rest for rest, count in Counter(key[1:] for key in mine).items() if count == 1}
    return [(key, others[key[1:]][0]) for key in mine if key[1:] in alone and len(others.get(key[1:], ())) == 1]


def _line_share(sides: list[tuple[str, _Spent]], text: str) -> Share:
    """The row of a line in these files (one, or one in each version)."""
    numbers: dict[str, set[int]] = {}
    for file, (_, lines) in sides:
        if file:
            numbers[file] = numbers.get(file, set()) | lines
    name = ", ".join(f"{file}:{','.join(map(str, sorted(lines)[:4]))}" for file, lines in numbers.items())
    row = Share(name, sides[0][1][0], sides[1][1][0], "", text)
    return Share(row.name, row.a_ps, row.b_ps, _share_change(row), row.text)


def _by_line(run: Run) -> _Lines:
    """What lines are charged: those where warps spend their cycles if that is known, else those of the path."""
    spent: _Lines = {}
    for row in run.views.get("by_source", ()):
        source = row["source"]
        key = (PurePath(source["file"]).name, "", row["text"] or f"line {source['line']}")
        time, numbers = spent.get(key, (0, set()))
        spent[key] = (time + row["time_ps"], numbers | {source["line"]})
    if spent:
        return spent
    for step in run.timeline.critical_path if run.timeline is not None else []:
        if step.where is not None:
            text = step.where.text
            key = (PurePath(step.where.file).name, step.where.function, text or f"line {step.where.line}")
            time, numbers = spent.get(key, (0, set()))
            spent[key] = (time + step.lag + step.finish - step.start, numbers | {step.where.line})
    return spent


def difference_text(held: Difference) -> RenderableType:
    """The difference as text for a terminal."""
    a, b = held.names
    parts: list[RenderableType] = [Text(": ".join(filter(None, (held.title, held.summary))), style="bold")]
    parts += [Text(f"  {warning}", style="yellow") for warning in held.warnings]
    table = Table("", a, b, "change")
    for name, x, y in held.answers:
        table.add_row(name, x, y, "")
    for number in held.numbers:
        table.add_row(number.name, number.a, number.b, _styled(number.change, number.cost))
    parts.append(table)
    if held.settings:
        settings = Table("", a, b, title="what differs in how they were run", title_justify="left")
        for row in held.settings:
            settings.add_row(*row)
        parts.append(settings)
    titles = ("time by cause", "critical path by what it was spent on", "critical path by kernel line")
    for title, rows in zip(titles, (held.causes, held.kinds, held.lines), strict=True):
        if rows:
            parts.append(_share_table(title, a, b, rows))
    return Group(*parts)


def _share_table(title: str, a: str, b: str, rows: list[Share]) -> RenderableType:
    """The parts that changed, and the number of those that did not."""
    equal = sum(row.a_ps == row.b_ps for row in rows)
    if equal == len(rows):
        return Text(f"{title}: the same in both", style="dim")
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.caption = f"{equal} more {'is' if equal == 1 else 'are'} equal" if equal else None
    for name in ("", a, b, "change"):
        table.add_column(name, justify="right" if name else "left", overflow="fold")
    for row in rows[: len(rows) - equal]:
        label = f"{row.name}  {row.text}" if row.text else row.name
        table.add_row(label, duration(row.a_ps), duration(row.b_ps), _styled(row.change, True))
    return table


def _styled(change: str, cost: bool) -> Text:
    """More of a cost is bad; other changes are neutral."""
    colours = {"+": "red", "-": "green"} if cost else {"+": "", "-": ""}
    return Text(change, style=colours.get(change[:1], "dim"))
