"""The steps of a block as they are run: those that follow each other become runs, stretches, and parts of chains."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kernbench.ptx.emulator.fused.chain_code import targets_of
from kernbench.ptx.emulator.fused.chains import Chain, Stretch
from kernbench.ptx.emulator.fused.marked import Marked
from kernbench.ptx.emulator.fused.runs import Run
from kernbench.ptx.emulator.program.steps import Direct, Exchanged, General, Step

# steps and exchanges of one chain, and its blocks: longer ones take long to compile, and gain little by it
_MOST_STEPS, _MOST_BLOCKS = 400, 64
# the slots that nobody reads from one step on, of those that steps from another on write
Dead = Callable[[int, int], frozenset[int]]


class FusedBlock(NamedTuple):
    """A block's steps in both forms; `groups` says which steps each of the direct form stands for.

    `exchanged` is what whole warps exchange at its end, `sites` how many instructions it has; where lanes may come from
    elsewhere and wait, it `begins` anew.
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
        """The steps that it begins with, as far as they are part of a chain."""
        return self.groups[0] if self.groups and self._chains(self.groups[0]) else (0, 0)

    @property
    def tail(self) -> tuple[int, int]:
        """The same at its end."""
        many = len(self.steps)
        return self.groups[-1] if self.groups and self._chains(self.groups[-1]) else (many, many)

    def _chains(self, group: tuple[int, int]) -> bool:
        return all(_is_fusible(step) for step in self.steps[group[0] : group[1]])


def _is_fusible(step: Step) -> bool:
    return step.computed is not None or step.loaded is not None


def fused(steps: Sequence[Step], dead: Dead, wanted: Dead) -> tuple[list[Direct], list[General], list[tuple[int, int]]]:
    """The two forms of a block's steps, and which steps each of the direct form stands for.

    `dead` is asked for steps that only compute, `wanted` for those that load, too.
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
    """Steps that may become one, or a single one that may not."""
    plain = [number for number in range(begin, end) if steps[number].marks is None]
    if len(plain) == end - begin or not plain:
        return _plain_group(steps, begin, end, dead, wanted)
    direct, general = _plain_group([steps[number] for number in plain], 0, len(plain), _nothing, _nothing)
    marked = Marked(tuple(steps[begin:end]), tuple(direct), tuple(general))
    return [marked.direct], [marked.general]


def _nothing(begin: int, end: int) -> frozenset[int]:
    """What follows undefined values may look at any register."""
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
    """Steps as runs of those that compute."""
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


# the same over blocks: of those slots that steps from a step of a block on write, and of some that are exchanged
DeadOver = Callable[[tuple[int, int], tuple[int, int], Sequence[int]], frozenset[int]]


def chained(blocks: Sequence[FusedBlock], dead: DeadOver) -> dict[int, Chain]:
    """The chains of a function's blocks, by the block that each begins in."""
    found: dict[int, Chain] = {}
    at = 0
    while at < len(blocks):
        last = _last_of(blocks, at)
        if last > at:
            found[at] = _chain(blocks, at, last, dead)
        at = max(last, at + 1)
    return found


def _last_of(blocks: Sequence[FusedBlock], first: int) -> int:
    """The last block of a chain that begins in a block; the block itself where none does."""
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
