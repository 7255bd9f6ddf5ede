"""One launch on two devices: the verdict on the memory they leave, and the instruction at which they diverge."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from kernbench.common.dtypes import Array
from kernbench.common.errors import KernbenchError
from kernbench.ptx.comparing.fusing import pairs_to_fuse, with_roundings
from kernbench.ptx.comparing.order import where_order_shows
from kernbench.ptx.comparing.search import Launched, SearchError, find_parting
from kernbench.ptx.comparing.verdicts import FUSED, IDENTICAL, NOT_COMPARED, ORDER, Verdict, compare_arrays
from kernbench.ptx.text.module import Kernel


class NotComparedError(KernbenchError):
    """A launch did not run to its end on one of the devices."""


class Left(NamedTuple):
    """The results of a launch: arrays by name, and the rows of the trace if the kernel is traced."""

    arrays: Mapping[str, Array]
    rows: Array | None = None


class Side(Protocol):
    """One of the devices; a launch always starts from the same bytes, whatever was run before."""

    name: str

    def run(self, kernel: Kernel, rows: Array | None = None) -> Left:
        """Run the launch with `kernel`; `rows`, if given, are its last parameter. Raises `NotComparedError`."""
        ...


class CheckedSide(Side, Protocol):
    """A device that also detects races."""

    def races(self, kernel: Kernel) -> list[str]:
        """The races of the launch, in words. Raises `NotComparedError`."""
        ...


def compare_launch(launched: Launched, ours: CheckedSide, theirs: Side, search: bool = True) -> Verdict:
    """Run a launch on both devices and compare; if they differ, search for the instruction, unless `search` is off."""
    try:
        return judged(
            launched, ours.run(launched.kernel).arrays, theirs.run(launched.kernel).arrays, ours, theirs, search
        )
    except NotComparedError as problem:
        return Verdict(NOT_COMPARED, reason=str(problem))


def judged(
    launched: Launched,
    mine: Mapping[str, Array],
    others: Mapping[str, Array],
    ours: CheckedSide,
    theirs: Side,
    search: bool = True,
) -> Verdict:
    """The verdict on the results of both devices."""
    verdict = compare_arrays(mine, others)
    if verdict.outcome == IDENTICAL:
        return verdict
    if shown := where_order_shows(launched.kernel):
        more = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        return replace(verdict, outcome=ORDER, reason=f"the order of threads shows at {shown[0]}{more}")
    if not search:
        return verdict
    return (
        _raced(verdict, launched, ours)
        or _fused(verdict, launched, mine, theirs)
        or _explained(verdict, launched, ours, theirs)
    )


def _raced(verdict: Verdict, launched: Launched, ours: CheckedSide) -> Verdict | None:
    """The verdict if the launch has a race, also between lanes of one store; else None."""
    try:
        races = ours.races(launched.kernel)
    except NotComparedError:
        return None
    if not races:
        return None
    more = f" (and {len(races) - 1} more)" if len(races) > 1 else ""
    return replace(verdict, outcome=ORDER, reason=f"the launch has a race: {races[0]}{more}")


def _fused(verdict: Verdict, launched: Launched, mine: Mapping[str, Array], theirs: Side) -> Verdict | None:
    """The verdict if the other device gives our bytes as soon as nothing may be fused; else None."""
    pairs = pairs_to_fuse(launched.kernel)
    if not pairs:
        return None
    try:
        rounded = theirs.run(with_roundings(launched.kernel)).arrays
    except NotComparedError:
        return None
    if compare_arrays(mine, rounded).outcome != IDENTICAL:
        return None
    more = f" (and {len(pairs) - 1} more)" if len(pairs) > 1 else ""
    reason = f"a multiplication and an addition may be fused there, and with `.rn` the bytes are the same: {pairs[0]}"
    return replace(verdict, outcome=FUSED, reason=reason + more)


def _explained(verdict: Verdict, launched: Launched, ours: Side, theirs: Side) -> Verdict:
    try:
        parting = find_parting(launched, _runner(ours), _runner(theirs))
    except (SearchError, NotComparedError) as problem:
        return replace(verdict, reason=f"the instruction was not found: {problem}")
    if parting is None:
        return replace(verdict, reason="all results that are recorded agree: the difference comes from elsewhere")
    return replace(verdict, reason=str(parting), first=parting.to_dict())


def _runner(side: Side) -> Callable[[Kernel, Array], Array]:
    def run(kernel: Kernel, rows: Array) -> Array:
        left = side.run(kernel, rows).rows
        assert left is not None
        return left

    return run
