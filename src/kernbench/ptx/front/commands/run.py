"""`kernbench ptx run`: run a kernel of a PTX file."""

from typing import Any

from kernbench.cli.arguments.options import STRICT
from kernbench.cli.output.console import check_targets
from kernbench.cli.output.document import JSON
from kernbench.cli.output.inside import DUMP, check_options
from kernbench.ptx.front import launch_file
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
    ARCH,
    ARRAYS,
    BLOCK,
    BUDGET,
    CHECKS,
    CLUSTER,
    DEVICE,
    ELEMENTS,
    FILE,
    FIRST_WRONG,
    GRID,
    HTML,
    KERNEL,
    LAUNCH,
    SCHEDULE,
    SECONDS,
    SEED,
    SHARED,
    STEPS,
    STOP_AT,
    TRACE,
)
from kernbench.safety.budget import Budget


def run(
    file: FILE,
    launch: LAUNCH = None,
    kernel: KERNEL = "",
    grid: GRID = "",
    block: BLOCK = "",
    cluster: CLUSTER = "",
    shared: SHARED = None,
    elements: ELEMENTS = launch_file.ELEMENTS,
    seed: SEED = None,
    device: DEVICE = "emulator",
    arch: ARCH = "",
    checks: CHECKS = True,
    strict: STRICT = False,
    schedule: SCHEDULE = "canonical",
    max_seconds: SECONDS = 600.0,
    budget: BUDGET = STEPS,
    out: ARRAYS = None,
    json: JSON = None,
    trace: TRACE = None,
    html: HTML = None,
    stop_at: STOP_AT = None,
    dump: DUMP = None,
    first_wrong: FIRST_WRONG = False,
) -> None:
    """Run a kernel of a PTX file: is it right (where the launch file says what to expect), is it safe, what did it do.

    Exit code 0 if it is, 1 on findings or a wrong result, 2 on misuse.
    """
    check_targets({"--out": out, "--json": json, "--trace": trace, "--html": html, "--dump": dump})
    check_options(stop_at, dump)
    module = read_module(file)
    described = described_launch(launch, kernel, grid, block, shared, seed, cluster)
    options: dict[str, Any] = {"budget": Budget(budget, max_seconds)}
    if device == "emulator":
        options |= {"checks": checks, "schedule": int(schedule) if schedule.isdecimal() else schedule}
    maybe_stop(stop_at, dump, json, "ptx run", module, described, device, arch, elements, options, strict)
    comparing = comparing_intermediates(first_wrong, stop_at, device, described, options)
    result = launch_kernel(module, described, device, arch, elements, options)
    keep_first_wrong(result, comparing)
    finish("ptx run", file, result, out, json, trace, html, strict)
