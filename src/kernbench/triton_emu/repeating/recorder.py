"""What loops and routines ask of the engine that records a program."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kernbench.result.finding import SourceLocation
from kernbench.result.recording import CommandRow, Rows, Stream
from kernbench.triton_emu.pe.scratch import ScratchPool
from kernbench.triton_emu.stacking.forms import Compute, Value

if TYPE_CHECKING:
    from kernbench.triton_emu.repeating.loops import Watch

__kernbench_internal__ = True


# how a value came about: its number, what computes it, and of each operand the number, or NONE and what it is
Traced = tuple[int, Compute, Sequence[tuple[int, Value]]]


class Recorder(Protocol):
    """A program as far as it is recorded: commands, views, scratch memory."""

    stream: Stream
    steps: int
    watch: "Watch"
    folds: bool
    folds_values: bool
    folded_wrongly: bool
    # whether messages of a repeated routine were passed before its rows were recorded
    passed_unseen: bool
    trace: list[Traced] | None
    # what a loop may only name, not change
    opaque: tuple[type, ...]
    tl: Any
    refused: dict[tuple[str, str, str, SourceLocation], None]
    adopted: int
    ids_asked: int
    # the port, in the place of which one stands that counts while loops are watched
    _port: Any
    _scratch: ScratchPool
    _rows: Rows[CommandRow]
    _views_made: int
    _max_steps: int
    _checkpoint: int
