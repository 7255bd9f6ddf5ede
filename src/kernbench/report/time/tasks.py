"""Tasks of an npu run: those on the critical path, with their starts and the reasons for these."""

from collections import Counter
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernbench.report.time.explanation import duration
from kernbench.result.reading import Fields
from kernbench.result.run import Run

_MOST = 16
# reasons in words; {} is the task that was waited for
_REASONS = {
    "dependence": "needs what {} writes",
    "ring full": "its ring was full until {} was reclaimed",
    "no free core": "no core was free until {} left one",
    "scheduler busy": "the schedulers were busy starting {}",
    "value read": "the orchestrator waited for a value of {}",
    "sync_start": "all its cores at once: until {} left the last of them",
    "submit": "the orchestrator had submitted it only then",
}


def tasks_text(run: Run) -> RenderableType | None:
    """The tasks of the critical path as a table with the reasons; None for a run without tasks."""
    rows = run.views.get("tasks")
    if not rows:
        return None
    names = {row["task"]: f"{row['name']} ({row['task']})" for row in rows}
    on_path = [row for row in rows if row.get("on_path_ps")]
    table = Table(title=_title(rows, on_path), title_justify="left")
    for name in ("task", "blocks", "ready", "start", "finish", "on the path", "why only then"):
        table.add_column(
            name, justify="left" if name in ("task", "why only then") else "right", no_wrap=name != "why only then"
        )
    for row in on_path[:_MOST]:
        times = (duration(row[key]) for key in ("ready_ps", "start_ps", "finish_ps", "on_path_ps"))
        table.add_row(names[row["task"]], str(row["blocks"]), *times, _why(row, names))
    if len(on_path) > _MOST:
        table.caption = f"and {len(on_path) - _MOST} more"
    return Group(table, Text(_counted(rows)))


def _title(rows: list[Mapping[str, object]], on_path: list[Mapping[str, object]]) -> str:
    return f"tasks on the critical path: {len(on_path)} of {len(rows)}"


def _why(row: Fields, names: Mapping[int, str]) -> str:
    reason = _REASONS.get(row["reason"], "{}").format(names.get(row["waited_for"], "an earlier task"))
    return f"{row['reason']}: {reason}"


def _counted(rows: list[Mapping[str, object]]) -> str:
    """The number of tasks delayed for each reason."""
    counts = Counter(row["reason"] for row in rows)
    return "  what tasks waited for last: " + ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
