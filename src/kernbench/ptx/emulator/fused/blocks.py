"""Fuses the steps of a basic block: consecutive ones become runs, stretches, and parts of chains."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kernbench.ptx.emulator.fused.chain_code import targets_of
from kernbench.ptx.emulator.fused.chains import Chain, Stretch
from kernbench.ptx.emulator.fused.marked import Marked
from kernbench.ptx.emulator.fused.runs import Run
from kernbench.ptx.emulator.program.steps import Direct, Exchanged, General, Step

# maximal steps and exchanges of a chain, and its blocks: longer chains take long to compile and gain little
_MOST_STEPS, _MOST_BLOCKS = 400, 64
# of the slots that steps from the first number on write: those that nobody reads from the second number on
Dead = Callable[[int, int], frozenset[int]]


class FusedBlock(NamedTuple):
    """A block's fused steps in both forms; `groups` has the range of steps that each direct step stands for.

    `exchanged` is the exchange of whole warps at its end, `sites` its number of instructions. It `begins` anew if lanes
    may arrive from elsewhere and wait there.
    """

    steps: tuple[Step, ...]
    direct: tuple[Direct, ...]
    general: tuple[General, ...]
    groups: tuple[tuple[int, int], ...]
    exchanged: Exchanged | None
    rank: int
    sites: int
    begins: bool

    @property
    def head(self) -> tuple[int, int]:
        """The range of its first steps, as far as a chain can take them."""
        return self.groups[0] if self.groups and self._chains(self.groups[0]) else (0, 0)

    @property
    def tail(self) -> tuple[int, int]:
        """The range of its last steps, as far as a chain can take them."""
        many = len(self.steps)
        return self.groups[-1] if self.groups and self._chains(self.groups[-1]) else (many, many)

    def _chains(self, group: tuple[int, int]) -> bool:
        return all(_is_fusible(step) for step in self.steps[group[0] : group[1]])


def _is_fusible(step: Step) -> bool:
    return step.computed is not None or step.loaded is not None


def fused(steps: Sequence[Step], dead: Dead, wanted: Dead) -> tuple[list[Direct], list[General], list[tuple[int, int]]]:
    """The two forms of a block's steps, and the range of steps that each direct step stands for.

    `dead` is called for arithmetic steps, `wanted` for ranges that include loads.
    """
    direct: list[Direct] = []
    general: list[General] = []
    groups: list[tuple[int, int]] = []
    at = 0
    while at < len(steps):
        begin = at
        while at < len(steps) and (_is_fusible(steps[at]) or steps[at].marks is not None):
            at += 1
        at = max(at, begin + 1)
        groups.append((begin, at))
        some, more = _group(steps, begin, at, dead, wanted)
        direct += some
        general += more
    return direct, general, groups


def _group(
    steps: Sequence[Step], begin: int, end: int, dead: Dead, wanted: Dead
) -> tuple[Sequence[Direct], Sequence[General]]:
    """Steps that can be fused, or a single one that cannot."""
    plain = [number for number in range(begin, end) if steps[number].marks is None]
    if len(plain) == end - begin or not plain:
        return _plain_group(steps, begin, end, dead, wanted)
    direct, general = _plain_group([steps[number] for number in plain], 0, len(plain), _nothing, _nothing)
    marked = Marked(tuple(steps[begin:end]), tuple(direct), tuple(general))
    return [marked.direct], [marked.general]


def _nothing(begin: int, end: int) -> frozenset[int]:
    """With undefined-value tracking, any register may be read."""
    return frozenset()


def _plain_group(
    steps: Sequence[Step], begin: int, end: int, dead: Dead, wanted: Dead
) -> tuple[list[Direct], list[General]]:
    plain, general = _runs(steps, begin, end, dead)
    if len(plain) > 1 and end - begin <= _MOST_STEPS:
        chain = Chain((tuple(steps[begin:end]),), (), wanted(begin, end), 0, 0, 0)
        plain = [Stretch(chain, tuple(plain)).direct]
    return plain, general


def _runs(steps: Sequence[Step], begin: int, end: int, dead: Dead) -> tuple[list[Direct], list[General]]:
    """Steps with consecutive arithmetic ones as runs."""
    direct: list[Direct] = []
    general: list[General] = []
    at = begin
    while at < end:
        first = at
        while at < end and steps[at].computed is not None:
            at += 1
        if at > first:
            run = Run(tuple(steps[first:at]), dead(first, at))
            direct.append(run.direct)
            general.append(run.general)
            continue
        at = first + 1
        direct.append(steps[first].direct)
        general.append(steps[first].general)
    return direct, general


# the same across blocks: of the slots written between two (block, step) positions, and of some exchanged ones
DeadOver = Callable[[tuple[int, int], tuple[int, int], Sequence[int]], frozenset[int]]


def chained(blocks: Sequence[FusedBlock], dead: DeadOver) -> dict[int, Chain]:
    """The chains of a function's blocks, by first block."""
    found: dict[int, Chain] = {}
    at = 0
    while at < len(blocks):
        last = _last_of(blocks, at)
        if last > at:
            found[at] = _chain(blocks, at, last, dead)
        at = max(last, at + 1)
    return found


def _last_of(blocks: Sequence[FusedBlock], first: int) -> int:
    """The last block of a chain that begins in a block; the block itself if there is no chain."""
    last, many = first, len(blocks[first].steps) - blocks[first].tail[0]
    while blocks[last].exchanged is not None and last + 1 < len(blocks) and last - first < _MOST_BLOCKS:
        following = blocks[last + 1]
        many += following.head[1] + 1
        if following.begins or following.rank <= blocks[last].rank or many > _MOST_STEPS:
            break
        last += 1
        if following.head[1] < len(following.steps):
            break
    return last


def _chain(blocks: Sequence[FusedBlock], first: int, last: int, dead: DeadOver) -> Chain:
    begin, end = blocks[first].tail[0], blocks[last].head[1]
    pieces = [blocks[first].steps[begin:], *(one.steps for one in blocks[first + 1 : last]), blocks[last].steps[:end]]
    exchanges = [one.exchanged for one in blocks[first:last] if one.exchanged is not None]
    covered = 1 if begin < len(blocks[first].steps) else 0
    sites = sum(one.sites for one in blocks[first + 1 : last + 1])
    unread = dead((first, begin), (last, end), [slot for one in exchanges for slot in targets_of(one)])
    at = len(blocks[first].direct) - covered
    return Chain(tuple(pieces), tuple(exchanges), unread, at, 1 if end else 0, sites)
