"""`kernbench ptx check`: is it PTX, and is a launch of it safe?"""

from typing import Any

from kernbench.cli.arguments.options import STRICT
from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.document import JSON
from kernbench.cli.output.inside import DUMP, check_options
from kernbench.common.errors import BenchError
from kernbench.ptx.front import launch_file
from kernbench.ptx.front.commands.launching import (
    at_its_line,
    described_launch,
    finish,
    launch_kernel,
    maybe_stop,
    read_module,
)
from kernbench.ptx.front.commands.options import (
    ARCH,
    BLOCK,
    BUDGET,
    CLUSTER,
    ELEMENTS,
    FILE,
    GRID,
    HTML,
    KERNEL,
    LAUNCH,
    SECONDS,
    SEED,
    SHARED,
    STEPS,
    STOP_AT,
    TRACE,
)
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.validation.validation import validate
from kernbench.report import pipeline_text
from kernbench.safety.budget import Budget


def check(
    file: FILE,
    launch: LAUNCH = None,
    kernel: KERNEL = "",
    grid: GRID = "",
    block: BLOCK = "",
    cluster: CLUSTER = "",
    shared: SHARED = None,
    elements: ELEMENTS = launch_file.ELEMENTS,
    seed: SEED = None,
    arch: ARCH = "",
    max_seconds: SECONDS = 600.0,
    budget: BUDGET = STEPS,
    json: JSON = None,
    trace: TRACE = None,
    html: HTML = None,
    stop_at: STOP_AT = None,
    dump: DUMP = None,
    strict: STRICT = False,
) -> None:
    """Is it PTX, does the target have every instruction, and is a launch safe? Says yes, or every problem.

    Without --launch arguments are made at random, which shows less: describe them for a kernel that reads indices.
    Where warps work in a pipeline of mbarriers, shows its roles and stages: who completes and who awaits which phase.
    """
    check_targets({"--json": json, "--trace": trace, "--html": html, "--dump": dump})
    check_options(stop_at, dump)
    module = read_module(file)
    try:
        validate(module)
    except PtxError as error:
        raise BenchError(at_its_line(file, error)) from None
    results().print(f"{file}: good PTX for {module.arch}: {', '.join(module.kernels) or 'no kernels'}")
    described = described_launch(launch, kernel, grid, block, shared, seed, cluster)
    options: dict[str, Any] = {"budget": Budget(budget, max_seconds)}
    maybe_stop(stop_at, dump, json, "ptx check", module, described, "emulator", arch, elements, options, strict)
    result = launch_kernel(module, described, "emulator", arch, elements, options)
    if "pipeline" in result.views:
        results().print(pipeline_text(result.views["pipeline"]), highlight=False, soft_wrap=True)
    finish("ptx check", file, result, None, json, trace, html, strict)
