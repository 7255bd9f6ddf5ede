"""Grids numbered in snake order: even rows left to right, odd rows right to left, so consecutive ids are adjacent."""

from dataclasses import dataclass

from kernbench.common.errors import MisuseError, unknown

STEPS: dict[str, tuple[int, int]] = {"N": (-1, 0), "S": (1, 0), "E": (0, 1), "W": (0, -1)}
OPPOSITE: dict[str, str] = {"N": "S", "S": "N", "E": "W", "W": "E"}


@dataclass(frozen=True)
class Grid:
    """`rows` x `columns` cells with ids 0 to `size` - 1; row 0 is the northern, column 0 the western edge."""

    rows: int
    columns: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise MisuseError(f"a grid of {self} has no cells; rows and columns must be at least 1")

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.rows * self.columns

    def position(self, id: int) -> tuple[int, int]:
        """(row, column) of the cell `id`."""
        if not 0 <= id < self.size:
            raise MisuseError(f"id {id} is outside the {self} grid; its ids are 0 to {self.size - 1}")
        row, along = divmod(id, self.columns)
        return row, self._column(row, along)

    def id_at(self, row: int, column: int) -> int:
        """The id of the cell at `row`, `column`."""
        if not self._holds(row, column):
            raise MisuseError(
                f"row {row}, column {column} is outside the {self} grid; "
                f"rows are 0 to {self.rows - 1}, columns 0 to {self.columns - 1}"
            )
        return row * self.columns + self._column(row, column)

    def neighbour(self, id: int, direction: str) -> int | None:
        """The id next to `id` to the N, S, E or W; None beyond the edge."""
        if direction not in STEPS:
            raise MisuseError(unknown("direction", direction, STEPS))
        row, column = self.position(id)
        down, right = STEPS[direction]
        if not self._holds(row + down, column + right):
            return None
        return self.id_at(row + down, column + right)

    def distance(self, a: int, b: int) -> int:
        """Hops between two cells over the links of the grid."""
        (row_a, column_a), (row_b, column_b) = self.position(a), self.position(b)
        return abs(row_a - row_b) + abs(column_a - column_b)

    def cycle(self) -> list[int] | None:
        """The ids along a cycle over neighbours that visits every cell once; None if the grid has none.

        There is one if the number of cells is even and both sides are at least 2: out along the first row, back and
        forth through the others without their first column, and back through that column.
        """
        if self.size % 2 or self.rows < 2 or self.columns < 2:
            return None
        if self.rows % 2:
            turned = Grid(self.columns, self.rows)
            walk = [turned.position(id)[::-1] for id in turned.cycle() or ()]
        else:
            walk = [(0, column) for column in range(self.columns)]
            for row in range(1, self.rows):
                inner = range(1, self.columns)
                walk += [(row, column) for column in (inner if row % 2 == 0 else reversed(inner))]
            walk += [(row, 0) for row in reversed(range(1, self.rows))]
        return [self.id_at(row, column) for row, column in walk]

    def _holds(self, row: int, column: int) -> bool:
        return 0 <= row < self.rows and 0 <= column < self.columns

    def _column(self, row: int, along: int) -> int:
        """The column of the cell `along` the snake in `row`; its own inverse."""
        return along if row % 2 == 0 else self.columns - 1 - along
