"""`kernbench ptx`: look at, check, run and print PTX that any compiler made."""

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from kernbench import ptx
from kernbench.bench.artefact import read_artefact
from kernbench.bench.first_wrong import Intermediates
from kernbench.bench.ptx_file import ELEMENTS, Arguments, LaunchFile, choose_kernel, read_launch_file
from kernbench.cli.inside import DUMP, FIRST_WRONG_PTX, STOP_AT_PTX, check_first_wrong, check_options, stop_and_tell
from kernbench.cli.output import FOUND, RIGHT_AND_SAFE, errors, results
from kernbench.cli.report import write_page
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.ptx.module import Block, Instruction, Kernel, Module
from kernbench.ptx.proof import Verdict, prove
from kernbench.ptx.validation import validate
from kernbench.report import pipeline_text, run_text, trace_bytes
from kernbench.report.first_wrong import first_wrong_text
from kernbench.report.printed import printed_text
from kernbench.result.run import Run, write_bytes, write_json
from kernbench.safety.budget import Budget

app = typer.Typer(help="PTX from any compiler: info, check, run, launch, mutate, emit.", no_args_is_help=True)
FILE = Annotated[Path, typer.Argument(help="A PTX file.")]
LAUNCH = Annotated[
    Path | None, typer.Option("--launch", "-l", help="A TOML file that describes grid, block and arguments.")
]
KERNEL = Annotated[str, typer.Option("--kernel", "-k", help="The kernel, where the module has several.")]
GRID = Annotated[str, typer.Option("--grid", help="Blocks: x, or x,y, or x,y,z.")]
BLOCK = Annotated[str, typer.Option("--block", help="Threads of a block; without it what the kernel demands, else 32.")]
CLUSTER = Annotated[str, typer.Option("--cluster", help="Blocks of a cluster; without it what the kernel demands.")]
SHARED = Annotated[int, typer.Option("--shared", help="Bytes of dynamic shared memory.", min=0)]
ELEMENTS_OPTION = Annotated[int, typer.Option("--elements", help="Size of arrays that nothing describes.", min=1)]
SEED = Annotated[int | None, typer.Option("--seed", help="Seed of what is random.", min=0)]
DEVICE = Annotated[str, typer.Option("--device", help="emulator, or cuda for the first GPU.")]
ARCH = Annotated[str, typer.Option("--arch", help="Architecture of the emulated GPU; without it the module's own.")]
CHECKS = Annotated[bool, typer.Option("--checks/--no-checks", help="Races, bounds, uninitialised reads, barriers.")]
SCHEDULE = Annotated[str, typer.Option(help="Order of the fragments: canonical, reversed or a seed.")]
SECONDS = Annotated[float, typer.Option("--max-seconds", help="Seconds before a launch is stopped.", min=0.01)]
BUDGET = Annotated[
    int,
    typer.Option("--budget", help="Instructions before a launch is stopped; one run by many threads is one.", min=1),
]
# about a minute of a loop that never ends, and far more than kernels of the usual size need
STEPS = 10_000_000
JSON = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]
HTML = Annotated[Path | None, typer.Option("--html", help="Write the result to this file, as a page to open.")]
TRACE = Annotated[
    Path | None, typer.Option("--trace", help="Write the warps' swimlane to this file, for ui.perfetto.dev.")
]
OUT = Annotated[Path | None, typer.Option("--out", "-o", help="Write the arrays the kernel wrote to this .npz file.")]


def read_module(file: Path) -> Module:
    """The module of a file."""
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise BenchError(f"{file}: {error.strerror or error}") from None
    try:
        module: Module = ptx.parse(text)
    except KernbenchError as error:
        raise BenchError(f"{file}: {error}") from None
    return module


@app.command("info")
def info(file: FILE) -> None:
    """Kernels with their parameters, registers and shared memory, the instructions they use, and what ptxas says."""
    module = read_module(file)
    console = results()
    version = ".".join(map(str, module.version))
    console.print(f"{file}: version {version}, target {', '.join(module.target)}, {module.address_size}-bit addresses")
    resources = _resources(module)
    for kernel in module.kernels.values():
        _show_kernel(console, kernel, resources)
    for function in module.functions.values():
        console.print(f"device function {function.name}{'' if function.body else ' (declared only)'}")


def _resources(module: Module) -> dict[str, Any]:
    try:
        return dict(ptx.assemble(module, arch=module.arch).kernels)
    except KernbenchError as error:
        errors().print(f"no figures of ptxas: {error}", soft_wrap=True)
        return {}


