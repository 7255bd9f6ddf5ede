"""What the PTX commands share: reading a module, describing a launch, launching it, and reporting the result."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import typer

from kernbench import ptx
from kernbench.bench.running.first_wrong import Intermediates
from kernbench.cli.commands.report import write_page
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, errors, results
from kernbench.cli.output.document import write_document
from kernbench.cli.output.inside import check_first_wrong, stop_and_print
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.ptx.front.commands.asked import LaunchAsked, ResultsAsked, TimeAsked
from kernbench.ptx.front.launch_file import Arguments, LaunchFile, choose_kernel, read_launch_file
from kernbench.ptx.machine.model import Gpu, bundled, load, unfit
from kernbench.ptx.target import TARGET
from kernbench.ptx.text.checkpoints import PtxCheckpoint
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Kernel, Module
from kernbench.report import run_text, time_text, trace_bytes
from kernbench.report.text.first_wrong import first_wrong_text
from kernbench.report.text.printed import printed_text
from kernbench.result.checkpoint import Taken
from kernbench.result.finding import Finding, Other, SourceLocation
from kernbench.result.run import Run, write_bytes
from kernbench.safety.budget import Budget
from kernbench.safety.stopping import Stopper

_MADE_UP = (
    "part of this launch was made up, as said above, and a finding may come from that; describe your launch by "
    "--block, --grid and --launch FILE"
)
_COMPILED = "that is machine code; compile the source with nvcc -ptx"
# suffixes of files that are often mistaken for PTX, and the remedy
_NO_PTX = {
    ".py": "run a bench with kernbench run {file}",
    ".cu": "compile it first with nvcc -ptx -lineinfo {file}",
    **dict.fromkeys((".cubin", ".fatbin", ".o", ".so"), _COMPILED),
}


# the largest modules of libraries have some tens of millions of characters
MOST_CHARACTERS = 256 << 20


def read_module(file: Path) -> Module:
    """Parse the PTX module in a file."""
    if file.suffix in _NO_PTX:
        raise BenchError(f"{file} is no PTX: {_NO_PTX[file.suffix].format(file=file)}")
    try:
        with file.open(encoding="utf-8", errors="surrogateescape") as opened:
            text = opened.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise BenchError(f"{file}: {error.strerror or error}") from None
    if len(text) > MOST_CHARACTERS:
        raise BenchError(f"{file} is no PTX, or goes on without end: at most {MOST_CHARACTERS >> 20} MiB are read")
    try:
        module: Module = ptx.parse(text)
    except KernbenchError as error:
        raise BenchError(at_its_line(file, error)) from None
    return module


def at_its_line(file: Path, error: KernbenchError) -> str:
    """The message of an error in a PTX file, with file, line and column in the form that editors jump to."""
    if not isinstance(error, PtxError) or not error.line:
        return f"{file}: {error}"
    message = str(error).partition(": ")[2]
    return f"{file}:{error.line}:{error.column}: {message}" if error.column else f"{file}:{error.line}: {message}"


def described_launch(asked: LaunchAsked, usual: tuple[int, ...] = (1,)) -> LaunchFile:
    """The launch file with the command line's options over it; `usual` is the grid if neither gives one."""
    base = read_launch_file(asked.launch) if asked.launch is not None else LaunchFile()
    return replace(
        base,
        kernel=asked.kernel or base.kernel,
        grid=_extent("--grid", asked.grid) or base.grid or usual,
        block=_extent("--block", asked.block) or base.block,
        shared_bytes=base.shared_bytes if asked.shared is None else asked.shared,
        seed=base.seed if asked.seed is None else asked.seed,
        cluster=_extent("--cluster", asked.cluster) or base.cluster,
    )


def _extent(option: str, text: str) -> tuple[int, ...]:
    if not text:
        return ()
    parts = text.replace("x", ",").split(",")
    if len(parts) > 3 or not all(p.strip().isdecimal() and int(p) for p in parts):
        raise BenchError(f"{option} {text!r}: one to three whole numbers from 1 on are wanted, such as 16,4")
    return tuple(map(int, parts))


