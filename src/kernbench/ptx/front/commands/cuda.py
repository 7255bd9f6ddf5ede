"""`kernbench cuda check`: compiles CUDA C++ to PTX with nvcc or NVRTC, then checks it as `kernbench ptx check` does."""

import re
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.arguments.options import STRICT
from kernbench.cli.output.document import JSON
from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.doors.cuda_source import compile_to_ptx
from kernbench.ptx.front import launch_file
from kernbench.ptx.front.commands.check import check
from kernbench.ptx.front.commands.options import (
    BLOCK,
    BUDGET,
    CLUSTER,
    ELEMENTS,
    EXACT,
    GPU,
    GRID,
    HTML,
    LAUNCH,
    SECONDS,
    SEED,
    SENSITIVITY,
    SHARED,
    STEPS,
    TIME,
    TRACE,
)


class Action(StrEnum):
    """What `kernbench cuda` can do with a source file."""

    CHECK = "check"


ACTION = Annotated[Action, typer.Argument(metavar="check", help="Is a launch of a kernel safe?")]
SOURCE = Annotated[Path, typer.Argument(metavar="FILE.cu", help="A file of CUDA C++.")]
KERNEL = Annotated[
    str,
    typer.Option("--kernel", "-k", metavar="NAME", help="The kernel; a template with its arguments: 'f<float, 4>'."),
]
ARCH = Annotated[str, typer.Option("--arch", metavar="SM", help="Architecture it is compiled for and runs on.")]
ARGUMENTS = Annotated[
    list[str] | None,
    typer.Option("--arg", metavar="WHAT", help="An argument, in order: float[4,100], half[64]=zeros, or a number."),
]
OPTIONS = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="FLAG", help="A flag for the compiler, such as -DN=4 or -std=c++20."),
]
_TYPES = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "__half": "f16",
    "__nv_bfloat16": "bf16",
    "char": "i8",
    "short": "i16",
    "int": "i32",
    "long": "i64",
    "unsigned": "u32",
}
_KNOWN = (
    "f16",
    "bf16",
    "f32",
    "f64",
    "f8e4m3",
    "f8e5m2",
    *(f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)),
)
_ARRAY = re.compile(r"(\w+)\[(\d+(?:,\d+)*)\](?:=(.+))?")


def cuda(
    action: ACTION,
    file: SOURCE,
    kernel: KERNEL = "",
    arch: ARCH = "sm_90a",
    arg: ARGUMENTS = None,
    option: OPTIONS = None,
    launch: LAUNCH = None,
    grid: GRID = "",
    block: BLOCK = "",
    cluster: CLUSTER = "",
    shared: SHARED = None,
    elements: ELEMENTS = launch_file.ELEMENTS,
    seed: SEED = None,
    max_seconds: SECONDS = 600.0,
    budget: BUDGET = STEPS,
    exact: EXACT = False,
    json: JSON = None,
    trace: TRACE = None,
    html: HTML = None,
    time: TIME = False,
    gpu: GPU = "",
    sensitivity: SENSITIVITY = False,
    strict: STRICT = False,
) -> None:
    """Compile CUDA C++ and check a launch of one of its kernels; findings, and with --time where the time goes, stand
    at lines of the source.

    nvcc compiles where it is there, else NVRTC (pip install nvidia-cuda-nvrtc). Arguments are described by --arg, one
    for each parameter, or in a launch file as for PTX; others are made up.
    """
    if arg and launch is not None:
        raise MisuseError("--arg and --launch both describe arguments: give one of them")
    compiled = compile_to_ptx(file, arch, kernel, option or ())
    with tempfile.TemporaryDirectory(prefix="kernbench-cuda-") as work:
        made = Path(work, f"{file.stem}.ptx")
        made.write_text(compiled.text)
        described = launch
        if arg:
            described = Path(work, "launch.toml")
            described.write_text(arguments_toml(arg))
        shape = {"grid": grid, "block": block, "cluster": cluster, "shared": shared}
        values = {"launch": described, "elements": elements, "seed": seed}
        limits = {"max_seconds": max_seconds, "budget": budget, "exact": exact}
        results = {"json": json, "trace": trace, "html": html, "stop_at": None, "dump": None, "strict": strict}
        timing = {"time": time, "gpu": gpu, "sensitivity": sensitivity}
        check(file=made, kernel=compiled.kernel, arch=arch, **shape, **values, **limits, **timing, **results)


def arguments_toml(arguments: list[str]) -> str:
    """The text of a launch file that describes arguments by their index."""
    return "\n".join(f"[args.{number}]\n{_described(text)}\n" for number, text in enumerate(arguments))


def _described(text: str) -> str:
    array = _ARRAY.fullmatch(text.replace(" ", ""))
    if array is None:
        try:
            return f"value = {_number(text)}"
        except ValueError:
            raise MisuseError(
                f"--arg {text}: write a number, or an array as in float[4,100] or half[64]=zeros"
            ) from None
    kind = _TYPES.get(array[1], array[1])
    if kind not in _KNOWN:
        raise MisuseError(unknown("type", array[1], [*_TYPES, *_KNOWN]))
    fill = array[3] or "normal"
    try:
        quoted = str(_number(fill))
    except ValueError:
        quoted = f'"{fill}"'
    return f'dtype = "{kind}"\nshape = [{array[2]}]\nfill = {quoted}'


def _number(text: str) -> int | float:
    """An integer as in Python (0x1e, too), or a float, as text; the same spelling is TOML."""
    try:
        return int(text, 0)
    except ValueError:
        return float(text)
