"""Checks of the arguments of submits; invalid ones are refused at the orchestration's line."""

from collections.abc import Callable, Sequence
from operator import index

from kernbench.npu.isa.model import ChipModel
from kernbench.npu.isa.units import AIC
from kernbench.npu.tasks.fifo import Fifo
from kernbench.npu.tasks.task import Arg, Context, Create
from kernbench.npu.tasks.tensors import Tensor

__kernbench_internal__ = True
MOST_TENSORS, MOST_SCALARS = 32, 16
# the runtime counts the parts of a task, one for each lane of each block, in 16 bits
MOST_PARTS = 2**15 - 1
Kernel = Callable[..., object]


def check_submit(
    context: Context, kernels: dict[int, Kernel], blocks: int, sync_start: bool, args: Sequence[object]
) -> None:
    """Check kernels, blocks and arguments of one submit."""
    if not kernels or not all(map(callable, kernels.values())):
        context.fail("misuse", "a task needs a kernel, a function: submit(aic=..., aiv=...)")
    if isinstance(blocks, bool) or not hasattr(blocks, "__index__") or blocks < 1:
        context.fail("misuse", f"block_num {blocks!r}: a task has at least one block")
    # NumPy integers would overflow
    if index(blocks) * len(kernels) > MOST_PARTS:
        context.fail(
            "misuse",
            f"block_num {blocks:,}: a task with {len(kernels)} lanes has at most {MOST_PARTS // len(kernels):,} blocks",
            "let a block do more, in a loop, or submit several tasks",
        )
    if sync_start:
        _check_together(context, kernels, blocks)
    check_args(context, args)
    _check_fifos(context, kernels, args)


def most_together(chip: ChipModel, lanes: Sequence[int]) -> tuple[int, str]:
    """How many blocks with these lanes run at the same time, and the name of the unit that limits it."""
    if len(lanes) == 1 and lanes[0] != AIC:
        return chip.aivs, "AIVs"
    return chip.clusters.count, "clusters"


def _check_together(context: Context, kernels: dict[int, Kernel], blocks: int) -> None:
    most, of_what = most_together(context.chip, list(kernels))
    if blocks > most:
        context.fail(
            "misuse",
            f"sync_start with {blocks} blocks: they start together, and the chip has {most} {of_what}",
            "submit fewer blocks, or leave sync_start out",
        )


def check_args(context: Context, args: Sequence[object]) -> None:
    """Check the number of arguments, and that tensors have a direction."""
    tensors = sum(isinstance(a, (Arg, Create)) for a in args)
    fifos = sum(isinstance(a, Fifo) for a in args)
    scalars = len(args) - tensors - fifos
    if tensors > MOST_TENSORS or scalars > MOST_SCALARS:
        context.fail(
            "misuse",
            f"{tensors} tensors and {scalars} scalars: a task takes at most {MOST_TENSORS} and {MOST_SCALARS}",
        )
    if any(isinstance(a, Tensor) for a in args):
        context.fail("misuse", "a tensor in args needs a direction: IN(t), OUT(t) or INOUT(t)")


def _check_fifos(context: Context, kernels: dict[int, Kernel], args: Sequence[object]) -> None:
    vectors = len(kernels) - 1
    for fifo in args:
        if isinstance(fifo, Fifo) and (AIC not in kernels or not vectors):
            context.fail("misuse", "a FIFO needs a mixed task: an aic kernel and at least one aiv kernel")
        if isinstance(fifo, Fifo) and fifo.shape[0] % vectors:
            context.fail(
                "shape",
                f"{fifo.describe()}: {vectors} vector lanes cannot share {fifo.shape[0]} rows evenly",
                "make the rows of the FIFO a multiple of the lanes; tiles may be smaller",
            )
