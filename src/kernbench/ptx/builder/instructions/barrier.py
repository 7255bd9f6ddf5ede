"""Barriers and fences."""

from typing import Unpack

from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.options import Computing, Condition, Guarded, Registers, Value

__kernbench_internal__ = True

BARRIERS, WARP = 16, 32


class Barrier(Issuer):
    """Synchronisation of threads, and ordering of memory."""

    def _barrier(self, id: Value, count: Value | None) -> tuple[Value, ...]:
        """A barrier's number and count; checked if they are constants."""
        if isinstance(id, (int, float)) and not 0 <= id < BARRIERS:
            raise self.error(f"barrier {id!r}: a block has barriers 0 to {BARRIERS - 1}")
        if isinstance(count, (int, float)) and (count <= 0 or count % WARP):
            raise self.error(f"barrier {id!r} for {count} threads: whole warps are counted, multiples of {WARP}")
        return (id,) if count is None else (id, count)

    def bar_sync(self, id: Value = 0, count: Value | None = None, *, pred: Condition | None = None) -> None:
        """Wait until all threads of the block (or `count` of them) are at barrier `id`."""
        self.issue("bar", {"mode": "sync"}, self._barrier(id, count), pred=pred)

    def bar_arrive(self, id: Value, count: Value, *, pred: Condition | None = None) -> None:
        """Arrive at barrier `id` without waiting."""
        self.issue("bar", {"mode": "arrive"}, self._barrier(id, count), pred=pred)

    def bar_red(
        self, op: str, p: Condition, id: Value = 0, count: Value | None = None, **how: Unpack[Computing]
    ) -> Registers:
        """Wait, and combine a predicate over all threads: "and", "or" give a predicate, "popc" a number."""
        slots = {**how, "mode": "red", "op": op, "type": "u32" if op == "popc" else "pred"}
        return self.issue("bar", slots, (*self._barrier(id, count), p))

    def bar_warp_sync(self, mask: Value | None = None, *, pred: Condition | None = None) -> None:
        """Wait for the lanes of `mask`, and order their memory."""
        self.issue("bar", {"warp": True, "sync": True}, (self.lanes("bar.warp.sync", mask),), pred=pred)

    def barrier_sync(
        self, id: Value = 0, count: Value | None = None, *, aligned: bool = False, **how: Unpack[Guarded]
    ) -> None:
        """As `bar_sync`, for threads of a warp that need not arrive together."""
        self.issue("barrier", {"mode": "sync", "aligned": aligned}, self._barrier(id, count), **how)

    def barrier_arrive(self, id: Value, count: Value, *, aligned: bool = False, **how: Unpack[Guarded]) -> None:
        """As `bar_arrive`, for threads of a warp that need not arrive together."""
        self.issue("barrier", {"mode": "arrive", "aligned": aligned}, self._barrier(id, count), **how)

    def cluster_arrive(self, *, sem: str | None = None, aligned: bool = False) -> None:
        """Arrive at the cluster's barrier."""
        self.issue("barrier", {"cluster": True, "mode": "arrive", "sem": sem, "aligned": aligned}, ())

    def cluster_wait(self, *, sem: str | None = None, aligned: bool = False) -> None:
        """Wait for all threads of the cluster."""
        self.issue("barrier", {"cluster": True, "mode": "wait", "sem": sem, "aligned": aligned}, ())

    def membar(self, scope: str = "gl") -> None:
        """Order this thread's memory: "cta", "gl" (the device) or "sys"."""
        self.issue("membar", {"scope": scope}, ())

    def fence(self, sem: str = "acq_rel", scope: str = "gpu") -> None:
        """Order this thread's memory: "sc" or "acq_rel", for scope "cta", "cluster", "gpu" or "sys"."""
        self.issue("fence", {"sem": sem, "scope": scope}, ())

    def fence_proxy(self, kind: str = "async", space: str | None = None) -> None:
        """Order ordinary accesses with those of another proxy: "async", "alias"."""
        self.issue("fence", {"proxy": True, "kind": kind, "space": space}, ())
