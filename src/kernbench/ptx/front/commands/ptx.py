"""`kernbench ptx`: the group of commands that inspect, check, run and print PTX of any compiler."""

import typer

from kernbench.cli.arguments.examples import examples
from kernbench.ptx.front.commands.check import check
from kernbench.ptx.front.commands.compare_devices import compare_devices
from kernbench.ptx.front.commands.info import info
from kernbench.ptx.front.commands.launch import launch_artefact
from kernbench.ptx.front.commands.mutate import mutate
from kernbench.ptx.front.commands.printing import emit, show
from kernbench.ptx.front.commands.run import run

app = typer.Typer(
    help="PTX from any compiler: what is in it, is a launch safe and right, is each barrier needed.",
    no_args_is_help=True,
    epilog=examples("kernbench ptx check my_kernel.ptx --grid 4 --block 128"),
)
app.command(
    "info",
    short_help="Kernels, parameters, instructions, and what ptxas says.",
    epilog=examples("kernbench ptx info my_kernel.ptx"),
)(info)
app.command(
    "check",
    short_help="Is it PTX, and is a launch of it safe?",
    epilog=examples(
        "kernbench ptx check my_kernel.ptx --grid 4 --block 128",
        "kernbench ptx check my_kernel.ptx --launch my.toml --html out.html",
    ),
)(check)
app.command(
    "run",
    short_help="Run a kernel: is it right, is it safe, what did it do?",
    epilog=examples(
        "kernbench ptx run my_kernel.ptx --launch my.toml --out arrays.npz",
        "kernbench ptx run my_kernel.ptx -l my.toml --device cuda",
    ),
)(run)
app.command(
    "launch",
    short_help="Launch what Triton or CuTe DSL left in its cache.",
    epilog=examples("kernbench ptx launch ~/.triton/cache/HASH --grid 16 --launch sizes.toml"),
)(launch_artefact)
app.command(
    "compare",
    short_help="A launch on a GPU and here: the same bytes?",
    epilog=examples("kernbench ptx compare my_kernel.ptx --launch my.toml"),
)(compare_devices)
app.command(
    "mutate",
    short_help="Drop or alter each synchronisation: is it noticed, or harmless?",
    epilog=examples("kernbench ptx mutate my_kernel.ptx --launch my.toml --every"),
)(mutate)
app.command(
    "emit",
    short_help="Parse a file and print it again in its stable form.",
    epilog=examples("kernbench ptx emit my_kernel.ptx --out stable.ptx"),
)(emit)
app.command(
    "show",
    short_help="What the emulator makes of a file, as text for diff.",
    epilog=examples("kernbench ptx show --program my_kernel.ptx"),
)(show)
