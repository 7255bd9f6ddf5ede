"""`kernbench npu`: test classes of folders with C++ kernels."""

import typer

from kernbench.cli.arguments.examples import examples
from kernbench.npu.front.commands.mutate import mutate
from kernbench.npu.front.commands.scenes import run_scenes

app = typer.Typer(
    help="Folders of C++ kernels with their test classes: are they right, are they safe, how long do they take.",
    no_args_is_help=True,
    epilog=examples("kernbench npu test my_kernel --platform a2a3"),
)


@app.callback()
def _several() -> None:
    """Folders of C++ kernels with their test classes: are they right, are they safe, how long do they take."""


app.command(
    "test",
    short_help="Run the cases of @scene_test classes.",
    epilog=examples(
        "kernbench npu test my_kernel --platform a2a3",
        "kernbench npu test my_kernel/test_it.py --case all --set batch=2",
    ),
)(run_scenes)
app.command(
    "mutate",
    short_help="Leave out each flag and barrier: is it noticed, or harmless?",
    epilog=examples("kernbench npu mutate my_kernel --platform a2a3 --case Small"),
)(mutate)