def _show_kernel(console: Any, kernel: Kernel, resources: dict[str, Any]) -> None:
    table = Table(title=f"kernel {kernel.name}", title_justify="left")
    for column in ("parameter", "type", "bytes", "alignment"):
        table.add_column(column)
    for p in kernel.params:
        table.add_row(p.name, p.type + "".join(f"[{n}]" for n in p.dims), str(p.size), str(p.alignment))
    console.print(table)
    demands = {"block": kernel.reqntid, "at most a block of": kernel.maxntid, "cluster": kernel.cluster}
    for name, value in demands.items():
        if value is not None:
            console.print(f"  {name} {'x'.join(map(str, value))}")
    if kernel.name in resources:
        console.print(f"  ptxas: {_amounts(resources[kernel.name])}")
    counts = Counter(i.opcode for i in instructions(kernel.function.body))
    told = ", ".join(f"{opcode} {count}" for opcode, count in counts.most_common())
    console.print(f"  {sum(counts.values()):,} instructions: {told}", soft_wrap=True)


def _amounts(resources: Any) -> str:
    """Registers, spills and bytes, as a sentence."""
    return ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in asdict(resources).items())


def instructions(block: Block | None) -> list[Instruction]:
    """All instructions of a body, in order."""
    found: list[Instruction] = []
    waiting: list[Any] = list(reversed(block.statements)) if block is not None else []
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, Block):
            waiting.extend(reversed(statement.statements))
        elif isinstance(statement, Instruction):
            found.append(statement)
    return found


@app.command("emit")
def emit(
    file: FILE, out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this file.")] = None
) -> None:
    """Parse a file and print it again in its stable form."""
    text = read_module(file).emit()
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_bytes(out, text.encode("utf-8", errors="surrogateescape"))


@app.command("check")
def check(
    file: FILE,
    launch: LAUNCH = None,
    kernel: KERNEL = "",
    grid: GRID = "",
    block: BLOCK = "",
    cluster: CLUSTER = "",
    shared: SHARED = 0,
    elements: ELEMENTS_OPTION = ELEMENTS,
    seed: SEED = None,
    arch: ARCH = "",
    max_seconds: SECONDS = 600.0,
    budget: BUDGET = STEPS,
    trace: TRACE = None,
    html: HTML = None,
    stop_at: STOP_AT_PTX = None,
    dump: DUMP = None,
) -> None:
    """Is it PTX, does the target have every instruction, and is a launch safe? Says yes, or every problem.

    Without --launch arguments are made at random, which shows less: describe them for a kernel that reads indices.
    Where warps work in a pipeline of mbarriers, shows its roles and stages: who completes and who awaits which phase.
    """
    for option, path in (("--trace", trace), ("--html", html), ("--dump", dump)):
        _check_folder(option, path)
    check_options(stop_at, dump)
    module = read_module(file)
    validate(module)
    results().print(f"{file}: good PTX for {module.arch}: {', '.join(module.kernels) or 'no kernels'}")
    described = _described(launch, kernel, grid, block, shared, seed, cluster)
    options: dict[str, Any] = {"budget": Budget(budget, max_seconds)}
    _maybe_stop(stop_at, dump, None, module, described, "emulator", arch, elements, options)
    result = _launch(module, described, "emulator", arch, elements, options)
    if "pipeline" in result.views:
        results().print(pipeline_text(result.views["pipeline"]), highlight=False, soft_wrap=True)
    _write_trace(trace, result)
    if html is not None:
        write_page(html, str(result.origin["kernel"]), [(str(result.origin["kernel"]), result)])
    _tell(result)


