"""The position of a rank on the grid of ranks: rows from the north, columns from the west, ids along the snake."""

from kernbench.common.errors import MisuseError
from kernbench.machine.grid import Grid


class GridPosition:
    """A rank's row and column on a grid that the ranks fill."""

    def __init__(self, rank: int, n_ranks: int, columns: int):
        self.columns = min(columns, n_ranks)
        if n_ranks % self.columns:
            raise MisuseError(f"{n_ranks} ranks do not fill whole rows of {columns}")
        self.rows = n_ranks // self.columns
        self.grid = Grid(self.rows, self.columns)
        self.row, self.column = self.grid.position(rank)
