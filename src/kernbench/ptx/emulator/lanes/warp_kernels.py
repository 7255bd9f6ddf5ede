"""Compiled loops of warp operations: rows of one entry a position, warps of 32 positions, a mask of active lanes."""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt32s, Words
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.numerics.rows.scalar import float32_of

MODES = {"up": 0, "down": 1, "bfly": 2, "idx": 3}
VOTES = {"all": 0, "any": 1, "uni": 2, "ballot": 3}
REDUCTIONS = {
    name: code
    for code, name in enumerate(("add", "and", "or", "xor", "min.u", "max.u", "min.s", "max.s", "min.f", "max.f"))
}


@kernel
def are_parted(mask: Bools, alive: Bools, ended_in: Int64s, warps: Int64s) -> bool:
    """Whether a warp has active lanes besides inactive ones that are alive or have exited by themselves."""
    for position in range(warps.size):
        some, others = False, False
        for lane in range(WARP):
            number = warps[position] * WARP + lane
            active = mask[position * WARP + lane]
            some |= active
            others |= not active and (alive[number] or ended_in[number] >= 0)
        if some and others:
            return True
    return False


@kernel
def elect(members: UInt32s, mask: Bools, leaders: UInt32s, elected: Bools) -> None:
    """elect: for each lane the lowest present lane of its mask (0 if none), and whether it is the lane itself.

    An empty mask means that all lanes are present.
    """
    masked = mask.size > 0
    for base in range(0, members.size, WARP):
        for lane in range(WARP):
            leader = np.int64(0)
            for other in range(WARP):
                named = (members[base + lane] >> np.uint32(other)) & np.uint32(1)
                if named and (not masked or mask[base + other]):
                    leader = np.int64(other)
                    break
            leaders[base + lane] = np.uint32(leader)
            elected[base + lane] = leader == lane


@kernel
def shuffle(
    mode: int, a: UInt32s, b: UInt32s, c: UInt32s, members: UInt32s, mask: Bools, out: UInt32s, inside: Bools
) -> tuple[int, int]:
    """shfl: values of source lanes, and whether they were in range; returns how many lanes read an absent lane.

    A lane whose source is out of range reads its own value.
    """
    masked = mask.size > 0
    wants = inside.size > 0
    bad, first = 0, -1
    for base in range(0, a.size, WARP):
        for lane in range(WARP):
            i = base + lane
            if masked and not mask[i]:
                continue
            step = np.int64(b[i] & np.uint32(31))
            clamp = np.int64(c[i] & np.uint32(31))
            segment = np.int64((c[i] >> np.uint32(8)) & np.uint32(31))
            low = lane & segment
            high = low | (clamp & ~segment)
            source = np.int64(lane)
            if mode == 0:
                source = lane - step
                valid = source >= high
            elif mode == 1:
                source = lane + step
                valid = source <= high
            elif mode == 2:
                source = lane ^ step
                valid = source <= high
            else:
                source = low | (step & ~segment)
                valid = source <= high
            if not valid:
                source = np.int64(lane)
            if (masked and not mask[base + source]) or not (members[i] >> np.uint32(source)) & np.uint32(1):
                bad += 1
                if first < 0:
                    first = i
                out[i] = np.uint32(0xFFFFFFFF)
            else:
                out[i] = a[base + source]
            if wants:
                inside[i] = valid
    return bad, first


@kernel
def permute(a: UInt32s, sources: UInt32s, mask: Bools, out: UInt32s) -> tuple[int, int]:
    """shfl with the same source lanes in every warp.

    Returns how many lanes read an absent lane, and the first of them.
    """
    bad, first = 0, -1
    if mask.size == 0:
        for base in range(0, a.size, WARP):
            for lane in range(WARP):
                out[base + lane] = a[base + sources[lane]]
        return bad, first
    for base in range(0, a.size, WARP):
        for lane in range(WARP):
            i, source = base + lane, base + sources[lane]
            if mask[i] and not mask[source]:
                bad += 1
                first = i if first < 0 else first
            out[i] = a[source] if mask[source] else np.uint32(0xFFFFFFFF)
    return bad, first


@kernel
def vote(mode: int, a: Bools, members: UInt32s, mask: Bools, out: UInt32s) -> None:
    """vote: the ballot, or 0 or 1 for all, any and uni."""
    masked = mask.size > 0
    for base in range(0, a.size, WARP):
        here, true = np.uint32(0), np.uint32(0)
        for lane in range(WARP):
            if not masked or mask[base + lane]:
                here |= np.uint32(1) << np.uint32(lane)
                if a[base + lane]:
                    true |= np.uint32(1) << np.uint32(lane)
        for i in range(base, base + WARP):
            group = here & members[i]
            ballot = true & group
            if mode == 0:
                out[i] = np.uint32(ballot == group)
            elif mode == 1:
                out[i] = np.uint32(ballot != 0)
            elif mode == 2:
                out[i] = np.uint32(ballot == 0 or ballot == group)
            else:
                out[i] = ballot


@kernel
def match(a: Words, members: UInt32s, mask: Bools, out: UInt32s) -> None:
    """match.any: for each lane, the lanes with the same value."""
    masked = mask.size > 0
    for base in range(0, a.size, WARP):
        for i in range(base, base + WARP):
            same = np.uint32(0)
            for lane in range(WARP):
                if (not masked or mask[base + lane]) and a[base + lane] == a[i]:
                    same |= np.uint32(1) << np.uint32(lane)
            out[i] = same & members[i]


@part
def _combined(operation: int, one: np.uint32, two: np.uint32, absolute: bool, nan: bool) -> np.uint32:
    if operation == 0:
        return np.uint32(one + two)
    if operation == 1:
        return one & two
    if operation == 2:
        return one | two
    if operation == 3:
        return one ^ two
    if operation == 4:
        return min(one, two)
    if operation == 5:
        return max(one, two)
    if operation == 6:
        return one if np.int32(one) < np.int32(two) else two
    if operation == 7:
        return two if np.int32(one) < np.int32(two) else one
    if absolute:
        one, two = one & np.uint32(0x7FFFFFFF), two & np.uint32(0x7FFFFFFF)
    x, y = float32_of(one), float32_of(two)
    if x != x or y != y:
        return np.uint32(0x7FFFFFFF) if nan or (x != x and y != y) else (two if x != x else one)
    if operation == 8:
        return one if x < y else two
    return two if x < y else one


@kernel
def reduce(operation: int, a: UInt32s, members: UInt32s, mask: Bools, out: UInt32s, absolute: bool, nan: bool) -> None:
    """redux: one value for all lanes of a mask."""
    masked = mask.size > 0
    for base in range(0, a.size, WARP):
        for i in range(base, base + WARP):
            if masked and not mask[i]:
                continue
            total = np.uint32(0)
            begun = False
            for lane in range(WARP):
                if (members[i] >> np.uint32(lane)) & np.uint32(1) and (not masked or mask[base + lane]):
                    value = a[base + lane]
                    if begun:
                        total = np.uint32(_combined(operation, total, value, absolute, nan))
                    else:
                        total = value & np.uint32(0x7FFFFFFF) if absolute else value
                    begun = True
            out[i] = total