@app.command("run")
def run(
    file: FILE,
    launch: LAUNCH = None,
    kernel: KERNEL = "",
    grid: GRID = "",
    block: BLOCK = "",
    cluster: CLUSTER = "",
    shared: SHARED = 0,
    elements: ELEMENTS_OPTION = ELEMENTS,
    seed: SEED = None,
    device: DEVICE = "emulator",
    arch: ARCH = "",
    checks: CHECKS = True,
    schedule: SCHEDULE = "canonical",
    max_seconds: SECONDS = 600.0,
    budget: BUDGET = STEPS,
    out: OUT = None,
    json: JSON = None,
    trace: TRACE = None,
    html: HTML = None,
    stop_at: STOP_AT_PTX = None,
    dump: DUMP = None,
    first_wrong: FIRST_WRONG_PTX = False,
) -> None:
    """Run a kernel of a PTX file: is it right (where the launch file says what to expect), is it safe, what did it do.

    Exit code 0 if it is, 1 on findings or a wrong result, 2 on misuse.
    """
    for option, path in (("--out", out), ("--json", json), ("--trace", trace), ("--html", html), ("--dump", dump)):
        _check_folder(option, path)
    check_options(stop_at, dump)
    module = read_module(file)
    described = _described(launch, kernel, grid, block, shared, seed, cluster)
    options: dict[str, Any] = {"budget": Budget(budget, max_seconds)}
    if device == "emulator":
        options |= {"checks": checks, "schedule": int(schedule) if schedule.isdecimal() else schedule}
    _maybe_stop(stop_at, dump, json, module, described, device, arch, elements, options)
    comparing = _comparing(first_wrong, stop_at, device, described, options)
    result = _launch(module, described, device, arch, elements, options)
    _view(result, comparing)
    _finish(result, out, json, trace, html)


@app.command("mutate")
def mutate(
    file: FILE,
    launch: LAUNCH = None,
    kernel: KERNEL = "",
    grid: GRID = "",
    block: BLOCK = "",
    cluster: CLUSTER = "",
    shared: SHARED = 0,
    elements: ELEMENTS_OPTION = ELEMENTS,
    seed: SEED = None,
    arch: ARCH = "",
    max_seconds: SECONDS = 60.0,
    budget: BUDGET = STEPS,
    every: Annotated[bool, typer.Option("--every", help="Show the mutants that were told apart, too.")] = False,
    json: JSON = None,
) -> None:
    """Drop or alter each synchronisation instruction, one at a time: do the checks tell it, or is it harmless?

    Let loops turn often enough to use every stage of a pipeline three times. Exit code 1 if a mutant survives: nothing
    tells it from the kernel, and yet its accesses are ordered otherwise.
    """
    _check_folder("--json", json)
    module = read_module(file)
    described = _described(launch, kernel, grid, block, shared, seed, cluster)

    def launched(mutant: Kernel, **options: Any) -> Run:
        options["budget"] = Budget(budget, max_seconds)
        return _launch(mutant.module, described, "emulator", arch, elements, options, quiet=True)

    def told(verdict: Verdict) -> None:
        if every or verdict.outcome in ("harmless", "equivalent", "survivor"):
            results().print(str(verdict), highlight=False, markup=False, soft_wrap=True)

    proof = prove(choose_kernel(module, described.kernel), launched, told=told)
    results().print(str(proof), highlight=False, soft_wrap=True)
    if json is not None:
        write_json(json, proof.to_dict())
    raise typer.Exit(FOUND if proof.survivors else RIGHT_AND_SAFE)


def _check_folder(option: str, path: Path | None) -> None:
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise BenchError(f"{option} {path}: there is no folder {path.parent} to write it to, or it is one itself")


def _write_trace(trace: Path | None, result: Run) -> None:
    if trace is None:
        return
    if result.timeline is None:
        errors().print(f"no trace {trace}: the kernel has no mbarriers, or was not followed on this device")
        return
    write_bytes(trace, trace_bytes(result.timeline))
    results().print(f"wrote {trace}: the warps' swimlane in logical order; open it at ui.perfetto.dev", soft_wrap=True)


@app.command("launch")
def launch_artefact(
    path: Annotated[
        Path, typer.Argument(help="A folder of Triton's cache, a .json or .ptx in it, or a .ptx of CuTe DSL.")
    ],
    launch: LAUNCH = None,
    grid: GRID = "",
    cluster: CLUSTER = "",
    elements: ELEMENTS_OPTION = ELEMENTS,
    seed: SEED = None,
    device: DEVICE = "emulator",
    max_seconds: SECONDS = 600.0,
    budget: BUDGET = STEPS,
    out: OUT = None,
    json: JSON = None,
    trace: TRACE = None,
    html: HTML = None,
    stop_at: STOP_AT_PTX = None,
    dump: DUMP = None,
    first_wrong: FIRST_WRONG_PTX = False,
) -> None:
    """Launch what a compiler left in its cache: block, cluster, shared memory and types come from its metadata.

    Only the grid, sizes and values are yours: --grid, and a launch file whose [args.NAME] are the names of the source.
    """
    for option, file in (("--out", out), ("--json", json), ("--trace", trace), ("--html", html), ("--dump", dump)):
        _check_folder(option, file)
    check_options(stop_at, dump)
    found = read_artefact(path)
    module = read_module(found.ptx)
    base = _described(launch, "", grid, "", 0, seed, cluster)
    described = found.described(base, choose_kernel(module, base.kernel or found.kernel), elements)
    options: dict[str, Any] = {"budget": Budget(budget, max_seconds)}
    _maybe_stop(stop_at, dump, json, module, described, device, "", elements, options)
    comparing = _comparing(first_wrong, stop_at, device, described, options)
    result = _launch(module, described, device, "", elements, options)
    _view(result, comparing)
    _finish(result, out, json, trace, html)


