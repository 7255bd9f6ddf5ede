"""`kernbench cache`: the cache of compiled loops on this machine; export to others of its type."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from kernbench.cli.arguments.examples import examples
from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.targets.registry import BUNDLED, listed

app = typer.Typer(
    help="Compiled loops: what is kept, for which type of machine; export, import, clear, compile ahead.",
    no_args_is_help=True,
    epilog=examples("kernbench cache warm", "kernbench cache export loops.zip", "kernbench cache import loops.zip"),
)
TARGETS = Annotated[
    list[str] | None, typer.Argument(metavar="TARGET", help="Targets whose loops are compiled; all without.")
]


@app.command("show", epilog=examples("kernbench cache show"))
def show(json: JSON = None) -> None:
    """List the compiled loops, and their type of machine."""
    from kernbench.common import sharing

    check_targets({"--json": json})
    held, here = sharing.kept(), sharing.machine_type()
    table = Table(title=f"{len(held.loops)} compiled loops in {held.folder}", title_justify="left")
    table.add_column("loop", overflow="fold")
    table.add_column("KiB", justify="right")
    for name, size in held.loops.items():
        table.add_row(name, f"{size / 1024:,.0f}")
    results().print(table)
    machine = "; ".join(f"{key} {value}" for key, value in here.items())
    results().print(f"type of machine: {machine}", soft_wrap=True)
    write_document(json, "cache show", {"folder": str(held.folder), "machine": here, "loops": held.loops})


@app.command("export", epilog=examples("kernbench cache export loops.zip"))
def export(file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")], json: JSON = None) -> None:
    """Write all compiled loops to one file, and print its sha256."""
    from kernbench.common import sharing

    check_targets({"FILE": file, "--json": json})
    digest = sharing.export(file)
    count = len(sharing.kept().loops)
    results().print(f"{count} compiled loops in {file}, sha256 {digest}", soft_wrap=True)
    write_document(json, "cache export", {"file": str(file), "loops": count, "sha256": digest})


@app.command("import", epilog=examples("kernbench cache import loops.zip --sha256 DIGEST"))
def bring(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of kernbench cache export.")],
    digest: Annotated[
        str | None, typer.Option("--sha256", metavar="DIGEST", help="What export said: another file is refused.")
    ] = None,
    json: JSON = None,
) -> None:
    """Add the compiled loops of a file to the cache.

    They are code that will run here: import only what you would run.
    """
    from kernbench.common import sharing

    check_targets({"--json": json})
    new, known = sharing.bring(file, digest)
    results().print(f"{new} compiled loops imported; {known} were kept already", soft_wrap=True)
    write_document(json, "cache import", {"file": str(file), "imported": new, "known": known})


@app.command("clear", epilog=examples("kernbench cache clear", "kernbench cache clear --all"))
def clear(
    all_versions: Annotated[bool, typer.Option("--all", help="Those of other versions of kernbench, too.")] = False,
    json: JSON = None,
) -> None:
    """Empty the cache; loops are compiled again when needed."""
    from kernbench.common import sharing

    check_targets({"--json": json})
    freed = sharing.clear(all_versions)
    results().print(f"{freed / 2**20:,.1f} MiB removed")
    write_document(json, "cache clear", {"bytes": freed})


@app.command("warm", epilog=examples("kernbench cache warm", f"kernbench cache warm {BUNDLED[-1].name}"))
def warm(targets: TARGETS = None, json: JSON = None) -> None:
    """Compile what bundled benches need, by running small panels of them."""
    from kernbench.bench import find, run_bench
    from kernbench.common import sharing
    from kernbench.common.deferred import compiled_at_once
    from kernbench.common.errors import CacheError, unknown

    check_targets({"--json": json})
    runs = {row.name: row.small_runs for row in listed() if row.small_runs}
    for target in targets or runs:
        if target not in runs:
            raise CacheError(unknown("target", target, runs))
    before = sharing.kept().loops
    with compiled_at_once():
        for target in targets or runs:
            for name, panel in runs[target]:
                run_bench(find(name), panel, timed=True)
    held = sharing.kept()
    # a changed size is a new version of a loop
    compiled = sum(before.get(name) != size for name, size in held.loops.items())
    results().print(f"{compiled} loops compiled; {len(held.loops)} are kept in {held.folder}", soft_wrap=True)
    document = {"folder": str(held.folder), "machine": sharing.machine_type(), "loops": held.loops}
    write_document(json, "cache warm", document)
