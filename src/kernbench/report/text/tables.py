"""Tables: many runs side by side, and the commands of a program."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from kernbench.common.pe_commands import PeCommand, TensorHandle
from kernbench.report.text.findings import kinds_text
from kernbench.report.text.verdict import answer
from kernbench.report.time.explanation import distance, duration
from kernbench.result.launches import bound_of, launch_names
from kernbench.result.reading import Fields
from kernbench.result.run import Run

_COLUMNS = ("right", "safe", "rel. L2", "commands", "time", "bound", "distance", "busy")
# columns that a narrow terminal omits, first to last
_SPARED = ("commands", "rel. L2", "busy", "distance", "bound", "time")
_WIDTH = 120
# most launches of a run that are shown
_LAUNCHES = 24


def runs_table(title: str, runs: Iterable[tuple[str, Run]], width: int = _WIDTH) -> Table:
    """One row per run: right, safe, error, time, what bounds it, how busy the engines were, findings."""
    table = Table(title=title, title_justify="left")
    held = list(runs)
    far = distance(run for _, run in held)
    rows = [(name, run, _cells(run, *far[1:])) for name, run in held]
    engines = next((_engines(run.metrics) for _, run, _ in rows if "utilisation" in run.metrics), ())
    headings = {name: name for name in _COLUMNS} | {"busy": "/".join(engines), "distance": far[0]}
    names, cells = [name for name, *_ in rows], [cells for *_, cells in rows]
    # columns without values are left out
    known = [name for name in _COLUMNS if any(row[name] for row in cells)]
    table.add_column("panel", no_wrap=True)
    shown = _fitting(width, names, {name: [headings[name], *(row[name] for row in cells)] for name in known})
    for name in shown:
        table.add_column(headings[name], justify="left" if name in ("right", "safe") else "right", no_wrap=True)
    table.add_column("findings", overflow="fold")
    for name, run, row in rows:
        last = Text(kinds_text(run), style="red" if run.findings else "dim")
        table.add_row(name, *(row[column] for column in shown), last)
    return table


def launches_table(title: str, run: Run) -> Table:
    """One row per launch of a run of several: how it ended, its work, its time, its outputs and findings."""
    table = Table(title=f"{title}: {len(run.launches)} launches, one after the other", title_justify="left")
    for name in ("launch", "ended", "commands", "time", "bound", "outputs", "findings"):
        table.add_column(name, justify="right" if name in ("commands", "time") else "left", overflow="fold")
    for name, launch in launch_names(run)[:_LAUNCHES]:
        cells = _cells(launch, "floor_ratio", "bound")
        found = Text(kinds_text(launch), style="red" if launch.findings else "dim")
        outputs = ", ".join(launch.outputs or launch.views.get("outputs", {}))
        table.add_row(
            Text(name), str(launch.status), cells["commands"], cells["time"], cells["bound"], Text(outputs), found
        )
    if len(run.launches) > _LAUNCHES:
        table.add_row(f"and {len(run.launches) - _LAUNCHES:,} more")
    return table


def _fitting(width: int, names: Sequence[str], columns: Mapping[str, Sequence[str | Text]]) -> list[str]:
    """The columns that fit beside the runs' names and findings."""
    shown = list(columns)
    longest = {name: max(map(len, column)) for name, column in columns.items()}
    for name in _SPARED:
        # a column is three characters wider than its text, the table one
        if 1 + sum(3 + n for n in (max(map(len, [*names, "panel"])), *(longest[s] for s in shown), 8)) <= width:
            break
        shown = [other for other in shown if other != name]
    return shown


def _cells(run: Run, ratio_key: str, bound_key: str) -> dict[str, str | Text]:
    l2 = max((c.relative_l2 for c in run.comparison or []), default=None)
    time, bound, ratio, busy = _time(run.metrics, ratio_key, bound_key)
    return {
        "right": answer(run.right),
        "safe": answer(run.safe),
        "rel. L2": "" if l2 is None else f"{l2:.2e}",
        "commands": f"{run.metrics.get('commands', run.metrics.get('warp_instructions', 0)):,}",
        "time": time,
        "bound": bound,
        "distance": ratio,
        "busy": busy,
    }


def _time(metrics: Fields, ratio_key: str, bound_key: str) -> tuple[str, str, str, str]:
    """Time, what bounds it, the ratio to that bound, and how busy the engines were; empty without a time."""
    if "gpu_time_ns" in metrics:
        return duration(metrics["gpu_time_ns"] * 1000), "", "", ""
    if "time_ps" not in metrics:
        return "", "", "", ""
    used, ratio = metrics["utilisation"], metrics.get(ratio_key)
    busy = "/".join(f"{100 * used.get(engine, 0):.0f}" for engine in _engines(metrics))
    bound = bound_of(metrics, bound_key)
    shown = duration(metrics["time_ps"]), bound, "" if ratio is None else f"{ratio:.2f}"
    return *shown, f"{busy} %" if busy else ""


def _engines(metrics: Fields) -> Sequence[str]:
    """The engines whose utilisation is shown: those that the target chose, else all."""
    return metrics.get("engines") or tuple(metrics["utilisation"])


def commands_table(title: str, commands: Sequence[PeCommand], first: int) -> Table:
    """Commands of one program, numbered from `first`."""
    table = Table(title=title, title_justify="left")
    table.add_column("#", justify="right")
    for name in ("command", "engine", "operands", "result", "line", "source"):
        table.add_column(name, no_wrap=name != "source")
    for number, command in enumerate(commands, first):
        operands, result = _operands(command)
        table.add_row(
            str(number), command.op, command.engine, operands, result, Path(str(command.where)).name, command.where.text
        )
    return table


def _operands(command: PeCommand) -> tuple[str, str]:
    fields = vars(command)
    out = fields.get("out")
    inputs = [v for n, v in fields.items() if n != "out" and isinstance(v, TensorHandle)]
    inputs.extend(fields.get("operands", ()))
    shown = [_shape(h) for h in inputs]
    if "direction" in fields:
        shown.insert(0, fields["direction"])
    return ", ".join(shown), "" if out is None else _shape(out)


def _shape(handle: TensorHandle) -> str:
    return f"{'x'.join(map(str, handle.shape)) or 'scalar'} {handle.dtype}"