def _comparing(
    wanted: bool, stop_at: str | None, device: str, described: LaunchFile, options: dict[str, Any]
) -> Intermediates | None:
    """Who compares what the kernel holds on its way, if that is asked for; the launch's options are told."""
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


def _view(result: Run, comparing: Intermediates | None) -> None:
    if comparing is not None:
        result.views["first_wrong"] = comparing.view()


def _finish(result: Run, out: Path | None, json: Path | None, trace: Path | None, html: Path | None) -> None:
    if json is not None:
        write_json(json, result.to_dict())
    if out is not None:
        _write_arrays(out, result)
    _write_trace(trace, result)
    if html is not None:
        write_page(html, str(result.origin["kernel"]), [(str(result.origin["kernel"]), result)])
    _tell(result)


def _write_arrays(out: Path, result: Run) -> None:
    with out.open("wb") as stream:
        arrays: dict[str, Any] = {name: np.asarray(array) for name, array in result.outputs.items()}
        np.savez(stream, **arrays)


def _described(
    launch: Path | None, kernel: str, grid: str, block: str, shared: int, seed: int | None, cluster: str
) -> LaunchFile:
    """The launch file with what the command line says over it."""
    base = read_launch_file(launch) if launch is not None else LaunchFile()
    return replace(
        base,
        kernel=kernel or base.kernel,
        grid=_extent("--grid", grid) or base.grid or (1,),
        block=_extent("--block", block) or base.block,
        shared_bytes=shared or base.shared_bytes,
        seed=base.seed if seed is None else seed,
        cluster=_extent("--cluster", cluster) or base.cluster,
    )


def _extent(option: str, text: str) -> tuple[int, ...]:
    if not text:
        return ()
    parts = text.replace("x", ",").split(",")
    if len(parts) > 3 or not all(p.strip().isdecimal() and int(p) for p in parts):
        raise BenchError(f"{option} {text!r}: one to three whole numbers from 1 on are wanted, such as 16,4")
    return tuple(map(int, parts))


def _launch(
    module: Module,
    described: LaunchFile,
    device: str,
    arch: str,
    elements: int,
    options: dict[str, Any],
    quiet: bool = False,
) -> Run:
    chosen = choose_kernel(module, described.kernel)
    on = _device(device, arch or module.arch)
    arguments = Arguments(on, chosen, described, elements)
    for note in () if quiet else arguments.notes:
        errors().print(f"not described, so made up: {note}", soft_wrap=True)
    block = described.block or chosen.reqntid or (32,)
    if described.cluster:
        options = {**options, "cluster": described.cluster}
    result: Run = on.launch(chosen, described.grid, block, arguments.values, described.shared_bytes, **options)
    result.comparison = arguments.compare(result) or None
    return result


def _maybe_stop(
    stop_at: str | None,
    dump: Path | None,
    json: Path | None,
    module: Module,
    described: LaunchFile,
    device: str,
    arch: str,
    elements: int,
    options: dict[str, Any],
) -> None:
    """Where a place to stop at is named: run until there, and do not return."""
    if stop_at is None:
        return
    if device != "emulator":
        raise BenchError("--stop-at: a launch on real hardware cannot be stopped inside; leave --device away")
    stop_and_tell(
        stop_at,
        dump,
        json,
        described.kernel or next(iter(module.kernels), ""),
        lambda stopper: _launch(module, described, device, arch, elements, {**options, "stop": stopper}),
    )


def _device(name: str, arch: str) -> Any:
    if name == "emulator":
        return ptx.EmulatedDevice(arch=arch)
    if name == "cuda":
        return ptx.CudaDevice(0)
    raise BenchError(f"--device {name!r}: emulator or cuda")


def _tell(result: Run) -> None:
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
    for name, array in result.outputs.items():
        console.print(f"  wrote {name}: {'x'.join(map(str, array.shape))} {array.dtype}")
    left = result.views.get("first_wrong", {}).get("wrong") is not None
    raise typer.Exit(RIGHT_AND_SAFE if result.ok and not left else FOUND)
