"""Default budgets: the most commands that a launch may take, from the work it announces or the size of its tensors.

A bench announces its work as the time that no schedule can beat (`Bench.limits`). A PE whose CPU dispatches for
`PATIENCE` times as long misses the limit that far by its dispatches alone. Without an announcement the tensors
limit the work: attention performs about one operation on every pair of their tiles.
"""

from collections.abc import Sequence
from math import prod

from kernbench.common.dtypes import ITEMSIZE
from kernbench.machine import Machine
from kernbench.mesh.programs.tensors import Tensor

PATIENCE = 4
# bytes of a tile of 128 x 128 f16
TILE = 32 << 10
# commands for each pair of tiles: two products, a mask, and the softmax in between
FOR_A_PAIR = 24
# rows of this many commands fill the memory of a workstation
MOST_STEPS = 50_000_000


def announced(picoseconds: int, machine: Machine) -> tuple[int, str]:
    """Commands that a PE dispatches in `PATIENCE` times the announced limit of a bench, with the reason in words."""
    steps = PATIENCE * picoseconds // machine.pe.cycles_ps(max(1, machine.pe.dispatch_cycles))
    source = (
        f"what a PE dispatches in {PATIENCE} times the {picoseconds / 1e6:,.4g} us that its bench gives as its limit"
    )
    return min(steps, MOST_STEPS), source


def from_tensors(tensors: Sequence[Tensor]) -> tuple[int, str]:
    """Commands for each pair of tiles of a rank's two largest inputs, and for all tiles once."""
    tiles = sorted((_tiles(tensor) for tensor in tensors if not tensor.is_output), reverse=True)
    pairs = -(-tiles[0] // tensors[0].ranks) * tiles[1] if len(tiles) > 1 else 0
    steps = FOR_A_PAIR * (pairs + sum(map(_tiles, tensors)))
    source = f"{FOR_A_PAIR} commands for each pair of the {TILE >> 10} KiB tiles of its tensors"
    return min(steps, MOST_STEPS), source


def _tiles(tensor: Tensor) -> int:
    return -(-prod(tensor.shape) * ITEMSIZE[tensor.dtype] // TILE)
