"""`kernbench ptx mutate`: is each synchronisation instruction needed, and would the checks notice its absence?"""

from typing import Annotated, Unpack

import typer

from kernbench.cli.arguments.grouped import grouped
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, check_targets, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.ptx.front.commands.asked import LaunchAsked
from kernbench.ptx.front.commands.launching import LaunchOptions, described_launch, launch_kernel, read_module
from kernbench.ptx.front.commands.options import (
    ARCH,
    BUDGET,
    FILE,
    SECONDS,
    STEPS,
)
from kernbench.ptx.front.launch_file import choose_kernel
from kernbench.ptx.proof import Verdict, prove
from kernbench.ptx.text.module import Kernel
from kernbench.result.run import Run
from kernbench.safety.budget import Budget

EVERY = Annotated[bool, typer.Option("--every", help="Show the mutants that were noticed, too.")]


@grouped
def mutate(
    file: FILE,
    *,
    asked: LaunchAsked,
    arch: ARCH = "",
    max_seconds: SECONDS = 60.0,
    budget: BUDGET = STEPS,
    every: EVERY = False,
    json: JSON = None,
) -> None:
    """Drop or alter each synchronisation instruction, one at a time: do the checks notice it, or is it harmless?

    Let loops turn often enough to use every stage of a pipeline three times. Exit code 1 if a mutant survives: nothing
    distinguishes it from the kernel, and yet its accesses are ordered otherwise.
    """
    check_targets({"--json": json})
    module = read_module(file)
    described = described_launch(asked)

    def launched(mutant: Kernel, **options: Unpack[LaunchOptions]) -> Run:
        options["budget"] = Budget(budget, max_seconds)
        return launch_kernel(mutant.module, described, "emulator", arch, asked.elements, options, quiet=True)

    def show(verdict: Verdict) -> None:
        if every or verdict.outcome in ("harmless", "equivalent", "survivor"):
            results().print(str(verdict), highlight=False, markup=False, soft_wrap=True)

    proof = prove(choose_kernel(module, described.kernel), launched, on_verdict=show)
    results().print(str(proof), highlight=False, soft_wrap=True)
    write_document(json, "ptx mutate", {"file": str(file), **proof.to_dict()})
    raise typer.Exit(FOUND if proof.survivors else RIGHT_AND_SAFE)
