"""Arguments and options that several PTX commands share."""

from pathlib import Path
from typing import Annotated

import typer

FILE = Annotated[Path, typer.Argument(metavar="FILE", help="A PTX file.")]
LAUNCH = Annotated[
    Path | None,
    typer.Option("--launch", "-l", metavar="FILE", help="A TOML file that describes grid, block and arguments."),
]
KERNEL = Annotated[
    str, typer.Option("--kernel", "-k", metavar="NAME", help="The kernel, where the module has several.")
]
GRID = Annotated[str, typer.Option("--grid", metavar="X,Y,Z", help="Blocks: x, or x,y, or x,y,z; without it one.")]
BLOCK = Annotated[
    str,
    typer.Option("--block", metavar="X,Y,Z", help="Threads of a block; without it what the kernel demands, else 32."),
]
CLUSTER = Annotated[
    str, typer.Option("--cluster", metavar="X,Y,Z", help="Blocks of a cluster; without it what the kernel demands.")
]
SHARED = Annotated[
    int | None,
    typer.Option(
        "--shared",
        metavar="BYTES",
        help="Bytes of dynamic shared memory; without it, where nothing else says, all that a block may have.",
        min=0,
    ),
]
ELEMENTS = Annotated[int, typer.Option("--elements", metavar="N", help="Size of arrays that nothing describes.", min=1)]
SEED = Annotated[
    int | None, typer.Option("--seed", metavar="N", help="Seed of what is random; without it the launch file's.", min=0)
]
DEVICE = Annotated[str, typer.Option("--device", metavar="DEVICE", help="emulator, or cuda for the first GPU.")]
ARCH = Annotated[
    str,
    typer.Option(
        "--arch", metavar="SM", help="Architecture of the emulated GPU, such as sm_90a; without it the module's own."
    ),
]
CHECKS = Annotated[bool, typer.Option("--checks/--no-checks", help="Races, bounds, uninitialised reads, barriers.")]
EXACT = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Round where ptxas would (products that only sums use are fused with them). A GPU has its own bits.",
    ),
]
SCHEDULE = Annotated[
    str,
    typer.Option("--schedule", metavar="ORDER", help="Order of the fragments: canonical, eager, reversed or a seed."),
]
SECONDS = Annotated[
    float, typer.Option("--max-seconds", metavar="S", help="Seconds before a launch is stopped.", min=0.01)
]
BUDGET = Annotated[
    int,
    typer.Option(
        "--budget",
        metavar="N",
        help="Instructions before a launch is stopped; one run by many threads is one.",
        min=1,
    ),
]
# about a minute of an endless loop, and far more than usual kernels need
STEPS = 10_000_000
HTML = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the result to this file, as a page to open.")
]
TRACE = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write the warps' swimlane to this file, for ui.perfetto.dev."),
]
ARRAYS = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write the arrays the kernel wrote to this .npz file."),
]
STOP_AT = Annotated[
    str | None,
    typer.Option(
        "--stop-at",
        metavar="LOCATION",
        help="Stop inside the kernel and show what a warp holds: LINE of the PTX, FILE:LINE of the source, "
        "either with #N for the N-th time, or finding.",
    ),
]
FIRST_WRONG = Annotated[
    bool,
    typer.Option(
        "--first-wrong",
        help="Compare registers and memory at the launch file's [[checkpoint]]s with what it expects: which is the "
        "first to leave it?",
    ),
]
TIME = Annotated[
    bool, typer.Option("--time", help="Predict how long it takes on a GPU, and why; the launch is recorded for it.")
]
GPU = Annotated[
    str,
    typer.Option(
        "--gpu", metavar="NAME", help="With --time: the GPU, bundled or a TOML file; without it one that runs the code."
    ),
]
SENSITIVITY = Annotated[
    bool,
    typer.Option(
        "--sensitivity",
        help="Time the launch again for what higher rates and advice would save, however large it is.",
    ),
]
