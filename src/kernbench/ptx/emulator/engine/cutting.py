"""How the batches of a launch are cut into parts, so that all workers end as early as possible.

A part has a fixed cost, whatever its width: its instructions are interpreted once for all of it, in Python. So there
are few parts. Each worker takes the widest part that is left; a part belongs to one batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

# the sizes of the parts of each batch, in the order of what they hold
Plan = list[list[int]]

# pieces of batches must run alike, and else are run again: how much slower than with the best plan they may be
_NEARLY = 1.1
# how often the length of a plan is halved in search of the shortest
_HALVED = 12


def cut(batches: Sequence[int], jobs: int, fixed: float) -> Plan:
    """Batches of these sizes, the first of which is the largest, in the fewest parts that end nearly as soon as any.

    `fixed` is what a part costs whatever its size. As many batches as there are workers, or a multiple of that, may be
    run whole; those that are left are cut alike, or so that each worker has as much to do.
    """
    whole_of_all = len(batches) // jobs * jobs
    # of many batches those that would be left are as many as workers, or fewer
    wholes = (0, whole_of_all) if len(batches) < 2 * jobs else (whole_of_all,)
    choices = [choice for whole in wholes for choice in _choices(batches, whole, jobs, fixed)]
    best = min(choice.length for choice in choices)
    nearly = [choice for choice in choices if choice.length <= _NEARLY * best]
    return min(nearly, key=lambda choice: (choice.parts, choice.length)).plan()


@dataclass(frozen=True, slots=True)
class _Choice:
    """A plan that may be made, how long it takes and how many parts it has."""

    length: float
    parts: int
    plan: Callable[[], Plan]


def _choices(batches: Sequence[int], whole: int, jobs: int, fixed: float) -> Iterator[_Choice]:
    """Plans that run so many batches whole."""
    most, left = batches[0], batches[whole:]
    begun = whole // jobs * (most + fixed)
    if not left:
        yield _Choice(begun, whole, partial(_whole, batches))
        return
    lengths = []
    # more than a piece for each worker is never sooner
    for pieces in range(1, min(most, jobs) + 1):
        rounds = -(-len(left) * pieces // jobs)
        lengths.append(begun + rounds * (-(-most // pieces) + fixed))
        yield _Choice(lengths[-1], whole + len(left) * pieces, partial(_divided, batches, whole, pieces))
    length, filled = _filled(left, jobs, fixed, min(lengths) - begun)
    if filled:
        count = whole + sum(map(len, filled))
        yield _Choice(begun + length, count, lambda: [*_whole(batches[:whole]), *filled])


def _whole(batches: Sequence[int]) -> Plan:
    return [[size] for size in batches]


def _divided(batches: Sequence[int], whole: int, pieces: int) -> Plan:
    """So many batches whole, and the others in so many pieces each."""
    return [*_whole(batches[:whole]), *(_alike(size, pieces) for size in batches[whole:])]


def _alike(size: int, pieces: int) -> list[int]:
    """So many pieces that differ by one at most; none is empty."""
    each, more = divmod(size, pieces)
    return [each + 1] * more + [each] * (pieces - more if each else 0)


def _filled(batches: Sequence[int], jobs: int, fixed: float, length: float) -> tuple[float, Plan]:
    """The shortest plan in which one worker after the other is given as much as it does in that time."""
    below, found = sum(batches) / jobs, Plan()
    for _ in range(_HALVED):
        middle = (below + length) / 2
        plan = _within(batches, jobs, fixed, middle)
        if plan:
            length, found = middle, plan
        else:
            below = middle
    return length, found


def _within(batches: Sequence[int], jobs: int, fixed: float, length: float) -> Plan:
    """Parts of which each worker has so much that it ends in time; none where that cannot be."""
    plan, worker, spent = Plan(), 1, 0.0
    for size in batches:
        pieces = list[int]()
        while size:
            fits = min(size, int(length - spent - fixed))
            if fits < 1 and (not spent or worker == jobs):
                return Plan()
            if fits < 1:
                worker, spent = worker + 1, 0.0
                continue
            pieces.append(fits)
            size, spent = size - fits, spent + fits + fixed
        plan.append(pieces)
    return plan


def halved(plan: Plan) -> Plan:
    """Each part in two."""
    return [[half for size in pieces for half in _alike(size, 2)] for pieces in plan]
