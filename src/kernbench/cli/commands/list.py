"""`kernbench list`: the bundled benches."""

from rich.table import Table

from kernbench.bench import find, known
from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.result.reading import Data


def list_benches(json: JSON = None) -> None:
    """List the bundled benches and their panels."""
    check_targets({"--json": json})
    table = Table(title="benches", title_justify="left")
    for name in ("bench", "what it runs", "panels"):
        table.add_column(name, overflow="fold")
    rows = [_row(name) for name in known()]
    for row in rows:
        summary = row["summary"] if row["unavailable"] is None else f"not available here: {row['unavailable']}"
        table.add_row(row["name"], summary, "\n".join(row["panels"]))
    results().print(table)
    write_document(json, "list", {"benches": rows})


def _row(name: str) -> Data:
    """The row of a bench; missing dependences of its target are no error."""
    try:
        bench = find(name)
    except ImportError as error:
        return {"name": name, "summary": "", "file": "", "panels": [], "sizes": [], "unavailable": str(error)}
    facts = {"name": name, "summary": bench.summary, "file": bench.file}
    return {**facts, "panels": list(bench.panels), "sizes": list(bench.sizes), "unavailable": None}
