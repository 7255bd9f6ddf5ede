"""`kernbench ptx launch`: launch a kernel from a compiler's cache, with the metadata that lies beside it."""

from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.arguments.grouped import grouped
from kernbench.cli.arguments.options import STRICT
from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.inside import check_options
from kernbench.ptx.doors.terms.blame import blamed
from kernbench.ptx.front import launch_file
from kernbench.ptx.front.artefact import read_artefact, skeleton
from kernbench.ptx.front.commands.asked import LaunchAsked, LimitsAsked, ResultsAsked, TimeAsked
from kernbench.ptx.front.commands.launching import (
    LaunchOptions,
    comparing_intermediates,
    described_launch,
    finish,
    keep_first_wrong,
    launch_kernel,
    machine_for,
    maybe_stop,
    read_module,
    with_time,
)
from kernbench.ptx.front.commands.options import (
    ARRAYS,
    CLUSTER,
    DEVICE,
    ELEMENTS,
    EXACT,
    FIRST_WRONG,
    GRID,
    LAUNCH,
    SEED,
    SHARED,
)
from kernbench.ptx.front.launch_file import choose_kernel
from kernbench.result.run import write_bytes

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


@grouped
def launch_artefact(
    path: ARTEFACT,
    *,
    launch: LAUNCH = None,
    grid: GRID = "",
    cluster: CLUSTER = "",
    elements: ELEMENTS = launch_file.ELEMENTS,
    seed: SEED = None,
    device: DEVICE = "emulator",
    exact: EXACT = False,
    limits: LimitsAsked,
    timing: TimeAsked,
    out: ARRAYS = None,
    wanted: ResultsAsked,
    strict: STRICT = False,
    first_wrong: FIRST_WRONG = False,
    shared: SHARED = None,
    write_launch: WRITE_LAUNCH = None,
) -> None:
    """Launch what a compiler left in its cache: block, cluster, shared memory and types come from its metadata.

    Only the grid, sizes and values are yours: --grid, and a launch file whose [args.NAME] are the names of the source.
    --write-launch writes such a file with all that is known, and lines for what is not; it launches nothing.
    """
    files = {"--out": out, "--json": wanted.json, "--trace": wanted.trace, "--html": wanted.html, "--dump": wanted.dump}
    check_targets({**files, "--write-launch": write_launch})
    check_options(wanted.stop_at, wanted.dump)
    found = read_artefact(path)
    module = read_module(found.ptx)
    asked = LaunchAsked(launch, grid=grid, cluster=cluster, shared=shared, seed=seed)
    base = described_launch(asked, found.grid or (1,))
    described = found.described(base, choose_kernel(module, base.kernel or found.kernel), elements)
    if write_launch is not None:
        write_bytes(write_launch, skeleton(described, choose_kernel(module, described.kernel)).encode())
        results().print(f"wrote {write_launch}: fill it in, then --launch {write_launch}", soft_wrap=True)
        return
    options: LaunchOptions = {"budget": limits.limits}
    machine = machine_for(timing, module.arch)
    if device == "emulator":
        options["exact"] = exact
        if machine is not None and wanted.stop_at is None and not first_wrong:
            options["record"] = True
    maybe_stop(wanted, "ptx launch", module, described, device, "", elements, options, strict)
    comparing = comparing_intermediates(first_wrong, wanted.stop_at, device, described, options)
    result = launch_kernel(module, described, device, "", elements, options)
    result.findings = blamed(result.findings, found.compiler)
    keep_first_wrong(result, comparing)
    finish("ptx launch", found.ptx, with_time(result, machine, timing.sensitivity), out, wanted, strict)
