"""Operations across the lanes of a warp, with an explicit mask of lanes: `mask=`, 0xffffffff for all."""

from collections.abc import Mapping
from typing import Any, Unpack

from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.banks import scalar
from kernbench.ptx.builder.values.options import Computing, Condition, Paired, Reducing, Registers, Shuffling, Value
from kernbench.ptx.builder.values.values import Predicate, Register

__kernbench_internal__ = True

WARP = 32
FULL_MASK = 0xFFFFFFFF


class Warp(Issuer):
    """Shuffles, votes, matches and reductions."""

    def shfl(
        self,
        mode: str,
        value: Register,
        lane: Value,
        *,
        mask: Value | None = None,
        width: int = WARP,
        **how: Unpack[Paired],
    ) -> Registers:
        """Another lane's value, by `mode` "up", "down", "bfly" or "idx", within groups of `width` lanes.

        64-bit values go in two halves, 16-bit ones in the low half of 32; `pair=True` adds the predicate that says
        whether the lane was in range.
        """
        mask = self.lanes(f"shfl.{mode}", mask)
        if width not in (1, 2, 4, 8, 16, 32):
            raise self.error(f"width={width}: the lanes of a group are a power of two, up to {WARP}")
        clamp = (WARP - width) << 8 | (0 if mode == "up" else WARP - 1)
        bits = scalar(self.needs_register("shfl", value).type).bits
        if bits == 32:
            return self._shuffle(mode, value, lane, clamp, mask, how)
        if how.get("pair") or bits not in (16, 64):
            raise self.error(f"shfl of {value!r}: 32-bit values only (16 and 64 bits without pair=True)")
        return self._shuffle_parts(mode, value, lane, clamp, mask, how)

    def _shuffle(
        self, mode: str, value: Register, lane: Value, clamp: int, mask: Value, how: Mapping[str, object]
    ) -> Registers:
        slots = {**how, "sync": True, "mode": mode, "type": "b32"}
        return self.issue("shfl", slots, (value, lane, clamp, mask), keep=value.type)

    def _shuffle_parts(self, mode: str, value: Register, lane: Value, clamp: int, mask: Value, how: Paired) -> Register:
        context: Any = self
        out, pred = how.get("out"), how.get("pred")
        if scalar(value.type).bits == 64:
            halves = [
                self._shuffle(mode, half, lane, clamp, mask, {"pred": pred}) for half in context.unpack(value, "b32")
            ]
            return context.pack(value.type, *halves, out=out)  # type: ignore[no-any-return]
        wide = context.pack("b32", value, self.const(0, "b16"))
        moved = self._shuffle(mode, wide, lane, clamp, mask, {"pred": pred})
        low, _ = context.unpack(moved, value.type)
        return low if out is None else context.mov(low, out=out)  # type: ignore[no-any-return]

    def shfl_up(
        self, value: Register, delta: Value, *, mask: Value | None = None, **how: Unpack[Shuffling]
    ) -> Registers:
        """The value `delta` lanes below."""
        return self.shfl("up", value, delta, mask=mask, **how)

    def shfl_down(
        self, value: Register, delta: Value, *, mask: Value | None = None, **how: Unpack[Shuffling]
    ) -> Registers:
        """The value `delta` lanes above."""
        return self.shfl("down", value, delta, mask=mask, **how)

    def shfl_bfly(
        self, value: Register, lane_mask: Value, *, mask: Value | None = None, **how: Unpack[Shuffling]
    ) -> Registers:
        """The value of lane ^ lane_mask."""
        return self.shfl("bfly", value, lane_mask, mask=mask, **how)

    def shfl_idx(
        self, value: Register, lane: Value, *, mask: Value | None = None, **how: Unpack[Shuffling]
    ) -> Registers:
        """The value of lane `lane`."""
        return self.shfl("idx", value, lane, mask=mask, **how)

    def _vote(self, mode: str, p: Condition, mask: Value | None, how: Computing) -> Registers:
        type = "b32" if mode == "ballot" else "pred"
        slots = {**how, "sync": True, "mode": mode, "type": type}
        return self.issue("vote", slots, (p, self.lanes(f"vote.{mode}", mask)))

    def vote_any(self, p: Condition, *, mask: Value | None = None, **how: Unpack[Computing]) -> Predicate:
        """Whether p holds in any lane."""
        return self._vote("any", p, mask, how)  # type: ignore[no-any-return]

    def vote_all(self, p: Condition, *, mask: Value | None = None, **how: Unpack[Computing]) -> Predicate:
        """Whether p holds in all lanes."""
        return self._vote("all", p, mask, how)  # type: ignore[no-any-return]

    def vote_uni(self, p: Condition, *, mask: Value | None = None, **how: Unpack[Computing]) -> Predicate:
        """Whether p has the same value in all lanes."""
        return self._vote("uni", p, mask, how)  # type: ignore[no-any-return]

    def ballot(self, p: Condition, *, mask: Value | None = None, **how: Unpack[Computing]) -> Register:
        """A bit for each lane: its p."""
        return self._vote("ballot", p, mask, how)  # type: ignore[no-any-return]

    def match_any(self, value: Register, *, mask: Value | None = None, **how: Unpack[Computing]) -> Register:
        """The lanes with the same value."""
        return self._match("any", value, mask, how)  # type: ignore[no-any-return]

    def match_all(self, value: Register, *, mask: Value | None = None, **how: Unpack[Paired]) -> Registers:
        """The mask if all lanes have the same value, else 0; `pair=True` adds the predicate."""
        return self._match("all", value, mask, how)

    def _match(self, mode: str, value: Register, mask: Value | None, how: Computing) -> Registers:
        type = f"b{scalar(self.needs_register('match', value).type).bits}"
        slots = {**how, "mode": mode, "sync": True, "type": type}
        return self.issue("match", slots, (value, self.lanes(f"match.{mode}", mask)))

    def redux(self, op: str, value: Register, *, mask: Value | None = None, **how: Unpack[Reducing]) -> Register:
        """The reduction of the value over all lanes: add, min, max, and, or, xor."""
        self.needs_register("redux", value)
        type = f"b{scalar(value.type).bits}" if op in ("and", "or", "xor") else value.type
        slots = {"sync": True, "op": op, **how, "type": type}
        given = value, self.lanes(f"redux.{op}", mask)
        return self.issue("redux", slots, given, keep=value.type)  # type: ignore[no-any-return]

    def activemask(self, **how: Unpack[Computing]) -> Register:
        """The lanes that are active now."""
        return self.issue("activemask", {**how, "type": "b32"}, ())  # type: ignore[no-any-return]

    def elect(self, *, mask: Value | None = None, **how: Unpack[Computing]) -> tuple[Register, Predicate]:
        """Elect a lane of the mask: its number, and a predicate that holds only there."""
        return self.issue("elect", {**how, "sync": True}, (self.lanes("elect", mask),), pair=True)  # type: ignore[no-any-return]