class LaunchOptions(TypedDict, total=False):
    """Keyword options of a launch, beside kernel, shape and arguments."""

    budget: Budget
    schedule: str | int
    checks: bool
    exact: bool
    order: bool
    cluster: tuple[int, ...]
    record: bool
    stop: Stopper
    checkpoints: Sequence[PtxCheckpoint]
    taken: Taken
    blocks: str


def launch_kernel(
    module: Module,
    described: LaunchFile,
    device: str,
    arch: str,
    elements: int,
    options: LaunchOptions,
    quiet: bool = False,
) -> Run:
    """Launch a kernel as described; prints what was made up because it was not described, unless `quiet`."""
    chosen = choose_kernel(module, described.kernel)
    on = _device(device, arch or module.arch)
    arguments = Arguments(on, chosen, described, elements)
    shared, notes = dynamic_shared(on, chosen, described.shared_bytes)
    block = described.block or chosen.reqntid
    if not block:
        block = (32,)
        notes = [f"a block of {block[0]} threads (--block; blocks of the grid: {prod(described.grid)}, --grid)", *notes]
    for note in () if quiet else (*arguments.notes, *notes):
        errors().print(f"not described, so made up: {note}", soft_wrap=True)
    if described.cluster:
        options = {**options, "cluster": described.cluster}
    result: Run = on.launch(chosen, described.grid, block, arguments.values, shared, **options)
    if "part" not in result.views:
        result.comparison = arguments.compare(result) or None
    if result.findings and (arguments.notes or notes) and not quiet:
        result.views["hints"] = [*result.views.get("hints", []), _MADE_UP]
    return result


def check_part(blocks: str | None, device: str, timed: bool) -> None:
    """Refuse options that cannot be combined with --blocks."""
    if blocks is not None and device != "emulator":
        raise BenchError("--blocks: a GPU runs all blocks of a grid; leave --device away")
    if blocks is not None and timed:
        raise BenchError("--blocks: a time is that of a whole grid; leave --time, --gpu and --sensitivity away")


def dynamic_shared(on: Any, kernel: Kernel, described: int | None) -> tuple[int, list[str]]:
    """Bytes of dynamic shared memory; if undescribed, on the emulator all that fit, so that the rest can be checked."""
    if described is not None or not isinstance(on, ptx.EmulatedDevice):
        return described or 0, []
    most = on.most_shared(kernel)
    return most, [f"{most:,} bytes of dynamic shared memory, all that a block may have (--shared)"] if most else []


def _device(name: str, arch: str) -> Any:
    if name == "emulator":
        return ptx.EmulatedDevice(arch=arch)
    if name == "cuda":
        return ptx.CudaDevice(0)
    raise BenchError(f"--device {name!r}: emulator or cuda")


def maybe_stop(
    asked: ResultsAsked,
    command: str,
    module: Module,
    described: LaunchFile,
    device: str,
    arch: str,
    elements: int,
    options: LaunchOptions,
    strict: bool,
) -> None:
    """With --stop-at: run the launch up to that location, print the state, and exit; otherwise do nothing."""
    if asked.stop_at is None:
        return
    if device != "emulator":
        raise BenchError("--stop-at: a launch on real hardware cannot be stopped inside; leave --device away")

    def launched(stopper: Stopper) -> Run:
        result = launch_kernel(module, described, device, arch, elements, {**options, "stop": stopper})
        return result.strict() if strict else result

    name = described.kernel or next(iter(module.kernels), "")
    stop_and_print(asked.stop_at, asked.dump, asked.json, command, name, launched, strict)


def comparing_intermediates(
    wanted: bool, stop_at: str | None, device: str, described: LaunchFile, options: LaunchOptions
) -> Intermediates | None:
    """With --first-wrong: the comparison of values inside the kernel, which is added to the launch's options."""
    if not wanted:
        return None
    check_first_wrong(stop_at, False, False)
    if device != "emulator":
        raise BenchError("--first-wrong: what a kernel holds is not known of real hardware; leave --device away")
    if not described.intermediates:
        raise BenchError("--first-wrong: the launch file has no [[checkpoint]] with expect = FILE.npy")
    comparing = Intermediates(described.kernel or "the launch file", described.intermediates)
    options |= {"checkpoints": described.checkpoints, "taken": comparing.take}
    return comparing


