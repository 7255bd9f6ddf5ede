"""Grids: ids are a snake, neighbours are mutual, distances are hops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.errors import MisuseError
from kernbench.machine import OPPOSITE, STEPS, Grid

grids = st.builds(Grid, st.integers(1, 9), st.integers(1, 9))
directions = st.sampled_from("NSEW")


@st.composite
def grid_and_ids(draw: st.DrawFn, count: int) -> tuple[Grid, list[int]]:
    grid = draw(grids)
    return grid, [draw(st.integers(0, grid.size - 1)) for _ in range(count)]


@given(grids)
def test_a_cycle_meets_every_cell_once_over_neighbours(grid: Grid) -> None:
    walk = grid.cycle()
    if grid.size % 2 or min(grid.rows, grid.columns) < 2:
        assert walk is None
        return
    assert walk is not None
    assert sorted(walk) == list(range(grid.size))
    assert all(grid.distance(a, b) == 1 for a, b in zip(walk, walk[1:] + walk[:1], strict=True))


def test_snake_order_of_two_rows() -> None:
    grid = Grid(2, 4)
    assert [grid.position(i) for i in range(8)] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (1, 2), (1, 1), (1, 0)]


def test_compass() -> None:
    grid = Grid(3, 3)
    centre = grid.id_at(1, 1)
    assert {d: grid.position(grid.neighbour(centre, d) or 0) for d in "NSEW"} == {
        "N": (0, 1),
        "S": (2, 1),
        "E": (1, 2),
        "W": (1, 0),
    }


@pytest.mark.parametrize(("id", "outside"), [(0, "NW"), (2, "NE"), (5, "SW"), (3, "SE")])
def test_no_neighbour_beyond_the_edge(id: int, outside: str) -> None:
    assert {d for d in STEPS if Grid(2, 3).neighbour(id, d) is None} == set(outside)


def test_east_on_an_odd_row_counts_down() -> None:
    assert Grid(2, 4).neighbour(6, "E") == 5


@given(grids)
def test_ids_and_positions_are_a_bijection(grid: Grid) -> None:
    positions = [grid.position(i) for i in range(grid.size)]
    assert sorted(positions) == [(r, c) for r in range(grid.rows) for c in range(grid.columns)]
    assert [grid.id_at(*position) for position in positions] == list(range(grid.size))


@given(grids)
def test_consecutive_ids_are_adjacent(grid: Grid) -> None:
    for i in range(grid.size - 1):
        assert grid.distance(i, i + 1) == 1
        assert i + 1 in {grid.neighbour(i, d) for d in STEPS}


@given(grid_and_ids(1), directions)
def test_neighbours_are_mutual(case: tuple[Grid, list[int]], direction: str) -> None:
    grid, [here] = case
    there = grid.neighbour(here, direction)
    if there is not None:
        assert grid.neighbour(there, OPPOSITE[direction]) == here
        assert grid.distance(here, there) == 1


@given(grid_and_ids(3))
def test_distance_is_a_metric(case: tuple[Grid, list[int]]) -> None:
    grid, [a, b, c] = case
    assert grid.distance(a, b) == grid.distance(b, a)
    assert (grid.distance(a, b) == 0) == (a == b)
    assert grid.distance(a, c) <= grid.distance(a, b) + grid.distance(b, c)


def test_farthest_corners() -> None:
    grid = Grid(4, 4)
    assert grid.distance(grid.id_at(0, 0), grid.id_at(3, 3)) == 6


@pytest.mark.parametrize("id", [-1, 8])
def test_id_outside(id: int) -> None:
    with pytest.raises(MisuseError, match=rf"id {id} is outside the 2x4 grid; its ids are 0 to 7"):
        Grid(2, 4).position(id)


def test_position_outside() -> None:
    message = "row 2, column 0 is outside the 2x4 grid; rows are 0 to 1, columns 0 to 3"
    with pytest.raises(MisuseError, match=message):
        Grid(2, 4).id_at(2, 0)


def test_unknown_direction() -> None:
    with pytest.raises(MisuseError, match=r"unknown direction 'n'; known: N, S, E, W\."):
        Grid(2, 4).neighbour(0, "n")


def test_empty_grid() -> None:
    with pytest.raises(MisuseError, match="a grid of 0x4 has no cells"):
        Grid(0, 4)
