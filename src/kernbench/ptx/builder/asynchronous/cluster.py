"""Clusters of blocks, fences between proxies, election of a lane, and reallocation of registers between warps."""

from kernbench.ptx.builder.asynchronous.locations import Locations
from kernbench.ptx.builder.values.options import Condition, Registers, Value, Where
from kernbench.ptx.builder.values.pointer import Pointer, location_of
from kernbench.ptx.builder.values.values import Predicate, Register

__kernbench_internal__ = True

_WHOLE_WARP = 0xFFFFFFFF
_TENSOR_MAP_BYTES = 128


class Cluster(Locations):
    """Instructions for blocks of a cluster and for warps with different roles."""

    def mapa(self, pointer: Where, rank: Value) -> Registers:
        """The same location in the shared memory of the cluster's block `rank`; a pointer gives a pointer."""
        slots = {"space": "shared::cluster", "type": "u32"}
        if isinstance(pointer, Register):
            return self.issue("mapa", slots, (pointer, rank), keep=pointer.type)
        location = location_of(pointer)
        if location is None or location.space not in ("shared", "shared::cta"):
            raise self.error(f"mapa takes a location in shared memory of the own block, not {pointer!r}")
        base = self.issue("mapa", slots, (location.base, rank))
        return Pointer(base, location.type or "b8", "shared::cluster", location.offset, location.name)

    def cluster_sync(self, *, aligned: bool = True) -> None:
        """Synchronise all threads of the cluster, and their memory: arrive and wait."""
        for mode, sem in (("arrive", "release"), ("wait", "acquire")):
            self.issue("barrier", {"cluster": True, "mode": mode, "sem": sem, "aligned": aligned}, ())

    def elect_one(self, mask: Value = _WHOLE_WARP) -> Predicate:
        """A predicate that holds in one lane of the mask; all its lanes must execute this."""
        out = ((self.sink("u32"), self.reg("pred")),)
        made: Registers = self.issue("elect", {"sync": True}, (mask,), out=out[0])
        return made[1]  # type: ignore[no-any-return]

    def setmaxnreg_inc(self, count: int) -> None:
        """Increase the registers of this warp's threads to `count`; waits until they are available."""
        self._setmaxnreg("inc", count)

    def setmaxnreg_dec(self, count: int) -> None:
        """Decrease the registers of this warp's threads to `count`."""
        self._setmaxnreg("dec", count)

    def _setmaxnreg(self, op: str, count: int) -> None:
        if not isinstance(count, int) or not 24 <= count <= 256 or count % 8:
            raise self.error(f"setmaxnreg of {count!r}: a multiple of 8 from 24 to 256 is wanted")
        self.issue("setmaxnreg", {"op": op, "sync": True, "aligned": True, "type": "u32"}, (count,))

    def griddepcontrol_wait(self) -> None:
        """Wait until the grids that this one depends on are complete and their memory is visible."""
        self.issue("griddepcontrol", {"op": "wait"}, ())

    def griddepcontrol_launch_dependents(self) -> None:
        """Allow the grids that depend on this one to start."""
        self.issue("griddepcontrol", {"op": "launch_dependents"}, ())

    def fence_proxy_async(self, space: str | None = "shared::cta", *, pred: Condition | None = None) -> None:
        """Order this thread's ordinary accesses before later ones of copies and tensor cores.

        `space` is "shared::cta", "shared::cluster", "global", or None for all.
        """
        self.issue("fence", {"proxy": True, "kind": "async", "space": space}, (), pred=pred)

    def fence_proxy_async_generic(self, sem: str, *, pred: Condition | None = None) -> None:
        """The one-sided form between a cluster's blocks: "release" of own shared memory, or "acquire" of all."""
        ours = {"release": "sync_restrict::shared::cta", "acquire": "sync_restrict::shared::cluster"}
        if sem not in ours:
            raise self.error(f"fence.proxy.async::generic: sem is {sem!r}; known: release, acquire")
        slots = {"proxy": True, "kind": "async::generic", "sem": sem, "restrict": ours[sem], "scope": "cluster"}
        self.issue("fence", slots, (), pred=pred)

    def fence_mbarrier_init(self, *, pred: Condition | None = None) -> None:
        """Make the barriers that this thread initialised visible to the cluster and to copies."""
        self.issue("fence", {"mbarrier_init": True, "sem": "release", "scope": "cluster"}, (), pred=pred)

    def fence_proxy_tensormap(
        self, sem: str, tensor_map: Where | None = None, scope: str = "gpu", *, pred: Condition | None = None
    ) -> None:
        """Order changes of a tensor map: "release" after them, "acquire" (with the map) before copies that use it."""
        slots = {"proxy": True, "kind": "tensormap::generic", "sem": sem, "scope": scope}
        if (sem == "acquire") != (tensor_map is not None):
            raise self.error("fence.proxy.tensormap: an acquire names the tensor map, a release does not")
        given = () if tensor_map is None else (location_of(tensor_map), _TENSOR_MAP_BYTES)
        self.issue("fence", slots, given, pred=pred)
