"""`kernbench ptx launch`: what a compiler left in its cache, with its metadata."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kernbench.cli.arguments.options import STRICT
from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.document import JSON
from kernbench.cli.output.inside import DUMP, check_options
from kernbench.ptx.front import launch_file
from kernbench.ptx.front.artefact import read_artefact, skeleton
from kernbench.ptx.front.commands.launching import (
    comparing_intermediates,
    described_launch,
    finish,
    keep_first_wrong,
    launch_kernel,
    maybe_stop,
    read_module,
)
from kernbench.ptx.front.commands.options import (
    ARRAYS,
    BUDGET,
    CLUSTER,
    DEVICE,
    ELEMENTS,
    FIRST_WRONG,
    GRID,
    HTML,
    LAUNCH,
    SECONDS,
    SEED,
    SHARED,
    STEPS,
    STOP_AT,
    TRACE,
)
from kernbench.ptx.front.launch_file import choose_kernel
from kernbench.result.run import write_bytes
from kernbench.safety.budget import Budget

ARTEFACT = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A folder of Triton's cache, a .json or .ptx in it, or a folder or .ptx of CuTe DSL."
    ),
]
WRITE_LAUNCH = Annotated[
    Path | None,
    typer.Option(
        "--write-launch", metavar="FILE", help="Write what is known of the launch to this TOML file, to fill in."
    ),
]


def launch_artefact(
    path: ARTEFACT,
    launch: LAUNCH = None,
    grid: GRID = "",
    cluster: CLUSTER = "",
    elements: ELEMENTS = launch_file.ELEMENTS,
    seed: SEED = None,
    device: DEVICE = "emulator",
    max_seconds: SECONDS = 600.0,
    budget: BUDGET = STEPS,
    out: ARRAYS = None,
    json: JSON = None,
    trace: TRACE = None,
    html: HTML = None,
    stop_at: STOP_AT = None,
    dump: DUMP = None,
    strict: STRICT = False,
    first_wrong: FIRST_WRONG = False,
    shared: SHARED = None,
    write_launch: WRITE_LAUNCH = None,
) -> None:
    """Launch what a compiler left in its cache: block, cluster, shared memory and types come from its metadata.

    Only the grid, sizes and values are yours: --grid, and a launch file whose [args.NAME] are the names of the source.
    --write-launch writes such a file with all that is known, and lines for what is not; it launches nothing.
    """
    files = {"--out": out, "--json": json, "--trace": trace, "--html": html, "--dump": dump}
    check_targets({**files, "--write-launch": write_launch})
    check_options(stop_at, dump)
    found = read_artefact(path)
    module = read_module(found.ptx)
    base = described_launch(launch, "", grid, "", shared, seed, cluster, found.grid or (1,))
    described = found.described(base, choose_kernel(module, base.kernel or found.kernel), elements)
    if write_launch is not None:
        write_bytes(write_launch, skeleton(described, choose_kernel(module, described.kernel)).encode())
        results().print(f"wrote {write_launch}: fill it in, then --launch {write_launch}", soft_wrap=True)
        return
    options: dict[str, Any] = {"budget": Budget(budget, max_seconds)}
    maybe_stop(stop_at, dump, json, "ptx launch", module, described, device, "", elements, options, strict)
    comparing = comparing_intermediates(first_wrong, stop_at, device, described, options)
    result = launch_kernel(module, described, device, "", elements, options)
    keep_first_wrong(result, comparing)
    finish("ptx launch", found.ptx, result, out, json, trace, html, strict)
