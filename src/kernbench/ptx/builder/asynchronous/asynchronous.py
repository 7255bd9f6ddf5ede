"""Asynchronous copies of single threads from global to shared memory (cp.async)."""

from typing import Unpack

from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.options import Condition, Copying, Value, Where
from kernbench.ptx.builder.values.pointer import location_of

__kernbench_internal__ = True


class Asynchronous(Issuer):
    """cp.async and its groups."""

    def cp_async(
        self,
        to: Where,
        source: Where,
        nbytes: int,
        valid: Value | None = None,
        *,
        ignore: Condition | None = None,
        mask: Condition | None = None,
        **how: Unpack[Copying],
    ) -> None:
        """Start a copy of 4, 8 or 16 bytes to shared memory; with `valid` only so many bytes, the rest zeros.

        If the predicate `ignore` holds, nothing is read and zeros are written. 16-byte copies bypass the L1 cache
        (`cop="cg"`) unless `cop="ca"` is given.
        """
        if nbytes not in (4, 8, 16):
            raise self.error(f"cp.async copies 4, 8 or 16 bytes, not {nbytes!r}")
        for location, wanted in ((location_of(to), "shared"), (location_of(source), "global")):
            if location is None or location.space.partition("::")[0] not in (wanted, ""):
                raise self.error(f"cp.async copies from global to shared memory, and {wanted} is {location!r}")
        policy = how.pop("policy", None)
        if valid is not None and ignore is not None:
            raise self.error("cp.async takes valid= or ignore=, not both: valid=0 ignores the source, too")
        if ignore is not None:
            self.body.needs.feature("cp.async that ignores its source", 80, (7, 5), self.body.here())
        slots: dict[str, object] = {
            "async": True,
            "cop": "cg" if nbytes == 16 else "ca",
            "dst": "shared",
            "src": "global",
            **how,
        }
        if policy is not None:
            slots["hint"] = "L2::cache_hint"
        limit = valid if ignore is None else ignore
        given = [to, source, nbytes, *([] if limit is None else [limit]), *([] if policy is None else [policy])]
        self.issue("cp", slots, given, pred=mask)

    def cp_async_commit(self) -> None:
        """Put the copies started since the last commit into a group."""
        self.issue("cp", {"async": True, "op": "commit_group"}, ())

    def cp_async_wait(self, groups: int = 0) -> None:
        """Wait until at most `groups` of this thread's groups are in flight."""
        self.issue("cp", {"async": True, "op": "wait_group"}, (groups,))

    def cp_async_wait_all(self) -> None:
        """Wait for all copies of this thread."""
        self.issue("cp", {"async": True, "op": "wait_all"}, ())

    def cp_async_mbarrier_arrive(self, barrier: Where, *, noinc: bool = False, pred: Condition | None = None) -> None:
        """Arrive at a barrier when this thread's copies so far are done; `noinc` if the arrival is already counted."""
        location = location_of(barrier)
        if location is None or location.space not in ("shared", "shared::cta", ""):
            raise self.error(f"cp.async.mbarrier.arrive: {barrier!r} is no barrier in the block's shared memory")
        slots: dict[str, object] = {
            "async": True,
            "mbarrier": True,
            "arrive": True,
            "noinc": noinc,
            "space": location.space or None,
        }
        self.issue("cp", {**slots, "type": "b64"}, (location,), pred=pred)
