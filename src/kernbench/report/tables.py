"""Tables: many runs side by side, and the commands of a program."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from kernbench.common.pe_commands import PeCommand, TensorHandle
from kernbench.report.verdict import answer
from kernbench.result.run import Run


def runs_table(title: str, runs: Iterable[tuple[str, Run]]) -> Table:
    """One row a run: right, safe, errors, findings and what it did."""
    table = Table(title=title, title_justify="left")
    for name in ("panel", "right", "safe"):
        table.add_column(name, no_wrap=True)
    for name in ("max error", "rel. L2", "ranks", "commands", "GFLOP", "sent", "scratch"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("findings")
    for name, run in runs:
        table.add_row(*_row(name, run))
    return table


def _row(name: str, run: Run) -> list[str | Text]:
    compared = run.comparison or []
    error = max((c.max_abs for c in compared), default=None)
    l2 = max((c.relative_l2 for c in compared), default=None)
    kinds = sorted({f.kind for f in run.findings})
    metrics = run.metrics
    return [
        name,
        answer(run.right),
        answer(run.safe),
        "" if error is None else f"{error:.2e}",
        "" if l2 is None else f"{l2:.2e}",
        str(run.origin.get("ranks", "")),
        f"{metrics.get('commands', 0):,}",
        f"{metrics.get('flops', 0) / 1e9:.3f}",
        size(metrics.get("send_bytes", 0)),
        size(metrics.get("scratch_peak_bytes", 0)),
        Text(", ".join(kinds) or "none", style="red" if kinds else "dim"),
    ]


def size(nbytes: float) -> str:
    """Bytes as people read them."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{int(nbytes)} B"


def commands_table(title: str, commands: Sequence[PeCommand], first: int) -> Table:
    """Commands of one program, numbered from `first`."""
    table = Table(title=title, title_justify="left")
    table.add_column("#", justify="right")
    for name in ("command", "engine", "operands", "result", "line", "source"):
        table.add_column(name, no_wrap=name != "source")
    for number, command in enumerate(commands, first):
        operands, result = _operands(command)
        table.add_row(
            str(number), command.op, command.engine, operands, result, str(command.where.line), Text(command.where.text)
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
