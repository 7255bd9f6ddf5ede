"""Selection of blocks, to run a part of a grid."""

from collections.abc import Iterable
from math import prod
from operator import index

from kernbench.common.errors import MisuseError

Extent = tuple[int, int, int]


def read_blocks(text: str) -> tuple[int, ...]:
    """Parse block numbers such as "0-3,17"; x varies fastest in the numbering."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            raise MisuseError(f"blocks {text!r}: write numbers and ranges, as in 0-3,17") from None
        if high < low or high - low >= 1 << 20:
            raise MisuseError(
                f"blocks {part!r}: a range goes from a smaller number to a larger one, of a million at most"
            )
        found += range(low, high + 1)
    return tuple(dict.fromkeys(found))


def blocks_of(given: str | Iterable[object]) -> tuple[int, ...]:
    """Block numbers, from integers or from text such as "0-3,17"."""
    if isinstance(given, str):
        return read_blocks(given)
    try:
        found = tuple(dict.fromkeys(index(number) for number in given))  # type: ignore[arg-type]
    except TypeError:
        raise MisuseError(f"blocks={given!r}: give numbers of blocks, or a text such as '0-3,17'") from None
    if not found or min(found) < 0:
        raise MisuseError("blocks: give numbers of blocks, 0 and up")
    return found


def clusters_of(blocks: Iterable[int], grid: Extent, cluster: Extent) -> tuple[int, ...]:
    """The numbers of the clusters that contain the blocks; blocks outside the grid are ignored."""
    across = [g // c for g, c in zip(grid, cluster, strict=True)]
    chosen: dict[int, None] = {}
    for number in blocks:
        if number < prod(grid):
            x, y, z = number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])
            numbers = [value // size for value, size in zip((x, y, z), cluster, strict=True)]
            chosen[numbers[0] + across[0] * (numbers[1] + across[1] * numbers[2])] = None
    if not chosen:
        raise MisuseError(f"none of the blocks that are asked for lies in the grid {grid}")
    return tuple(chosen)
