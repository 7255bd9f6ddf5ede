"""Bulk copies and tensor copies (TMA) between global and shared memory, and reductions into memory.

Loads complete on an mbarrier that expects their bytes; stores and reductions belong to groups of the issuing thread:
`bulk_commit` ends a group, `bulk_wait` waits for groups.
"""

from collections.abc import Mapping, Sequence
from typing import Unpack

from kernbench.ptx.builder.asynchronous.locations import Locations
from kernbench.ptx.builder.values.banks import memory_type
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.options import Condition, Guarded, Tensor, Value, Values, Where
from kernbench.ptx.builder.values.pointer import Location, Pointer, location_of
from kernbench.ptx.builder.values.values import Register
from kernbench.ptx.text.module import Name

__kernbench_internal__ = True

_ON_BARRIER = "mbarrier::complete_tx::bytes"
_GATHERS = ("tile::gather4", "tile::scatter4")
# alignment in shared memory of a tensor copy's box, and of a bulk copy
BOX_ALIGNMENT, BULK_ALIGNMENT = 128, 16
TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64
_NOTED = {"add": ("f16", "bf16")}


class Copies(Locations):
    """`policy` is a 64-bit cache policy, `multicast` a 16-bit mask of the cluster's blocks, `pred` a guard."""

    # Tensor maps

    def tensor_map(self, name: str) -> Pointer:
        """The address of a tensor map that is a parameter, declared with `.param("tensormap", name)`."""
        variable = self._parameter(name)
        if variable.size != TENSOR_MAP_BYTES or (variable.alignment or 1) < TENSOR_MAP_ALIGNMENT:
            raise self.error(f"parameter {name!r} is no tensor map: declare it with .param('tensormap', {name!r})")
        made = self.reg("u64")
        self.move(made, Name(name), (), "u64")
        slots = {"space": "param", "type": "u64"}
        return Pointer(self.issue("cvta", slots, (made,)), "b8", "", 0, name)

    def prefetch_tensormap(self, tensor_map: Where, *, pred: Condition | None = None) -> None:
        """Prefetch a tensor map before its first use."""
        self.issue("prefetch", {"tensormap": True}, (self._map("prefetch.tensormap", tensor_map),), pred=pred)

    def tensormap_replace(
        self, field: str, tensor_map: Where, value: Value, *, index: int | None = None, pred: Condition | None = None
    ) -> None:
        """Change one field of a tensor map in shared or global memory: "global_address", "global_dim", ..."""
        location = self._map("tensormap.replace", tensor_map)
        wide = "b64" if field in ("global_address", "global_stride") else "b32"
        slots = {"replace": True, "mode": "tile", "field": field, "object": "b1024", "type": wide}
        slots["space"] = {"shared": "shared::cta"}.get(location.space, location.space) or None
        self.issue("tensormap", slots, (location, *(() if index is None else (index,)), value), pred=pred)

    def tensormap_copy_fence(self, to: Where, source: Where, scope: str = "gpu") -> None:
        """Copy a tensor map from shared to global memory, and release it to tensor copies; all lanes of the warp."""
        slots = {"cp_fenceproxy": True, "dst": "global", "src": "shared::cta", "kind": "tensormap::generic"}
        slots |= {"sem": "release", "scope": scope, "sync": True, "aligned": True}
        given = self.global_location("tensormap.cp_fenceproxy", to, TENSOR_MAP_BYTES)
        held = self.shared_location("tensormap.cp_fenceproxy", source, TENSOR_MAP_BYTES, TENSOR_MAP_BYTES)
        self.issue("tensormap", slots, (given, held, TENSOR_MAP_BYTES))

    # Tensor copies

    def tma_load(
        self,
        to: Where,
        tensor_map: Where,
        coordinates: Sequence[Value],
        barrier: Where,
        *,
        multicast: Value | None = None,
        policy: Value | None = None,
        offsets: Sequence[Value] | None = None,
        pred: Condition | None = None,
        **how: Unpack[Tensor],
    ) -> None:
        """Start a copy of the map's box at `coordinates` (innermost first) to shared memory, completing on `barrier`.

        `mode` ("tile::gather4", "im2col" with `offsets`), `group` ("cta_group::2") and `dst` are PTX's own.
        """
        what = "cp.async.bulk.tensor"
        dst = self.shared_location(what, to, BOX_ALIGNMENT)
        box = self._box(what, tensor_map, coordinates)
        slots = {"tensor": True, "dim": self._dim(what, coordinates, how), "dst": "shared::cluster", "src": "global"}
        slots |= {"completion": _ON_BARRIER, **how}
        more = () if offsets is None else (tuple(offsets),)
        self._bulk(slots, (dst, box, self._mbar(what, barrier), *more), multicast, policy, pred)

    def tma_store(
        self,
        tensor_map: Where,
        coordinates: Sequence[Value],
        source: Where,
        *,
        policy: Value | None = None,
        pred: Condition | None = None,
        **how: Unpack[Tensor],
    ) -> None:
        """Start a copy of shared memory to the map's box at `coordinates`; elements outside the tensor are skipped."""
        self._from_shared({}, tensor_map, coordinates, source, policy, pred, how)

    def tma_reduce(
        self,
        op: str,
        tensor_map: Where,
        coordinates: Sequence[Value],
        source: Where,
        *,
        policy: Value | None = None,
        pred: Condition | None = None,
        **how: Unpack[Tensor],
    ) -> None:
        """Start a reduction of shared memory into the map's box: add, min, max, inc, dec, and, or, xor."""
        self._from_shared({"reduce": True, "op": op}, tensor_map, coordinates, source, policy, pred, how)

    def _from_shared(
        self,
        slots: dict[str, object],
        tensor_map: Where,
        coordinates: Sequence[Value],
        source: Where,
        policy: Value | None,
        pred: Condition | None,
        how: Tensor,
    ) -> None:
        what = "cp.reduce.async.bulk.tensor" if slots else "cp.async.bulk.tensor"
        box = self._box(what, tensor_map, coordinates)
        held = self.shared_location(what, source, BOX_ALIGNMENT)
        slots = {**slots, "tensor": True, "dim": self._dim(what, coordinates, how), "dst": "global"}
        slots |= {"src": "shared::cta", "completion": "bulk_group", **how}
        self._bulk(slots, (box, held), None, policy, pred)

    def tma_prefetch(
        self,
        tensor_map: Where,
        coordinates: Sequence[Value],
        *,
        policy: Value | None = None,
        offsets: Sequence[Value] | None = None,
        pred: Condition | None = None,
        **how: Unpack[Tensor],
    ) -> None:
        """Prefetch the map's box at `coordinates` to the L2 cache."""
        what = "cp.async.bulk.prefetch.tensor"
        box = self._box(what, tensor_map, coordinates)
        slots = {"prefetch": True, "tensor": True, "dim": self._dim(what, coordinates, how), "level": "L2"}
        more = () if offsets is None else (tuple(offsets),)
        self._bulk({**slots, "src": "global", **how}, (box, *more), None, policy, pred)

    # Bulk copies

    def cp_async_bulk(
        self,
        to: Where,
        source: Where,
        nbytes: Value,
        barrier: Where | None = None,
        *,
        multicast: Value | None = None,
        policy: Value | None = None,
        byte_mask: Value | None = None,
        pred: Condition | None = None,
    ) -> None:
        """Start a copy of bytes: global to shared memory, shared memory to another block's, shared to global memory.

        The first two complete on `barrier`, the last in a bulk group.
        """
        what = "cp.async.bulk"
        self.nbytes_of(what, nbytes)
        outward = self._is_shared(source) and not self._is_shared(to)
        if outward != (barrier is None):
            raise self.error(
                f"{what} to global memory completes in a bulk group, not on a barrier: leave barrier out, wait with "
                "ctx.bulk_wait"
                if outward
                else f"{what} to shared memory completes on a barrier: give one"
            )
        slots: dict[str, object] = {"dst": "global" if outward else "shared::cluster"}
        slots["src"] = "shared::cta" if self._is_shared(source) else "global"
        slots |= {"completion": "bulk_group" if outward else _ON_BARRIER, "cp_mask": byte_mask is not None}
        ends = (self._bytes_at(what, location, nbytes) for location in (to, source))
        given = (*ends, nbytes, *(() if outward else (self._mbar(what, barrier),)))
        tail = () if byte_mask is None else (byte_mask,)
        self._bulk(slots, given, multicast, policy, pred, tail)

    def cp_reduce_async_bulk(
        self,
        op: str,
        to: Where,
        source: Where,
        nbytes: Value,
        barrier: Where | None = None,
        *,
        type: str | None = None,
        policy: Value | None = None,
        pred: Condition | None = None,
    ) -> None:
        """Start a reduction of shared memory into global memory, or (with a barrier) into another block's."""
        what = "cp.reduce.async.bulk"
        self.nbytes_of(what, nbytes)
        ends = [self._bytes_at(what, location, nbytes) for location in (to, source)]
        kind = type or ends[0].type or ends[1].type
        if not kind:
            raise self.error(f"{what}: the type of what is reduced is not known: say type=")
        outward = barrier is None
        named = kind if kind in ("f16", "bf16") else memory_type(kind)
        if op in ("and", "or", "xor"):
            named = f"b{named[1:]}"
        slots = {"reduce": True, "dst": "global" if outward else "shared::cluster", "src": "shared::cta"}
        slots |= {"completion": "bulk_group" if outward else _ON_BARRIER, "op": op, "type": named}
        slots["noftz"] = kind in _NOTED.get(op, ())
        tail = () if outward else (self._mbar(what, barrier),)
        self._bulk(slots, (*ends, nbytes, *tail), None, policy, pred)

    def cp_async_bulk_prefetch(
        self, source: Where, nbytes: Value, *, policy: Value | None = None, pred: Condition | None = None
    ) -> None:
        """Prefetch bytes of global memory to the L2 cache."""
        what = "cp.async.bulk.prefetch"
        location = self.global_location(what, source, BULK_ALIGNMENT)
        slots = {"prefetch": True, "level": "L2", "src": "global"}
        self._bulk(slots, (location, self.nbytes_of(what, nbytes)), None, policy, pred)

    def bulk_commit(self, *, pred: Condition | None = None) -> None:
        """Put the stores and reductions that this thread started since the last commit into a group."""
        self.issue("cp", {"async": True, "bulk": True, "op": "commit_group"}, (), pred=pred)

    def bulk_wait(self, groups: int = 0, *, read: bool = False, pred: Condition | None = None) -> None:
        """Wait until at most `groups` of this thread's groups are in flight; with `read` only for reads of the source.

        After `read=True` the shared memory may be overwritten, but the result may not be there yet.
        """
        self.issue("cp", {"async": True, "bulk": True, "op": "wait_group", "read": read}, (groups,), pred=pred)

    # Stores that complete on a barrier

    def st_async(
        self, to: Where, value: Values, barrier: Where, *, type: str | None = None, pred: Condition | None = None
    ) -> None:
        """Store a value (or a vector, as a tuple) in another block's shared memory, completing on its barrier."""
        what = "st.async"
        location = self.shared_location(what, to, 4)
        values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        kind = type or location.type or next((v.type for v in values if isinstance(v, Register)), "b32")
        slots = {"async": True, "space": "shared::cluster", "completion": _ON_BARRIER, "type": memory_type(kind)}
        slots |= {"vec": f"v{len(values)}"} if len(values) > 1 else {}
        given = values[0] if len(values) == 1 else values
        self.issue("st", slots, (location, given, self._mbar(what, barrier)), pred=pred)

    def red_async(
        self, op: str, to: Where, value: Value, barrier: Where, *, type: str | None = None, **how: Unpack[Guarded]
    ) -> None:
        """Reduce a value into another block's shared memory, completing on its barrier."""
        what = "red.async"
        location = self.shared_location(what, to, 4)
        kind = type or location.type or "u32"
        slots = {"async": True, "sem": "relaxed", "scope": "cluster", "completion": _ON_BARRIER}
        slots |= {"space": "shared::cluster", "op": op, "type": "b32" if op in ("and", "or", "xor") else kind}
        self.issue("red", slots, (location, value, self._mbar(what, barrier)), **how)

    # Parts

    def _bulk(
        self,
        slots: Mapping[str, object],
        inputs: tuple[object, ...],
        multicast: Value | None,
        policy: Value | None,
        pred: Condition | None,
        tail: tuple[object, ...] = (),
    ) -> None:
        chosen = {"async": True, "bulk": True, **slots}
        if multicast is not None:
            chosen["multicast"] = "multicast::cluster"
            inputs = (*inputs, multicast)
        if policy is not None:
            chosen["hint"] = "L2::cache_hint"
            inputs = (*inputs, policy)
        self.issue("cp", chosen, (*inputs, *tail), pred=pred)

    def _map(self, what: str, tensor_map: Where) -> Location:
        location = location_of(tensor_map)
        if not isinstance(location, Location):
            raise self.error(f"{what}: {tensor_map!r} is no tensor map: ctx.tensor_map(name) gives a parameter's")
        return location

    def _box(self, what: str, tensor_map: Where, coordinates: Sequence[Value]) -> Location:
        location = self._map(what, tensor_map)
        return Location(
            location.base, location.offset, (tuple(coordinates),), location.type, location.space, location.name
        )

    def _dim(self, what: str, coordinates: Sequence[Value], how: Tensor) -> str:
        if not isinstance(coordinates, (tuple, list)) or not 1 <= len(coordinates) <= 5:
            raise self.error(f"{what}: 1 to 5 coordinates are wanted, innermost first; got {coordinates!r}")
        if how.get("mode") not in _GATHERS:
            return f"{len(coordinates)}d"
        if len(coordinates) != 5:
            raise self.error(f"{what}: {how['mode']} takes a column and four rows; got {len(coordinates)} coordinates")
        return "2d"

    def _mbar(self, what: str, barrier: Where | None) -> Location:
        return self.shared_location(f"{what}: barrier", barrier, 8, 8)

    def _is_shared(self, value: object) -> bool:
        location = location_of(value)
        narrow = isinstance(value, Register) and value.type in ("b32", "u32", "s32")
        return isinstance(location, Location) and (location.space.startswith("shared") or narrow)

    def _bytes_at(self, what: str, value: object, nbytes: Value) -> Location:
        if self._is_shared(value):
            return self.shared_location(what, value, BULK_ALIGNMENT, nbytes if is_number(nbytes) else None)
        return self.global_location(what, value, BULK_ALIGNMENT)
