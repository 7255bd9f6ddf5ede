"""`kernbench list`: the benches there are."""

from rich.table import Table

from kernbench.bench import find, known
from kernbench.cli.output import results


def list_benches() -> None:
    """List the bundled benches and their panels."""
    table = Table(title="benches", title_justify="left")
    for name in ("bench", "what it runs", "panels"):
        table.add_column(name, overflow="fold")
    for name in known():
        try:
            bench = find(name)
        except ImportError as error:
            table.add_row(name, f"not available here: {error}", "")
            continue
        table.add_row(name, bench.summary, "\n".join(bench.panels))
    results().print(table)
