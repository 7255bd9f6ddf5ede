"""Barriers and fences."""

from typing import Any

from kernbench.ptx.builder.issue import Condition, Issuer, Value

__kernbench_internal__ = True


class Barrier(Issuer):
    """What orders threads, and what orders memory."""

    def bar_sync(self, id: Value = 0, count: Value | None = None, *, pred: Condition | None = None) -> None:
        """Wait until all threads of the block (or `count` of them) are at barrier `id`."""
        self.issue("bar", {"mode": "sync"}, _given(id, count), pred=pred)

    def bar_arrive(self, id: Value, count: Value, *, pred: Condition | None = None) -> None:
        """Be counted at barrier `id` without waiting."""
        self.issue("bar", {"mode": "arrive"}, (id, count), pred=pred)

    def bar_red(self, op: str, p: Condition, id: Value = 0, count: Value | None = None, **how: Any) -> Any:
        """Wait, and combine a predicate over all threads: "and", "or" give a predicate, "popc" a number."""
        slots = {"mode": "red", "op": op, "type": "u32" if op == "popc" else "pred"}
        return self.issue("bar", slots, (*_given(id, count), p), **how)

    def bar_warp_sync(self, mask: Value | None = None, *, pred: Condition | None = None) -> None:
        """Wait for the lanes of `mask`, and order their memory."""
        if mask is None:
            raise self.error("bar.warp.sync needs mask=, the lanes that take part: 0xffffffff for the whole warp")
        self.issue("bar", {"warp": True, "sync": True}, (mask,), pred=pred)

    def barrier_sync(self, id: Value = 0, count: Value | None = None, *, aligned: bool = False, **how: Any) -> None:
        """As `bar_sync`, for threads of a warp that come one by one."""
        self.issue("barrier", {"mode": "sync", "aligned": aligned}, _given(id, count), **how)

    def barrier_arrive(self, id: Value, count: Value, *, aligned: bool = False, **how: Any) -> None:
        """As `bar_arrive`, for threads of a warp that come one by one."""
        self.issue("barrier", {"mode": "arrive", "aligned": aligned}, (id, count), **how)

    def cluster_arrive(self, *, sem: str | None = None, aligned: bool = False) -> None:
        """Be counted at the cluster's barrier."""
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


def _given(id: Value, count: Value | None) -> tuple[Value, ...]:
    return (id,) if count is None else (id, count)
