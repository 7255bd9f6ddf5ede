"""`kernbench ptx run`: run a kernel of a PTX file."""

from kernbench.cli.arguments.grouped import grouped
from kernbench.cli.arguments.options import BLOCKS, JOBS, STRICT
from kernbench.cli.output.console import check_targets
from kernbench.cli.output.inside import check_options
from kernbench.ptx.front.commands.asked import LaunchAsked, LimitsAsked, ResultsAsked, TimeAsked
from kernbench.ptx.front.commands.launching import (
    LaunchOptions,
    check_part,
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
    ARCH,
    ARRAYS,
    CHECKS,
    DEVICE,
    EXACT,
    FILE,
    FIRST_WRONG,
    SCHEDULE,
)
from kernbench.safety.jobs import allow


@grouped
def run(
    file: FILE,
    *,
    asked: LaunchAsked,
    device: DEVICE = "emulator",
    arch: ARCH = "",
    checks: CHECKS = True,
    exact: EXACT = False,
    strict: STRICT = False,
    schedule: SCHEDULE = "canonical",
    limits: LimitsAsked,
    out: ARRAYS = None,
    wanted: ResultsAsked,
    first_wrong: FIRST_WRONG = False,
    timing: TimeAsked,
    blocks: BLOCKS = None,
    jobs: JOBS = 0,
) -> None:
    """Run a kernel of a PTX file: is it right (where the launch file says what to expect), is it safe, what did it do;
    with --time also how fast it is, and why.

    Exit code 0 if it is, 1 on findings or a wrong result, 2 on misuse.
    """
    files = {"--json": wanted.json, "--trace": wanted.trace, "--html": wanted.html, "--dump": wanted.dump}
    check_targets({"--out": out, **files})
    check_options(wanted.stop_at, wanted.dump)
    allow(jobs)
    module = read_module(file)
    described = described_launch(asked)
    options: LaunchOptions = {"budget": limits.limits}
    if device == "emulator":
        options |= {"checks": checks, "exact": exact, "schedule": int(schedule) if schedule.isdecimal() else schedule}
    check_part(blocks, device, timing.wanted)
    if blocks is not None:
        options["blocks"] = blocks
    machine = machine_for(timing, arch or module.arch)
    if machine is not None and device == "emulator" and wanted.stop_at is None and not first_wrong:
        options["record"] = True
    maybe_stop(wanted, "ptx run", module, described, device, arch, asked.elements, options, strict)
    comparing = comparing_intermediates(first_wrong, wanted.stop_at, device, described, options)
    result = launch_kernel(module, described, device, arch, asked.elements, options)
    keep_first_wrong(result, comparing)
    finish("ptx run", file, with_time(result, machine, timing.sensitivity), out, wanted, strict)
