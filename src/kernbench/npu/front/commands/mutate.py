"""`kernbench npu mutate`: is each flag, barrier and direction of C++ sources needed, and noticed where it is wrong?"""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.common.errors import BenchError
from kernbench.npu.scene.cases import cases_of, files_in
from kernbench.safety.budget import Budget


def mutate(
    path: Annotated[Path, typer.Argument(help="a folder or a file with @scene_test classes")],
    case: Annotated[list[str] | None, typer.Option(help="a case by name, or all")] = None,
    platform: Annotated[str, typer.Option(help="a2a3 or a5; without it the first that a case names")] = "",
    json: JSON = None,
) -> None:
    """Leave out the flags and barriers of each line in turn, and declare each argument with another direction: found;
    harmless, if the order of all accesses is the same; or unnoticed: the separated operations share no data, or a check
    misses it.

    If the kernels are not safe to begin with, the results say little.
    """
    # greenlet is needed to launch, not to list commands
    from kernbench.npu.scene.mutants import mutants

    check_targets({"--json": json})
    found = [c for file in files_in(path) for c in cases_of(file, platform, case or []) if not c.refusal]
    if not found:
        raise BenchError(f"{path} has no case to run for {platform or 'a chip'}")
    console, data = results(), []
    counts: Counter[str] = Counter()
    for one in found:
        for mutant in mutants(one, Budget(seconds=20)):
            counts[mutant.outcome] += 1
            outcome = f"{mutant.outcome} {', '.join(mutant.kinds)}".rstrip()
            console.print(f"{mutant.where}: {mutant.change}: {outcome}: {mutant.where.text}")
            row = {"case": one.title, "where": str(mutant.where), "change": mutant.change, "outcome": mutant.outcome}
            data.append({**row, "kinds": list(mutant.kinds)})
    console.print(
        ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or "no flags, no barriers"
    )
    write_document(json, "npu mutate", {"path": str(path), "counts": dict(counts), "mutants": data})