def keep_first_wrong(result: Run, comparing: Intermediates | None) -> None:
    """Add the comparison of intermediate values to the views of the run."""
    if comparing is not None:
        result.views["first_wrong"] = comparing.view()


def machine_for(asked: TimeAsked, arch: str) -> Gpu | None:
    """The GPU whose time is asked for: the named one, or the first bundled one that can run code for the architecture.

    None if no time is asked for.
    """
    if not asked.wanted:
        return None
    if asked.gpu:
        return load(asked.gpu)
    fitting = [gpu for gpu in map(load, (Gpu.whole, *bundled())) if not unfit(arch, gpu)]
    if not fitting:
        raise BenchError(f"no bundled GPU runs {arch}: name one with --gpu ({', '.join(bundled())}, or a TOML file)")
    return fitting[0]


def with_time(result: Run, machine: Gpu | None, sensitivity: bool) -> Run:
    """The run with its time on a GPU; as it is without one."""
    if machine is None:
        return result
    return TARGET.retime_with_changes(result, machine) if sensitivity else TARGET.retime(result, machine)


def finish(
    command: str,
    file: Path,
    result: Run,
    out: Path | None,
    asked: ResultsAsked,
    strict: bool,
) -> None:
    """Write what was asked for, report what came of the launch, and end the command."""
    result = result.strict() if strict else result
    result.findings = [_in_file(finding, file.resolve()) for finding in result.findings]
    result.formal = [_in_file(finding, file.resolve()) for finding in result.formal]
    write_document(asked.json, command, result.to_dict)
    if out is not None:
        _write_arrays(out, result)
    _write_trace(asked.trace, result)
    if asked.html is not None:
        write_page(asked.html, str(result.origin["kernel"]), [(str(result.origin["kernel"]), result)])
    _print_run(result)


def _in_file(finding: Finding, file: Path) -> Finding:
    """A finding whose lines of the PTX text are lines of `file`."""

    def moved(location: SourceLocation | None) -> SourceLocation | None:
        own = location is not None and location.file.startswith("<ptx ")
        return replace(location, file=str(file)) if location is not None and own else location

    others = tuple(Other(other.role, moved(other.where)) for other in finding.others)
    return replace(finding, where=moved(finding.where), others=others)


def _write_arrays(out: Path, result: Run) -> None:
    with out.open("wb") as stream:
        arrays: dict[str, Any] = {name: np.asarray(array) for name, array in result.outputs.items()}
        np.savez(stream, **arrays)


def _write_trace(trace: Path | None, result: Run) -> None:
    if trace is None:
        return
    if result.timeline is None:
        errors().print(f"no trace {trace}: the kernel has no mbarriers, or was not followed on this device")
        return
    write_bytes(trace, trace_bytes(result.timeline))
    results().print(f"wrote {trace}: the warps' swimlane in logical order; open it at ui.perfetto.dev", soft_wrap=True)


def _print_run(result: Run) -> None:
    console = results()
    console.print(run_text(str(result.origin.get("kernel", "")), result), highlight=False, soft_wrap=True)
    if "printf" in result.views:
        console.print(printed_text("the kernel", result), soft_wrap=True)
    if "first_wrong" in result.views:
        text = first_wrong_text(str(result.origin.get("kernel", "")), result)
        console.print(text, highlight=False, soft_wrap=True)
    for name in ("thread_instructions", "warp_instructions", "gpu_time_ns"):
        if name in result.metrics:
            console.print(f"  {name.replace('_', ' ')}: {result.metrics[name]:,}")
    if "time_ps" in result.metrics:
        console.print(time_text(result), end="", highlight=False, soft_wrap=True)
    if "no_time" in result.metrics:
        console.print(f"  no time: {result.metrics['no_time']}", soft_wrap=True)
    for name, array in result.outputs.items():
        console.print(f"  wrote {name}: {'x'.join(map(str, array.shape))} {array.dtype}")
    left = result.views.get("first_wrong", {}).get("wrong") is not None
    raise typer.Exit(RIGHT_AND_SAFE if result.ok and not left else FOUND)
