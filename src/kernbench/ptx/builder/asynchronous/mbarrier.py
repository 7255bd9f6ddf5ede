"""mbarriers: objects in shared memory that count arrivals and bytes for each phase."""

from collections.abc import Mapping
from typing import Unpack

from kernbench.ptx.builder.asynchronous.locations import Locations
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.options import Arriving, Condition, Ordering, Registers, Value, Where
from kernbench.ptx.builder.values.pointer import Location, Pointer
from kernbench.ptx.builder.values.values import Predicate, Register

__kernbench_internal__ = True

NOTHING: Mapping[str, object] = {}
MBARRIER_BYTES = 8
# the largest count of arrivals, and of outstanding bytes
LARGEST = (1 << 20) - 1
# the default order if only a scope is given
_ORDER = {"arrive": "release", "arrive_drop": "release", "test_wait": "acquire", "try_wait": "acquire"}


class Mbarriers(Locations):
    """Operations on mbarriers. A barrier is an element of an array: `full = ctx.mbarriers(2)`, `full[i]`.

    `sem` and `scope` are PTX's own; with a scope and no order, arrivals release and waits acquire.
    """

    def mbarriers(self, count: int = 1, *, name: str = "mbarrier") -> Pointer:
        """An array of barriers in shared memory; each must be initialised before it is used."""
        return self.shared("b64", count, align=MBARRIER_BYTES, name=name)

    def mbarrier_init(self, barrier: Where, count: Value, *, pred: Condition | None = None) -> None:
        """Initialise a barrier whose phases complete after `count` arrivals (and all expected bytes)."""
        self._counted("mbarrier.init: count", count, 1)
        self._mbarrier("init", barrier, (count,), pred=pred, local=True)

    def mbarrier_inval(self, barrier: Where, *, pred: Condition | None = None) -> None:
        """Invalidate a barrier, so that its memory can be reused."""
        self._mbarrier("inval", barrier, (), pred=pred, local=True)

    def mbarrier_arrive(
        self,
        barrier: Where,
        count: Value | None = None,
        *,
        state: bool = False,
        pred: Condition | None = None,
        **how: Unpack[Arriving],
    ) -> Register | None:
        """Arrive once, or `count` times; with `state=True` returns the state, which names the phase to wait for.

        `no_complete=True` asserts that this arrival does not complete the phase.
        """
        return self._arrive("arrive", barrier, count, state, pred, how)

    def mbarrier_arrive_drop(
        self,
        barrier: Where,
        count: Value | None = None,
        *,
        state: bool = False,
        pred: Condition | None = None,
        **how: Unpack[Arriving],
    ) -> Register | None:
        """Arrive, and expect one arrival less in later phases."""
        return self._arrive("arrive_drop", barrier, count, state, pred, how)

    def mbarrier_arrive_expect_tx(
        self,
        barrier: Where,
        nbytes: Value,
        *,
        state: bool = False,
        pred: Condition | None = None,
        **how: Unpack[Ordering],
    ) -> Register | None:
        """Expect so many more bytes in this phase, and arrive."""
        self._counted("mbarrier.arrive.expect_tx: nbytes", nbytes, 0)
        return self._arrive("arrive", barrier, nbytes, state, pred, {"expect_tx": True, **how})

    def mbarrier_expect_tx(
        self, barrier: Where, nbytes: Value, *, pred: Condition | None = None, **how: Unpack[Ordering]
    ) -> None:
        """Expect so many more bytes in this phase."""
        self._counted("mbarrier.expect_tx: nbytes", nbytes, 0)
        self._mbarrier("expect_tx", barrier, (nbytes,), _relaxed(how), pred=pred)

    def mbarrier_complete_tx(
        self, barrier: Where, nbytes: Value, *, pred: Condition | None = None, **how: Unpack[Ordering]
    ) -> None:
        """Count so many bytes as arrived."""
        self._counted("mbarrier.complete_tx: nbytes", nbytes, 0)
        self._mbarrier("complete_tx", barrier, (nbytes,), _relaxed(how), pred=pred)

    def mbarrier_pending_count(self, state: Register) -> Register:
        """The number of arrivals that were pending in `state`."""
        return self.issue("mbarrier", {"op": "pending_count", "type": "b64"}, (state,))  # type: ignore[no-any-return]

    def mbarrier_test_wait(
        self, barrier: Where, parity: Value | None = None, *, state: Register | None = None, **how: Unpack[Ordering]
    ) -> Predicate:
        """Whether the phase of this parity (or the one of `state`) is complete."""
        return self._wait("test_wait", barrier, parity, state, None, how)

    def mbarrier_try_wait(
        self,
        barrier: Where,
        parity: Value | None = None,
        *,
        state: Register | None = None,
        timeout: Value | None = None,
        **how: Unpack[Ordering],
    ) -> Predicate:
        """As `mbarrier_test_wait`, but suspends for a while (at most `timeout` nanoseconds) before returning false."""
        return self._wait("try_wait", barrier, parity, state, timeout, how)

    def mbarrier_wait(
        self,
        barrier: Where,
        parity: Value | None = None,
        *,
        state: Register | None = None,
        timeout: Value | None = None,
        **how: Unpack[Ordering],
    ) -> None:
        """Wait until the phase of this parity (or the one of `state`) is complete, by a loop."""
        (again,) = self.body.numbered("wait")
        location = self._barrier_at("mbarrier.try_wait", barrier, local=True)
        self.body.place(again)
        done = self._wait("try_wait", location, parity, state, timeout, how)
        self.issue("bra", {}, (again,), pred=done.inverted)

    def _arrive(
        self,
        op: str,
        barrier: Where,
        given: Value | None,
        state: bool,
        pred: Condition | None,
        how: Mapping[str, object],
    ) -> Register | None:
        how = dict(how)
        quiet = bool(how.pop("no_complete", False))
        if not how.get("expect_tx"):
            self._counted(f"mbarrier.{op}: count", 1 if given is None else given, 1)
        location = self._barrier_at(f"mbarrier.{op}", barrier)
        remote = location.space == "shared::cluster"
        if remote and state:
            raise self.error(f"mbarrier.{op} at another block gives back no state: wait by parity")
        inputs = (given,) if given is not None else (1,) if quiet else ()
        out = None if state else self.sink("b64")
        slots = {"noComplete": quiet, **_ordered(op, how)}
        made = self._mbarrier(op, location, inputs, slots, out=out, pred=pred)
        return made if state else None

    def _wait(
        self,
        op: str,
        barrier: Where,
        parity: Value | None,
        state: Register | None,
        timeout: Value | None,
        how: Mapping[str, object],
    ) -> Predicate:
        if (parity is None) == (state is None):
            raise self.error(f"mbarrier.{op} waits for a parity, or for the state= of an arrival: give one of them")
        if is_number(parity) and parity not in (0, 1):
            raise self.error(f"mbarrier.{op}: parity {parity!r}, and a parity is 0 or 1; a fresh barrier passes 1")
        inputs = (state if parity is None else parity, *(() if timeout is None else (timeout,)))
        named = {"parity": parity is not None, **_ordered(op, how)}
        return self._mbarrier(op, barrier, inputs, named, local=True)  # type: ignore[no-any-return]

    def _mbarrier(
        self,
        op: str,
        barrier: Where,
        inputs: tuple[Value | None, ...],
        slots: Mapping[str, object] = NOTHING,
        *,
        local: bool = False,
        out: Register | None = None,
        pred: Condition | None = None,
    ) -> Registers:
        location = self._barrier_at(f"mbarrier.{op}", barrier, local)
        chosen = {**slots, "op": op, "space": location.space or None, "type": "b64"}
        return self.issue("mbarrier", chosen, (location, *inputs), out=out, pred=pred)

    def _barrier_at(self, what: str, barrier: Where, local: bool = False) -> Location:
        """A barrier's location, with checks; `local` ones must be in this block."""
        location = self.shared_location(what, barrier, MBARRIER_BYTES, MBARRIER_BYTES)
        if local and location.space == "shared::cluster":
            raise self.error(f"{what} works on barriers of the own block only, and this one is another's (mapa)")
        return location

    def _counted(self, what: str, value: Value, least: int) -> None:
        if is_number(value) and not least <= value <= LARGEST:
            raise self.error(f"{what} is {value!r}, and {least} to {LARGEST} is possible")


def _ordered(op: str, how: Mapping[str, object]) -> Mapping[str, object]:
    """Modifiers, with the default order for a scope."""
    if how.get("scope") and not how.get("sem"):
        return {**how, "sem": _ORDER[op]}
    return {**how, "scope": "cta"} if how.get("sem") and not how.get("scope") else how


def _relaxed(how: Mapping[str, object]) -> Mapping[str, object]:
    """Modifiers of a relaxed operation."""
    return {**how, "sem": "relaxed", "scope": how.get("scope") or "cta"} if how else how
