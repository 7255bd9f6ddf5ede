"""`kernbench ptx compare`: one launch on a GPU and on the emulator, bit for bit."""

from typing import Annotated

import typer

from kernbench import ptx
from kernbench.cli.arguments.grouped import grouped
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, check_targets, errors, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.ptx.comparing.devices import CUDA, DeviceSide, Given, LaunchingDevice, Opening, opening_of
from kernbench.ptx.comparing.launches import compare_launch
from kernbench.ptx.comparing.search import Launched
from kernbench.ptx.comparing.verdicts import IDENTICAL, Verdict
from kernbench.ptx.front.commands.asked import LaunchAsked, LimitsAsked
from kernbench.ptx.front.commands.launching import described_launch, dynamic_shared, read_module
from kernbench.ptx.front.commands.options import ARCH, FILE
from kernbench.ptx.front.launch_file import Arguments, LaunchFile, choose_kernel
from kernbench.ptx.launching.device_base import launch_shape
from kernbench.ptx.names.demangling import title
from kernbench.ptx.text.module import Kernel
from kernbench.safety.budget import Budget

OTHER = Annotated[
    str,
    typer.Option(
        "--with", metavar="DEVICE", help="cuda, the first GPU, or MODULE:FUNCTION, which opens another device."
    ),
]
SEARCH = Annotated[
    bool, typer.Option("--search/--no-search", help="Where they differ: look for the first instruction that does.")
]
# outcome -> its meaning
MEANINGS = {
    "identical": "all bytes are the same",
    "rounding": "floats differ by no more than rounding may",
    "different": "results differ by more than rounding",
    "order": "results differ, and the order of threads shows: not compared",
    "not compared": "not compared",
}


@grouped
def compare_devices(
    file: FILE,
    *,
    asked: LaunchAsked,
    arch: ARCH = "",
    other: OTHER = CUDA,
    search: SEARCH = True,
    limits: LimitsAsked,
    json: JSON = None,
) -> None:
    """Run a launch on a GPU and on the emulator (with --exact), from the same bytes, and compare what they leave.

    Where they differ, the kernel is run again with a record of its results, until the first instruction is found whose
    result is another one: its line, thread, operands and both results. Exit code 0 if all bytes are the same.
    """
    check_targets({"--json": json})
    module = read_module(file)
    described = described_launch(asked)
    kernel = choose_kernel(module, described.kernel)
    verdict = _compared(kernel, described, arch or module.arch, asked.elements, other, search, limits.limits)
    console = results()
    console.print(f"{title(kernel.name)}: {verdict.outcome}: {MEANINGS[verdict.outcome]}", highlight=False)
    for text in describe(verdict):
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    data = {"file": str(file), "kernel": title(kernel.name), "device": other, **verdict.to_dict()}
    write_document(json, "ptx compare", data)
    raise typer.Exit(RIGHT_AND_SAFE if verdict.outcome == IDENTICAL else FOUND)


def describe(verdict: Verdict) -> list[str]:
    """Lines that describe the arrays that differ, and the reason."""
    return [*(f"  {one}" for one in verdict.differences), *([verdict.reason] if verdict.reason else [])]


def _compared(
    kernel: Kernel, described: LaunchFile, arch: str, elements: int, other: str, search: bool, budget: Budget
) -> Verdict:
    emulator = ptx.EmulatedDevice(arch)
    types = emulator.element_types(kernel)
    sample = Arguments(emulator, kernel, described, elements, types)
    shared, notes = dynamic_shared(emulator, kernel, described.shared_bytes)
    block = described.block or kernel.reqntid or (32,)
    for note in (*sample.notes, *notes, *([] if described.block or kernel.reqntid else ["a block of 32 threads"])):
        errors().print(f"not described, so made up: {note}", soft_wrap=True)
    grid, threads, _ = launch_shape(described.grid, block, described.cluster or None, kernel)
    addresses = tuple(p.name for p, value in zip(kernel.params, sample.values, strict=True) if not _is_number(value))
    launched = Launched(kernel, grid, threads, addresses, sample.has_pointers)
    options: dict[str, object] = {"budget": budget} | ({"cluster": described.cluster} if described.cluster else {})

    def given(device: LaunchingDevice) -> Given:
        made = Arguments(device, kernel, described, elements, types)
        return Given(made.values, made.arrays)

    def side(name: str, opening: Opening, **more: object) -> DeviceSide:
        return DeviceSide(name, opening, given, grid, threads, shared, {**options, **more})

    ours = side("the emulator", lambda: ptx.EmulatedDevice(arch), checks=False, exact=True)
    return compare_launch(launched, ours, side(other, opening_of(other)), search)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
