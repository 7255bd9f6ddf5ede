"""`kernbench ptx check`: is a file valid PTX, and is a launch of it safe?"""

from kernbench.cli.arguments.grouped import grouped
from kernbench.cli.arguments.options import STRICT
from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.inside import check_options
from kernbench.common.errors import BenchError
from kernbench.ptx.front.commands.asked import LaunchAsked, LimitsAsked, ResultsAsked, TimeAsked
from kernbench.ptx.front.commands.launching import (
    LaunchOptions,
    at_its_line,
    described_launch,
    finish,
    launch_kernel,
    machine_for,
    maybe_stop,
    read_module,
    with_time,
)
from kernbench.ptx.front.commands.options import (
    ARCH,
    EXACT,
    FILE,
)
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.validation.validation import validate
from kernbench.report import pipeline_text


@grouped
def check(
    file: FILE,
    *,
    asked: LaunchAsked,
    arch: ARCH = "",
    exact: EXACT = False,
    limits: LimitsAsked,
    timing: TimeAsked,
    wanted: ResultsAsked,
    strict: STRICT = False,
) -> None:
    """Is it PTX, does the target have every instruction, and is a launch safe? Says yes, or every problem.

    With --time also how fast it is, and why. Without --launch arguments are made at random, which shows less: describe
    them for a kernel that reads indices.
    Where warps work in a pipeline of mbarriers, shows its roles and stages: who completes and who awaits which phase.
    """
    check_targets({"--json": wanted.json, "--trace": wanted.trace, "--html": wanted.html, "--dump": wanted.dump})
    check_options(wanted.stop_at, wanted.dump)
    module = read_module(file)
    try:
        validate(module)
    except PtxError as error:
        raise BenchError(at_its_line(file, error)) from None
    results().print(f"{file}: good PTX for {module.arch}: {', '.join(module.kernels) or 'no kernels'}")
    described = described_launch(asked)
    machine = machine_for(timing, arch or module.arch)
    options: LaunchOptions = {"budget": limits.limits, "exact": exact}
    if machine is not None and wanted.stop_at is None:
        options["record"] = True
    maybe_stop(wanted, "ptx check", module, described, "emulator", arch, asked.elements, options, strict)
    result = launch_kernel(module, described, "emulator", arch, asked.elements, options)
    if "pipeline" in result.views:
        results().print(pipeline_text(result.views["pipeline"]), highlight=False, soft_wrap=True)
    finish("ptx check", file, with_time(result, machine, timing.sensitivity), None, wanted, strict)
