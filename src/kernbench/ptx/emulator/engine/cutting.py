"""How the batches of a launch are cut into parts, so that all workers end as early as possible.

A part has a fixed cost, whatever its width: its instructions are interpreted once for all of it, in Python. So there
are few parts. Each worker takes the widest part that is left; a part belongs to one batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

# for each batch the sizes of its parts, in order
Plan = list[list[int]]

# Pieces of a batch must all take the same path, else they are run again. So a plan with fewer pieces is preferred if it
# is at most this much slower than the best one.
_NEARLY = 1.1
# iterations of the bisection for the shortest plan
_HALVED = 12


def cut(batches: Sequence[int], jobs: int, fixed: float) -> Plan:
    """The plan with the fewest parts that is nearly as fast as the fastest one.

    `batches` are sizes, the first is the largest; `fixed` is the fixed cost of a part, in units of size. A number of
    batches that is a multiple of the workers may be run whole. The rest is cut into equal pieces, or so that each
    worker gets the same amount.
    """
    whole_of_all = len(batches) // jobs * jobs
    # with many batches, at most as many as there are workers are left
    wholes = (0, whole_of_all) if len(batches) < 2 * jobs else (whole_of_all,)
    choices = [choice for whole in wholes for choice in _choices(batches, whole, jobs, fixed)]
    best = min(choice.length for choice in choices)
    nearly = [choice for choice in choices if choice.length <= _NEARLY * best]
    return min(nearly, key=lambda choice: (choice.parts, choice.length)).plan()


@dataclass(frozen=True, slots=True)
class _Choice:
    """A possible plan, with its duration and its number of parts."""

    length: float
    parts: int
    plan: Callable[[], Plan]


def _choices(batches: Sequence[int], whole: int, jobs: int, fixed: float) -> Iterator[_Choice]:
    """Plans that run the first `whole` batches without cutting them."""
    most, left = batches[0], batches[whole:]
    begun = whole // jobs * (most + fixed)
    if not left:
        yield _Choice(begun, whole, partial(_whole, batches))
        return
    lengths = []
    # more pieces than workers are never faster
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
    """The first `whole` batches uncut, each of the others in `pieces` pieces."""
    return [*_whole(batches[:whole]), *(_alike(size, pieces) for size in batches[whole:])]


def _alike(size: int, pieces: int) -> list[int]:
    """Sizes of `pieces` pieces that differ by at most one; empty pieces are left out."""
    each, more = divmod(size, pieces)
    return [each + 1] * more + [each] * (pieces - more if each else 0)


def _filled(batches: Sequence[int], jobs: int, fixed: float, length: float) -> tuple[float, Plan]:
    """The shortest plan that fills one worker after the other."""
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
    """Parts that fill each worker for `length` at most; an empty plan if there is none."""
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
    """The plan with each part cut in two."""
    return [[half for size in pieces for half in _alike(size, 2)] for pieces in plan]
