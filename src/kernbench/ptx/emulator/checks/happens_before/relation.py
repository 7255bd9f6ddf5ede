"""Which accesses to memory come before which: the happens-before relation of one run, as the checker knew it.

Two runs of a kernel, one of them with a synchronisation instruction changed, can be compared access by access: an
access is identified by its thread, its line and how often the thread came there, and with it goes a fingerprint of all
accesses of other agents that are ordered before it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kernbench.common.dtypes import Array

# what an access's key is made of, most significant first, with the bits of each
FIELDS = (("cta", 20), ("warp", 6), ("lane", 5), ("line", 20), ("kind", 6))


@dataclass(frozen=True, slots=True)
class Change:
    """An access before which something else is ordered than in another run; None where it is in one of them only."""

    block: int
    warp: int
    lane: int
    line: int
    kind: str
    occurrence: int
    before: int | None
    after: int | None

    def __str__(self) -> str:
        who = f"lane {self.lane} of warp {self.warp} in block {self.block}, line {self.line}, turn {self.occurrence}"
        if self.before is None or self.after is None:
            return f"{who}: {self.kind} is in {'the second' if self.before is None else 'the first'} run only"
        return f"{who}: {self.before} accesses came before its {self.kind}, now {self.after}"


@dataclass(frozen=True, eq=False)
class AccessOrder:
    """All accesses of a run in the order of their keys: key, occurrence, accesses before it, and their fingerprint."""

    keys: Array
    occurrences: Array
    counts: Array
    fingerprints: Array
    kinds: tuple[str, ...]
    # digest of what every access met at its words: which write a read found, what a write replaced
    flow: str = ""
    # lines of conflicting accesses that nothing orders, with how many pairs: all of them, where the checks keep a few
    unordered: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """One word for the whole relation."""
        state = hashlib.sha256()
        for column in (self.keys, self.occurrences, self.fingerprints):
            state.update(np.ascontiguousarray(column).tobytes())
        return state.hexdigest()[:32]

    def __len__(self) -> int:
        return len(self.keys)

    def same(self, other: "AccessOrder") -> bool:
        """Whether the same accesses come before every access in both runs."""
        return self.digest == other.digest

    def torn(self, other: "AccessOrder") -> list[tuple[int, int]]:
        """Lines whose accesses conflict and are ordered here, and are not in the other run."""
        return sorted(pair for pair, count in other.unordered.items() if count > self.unordered.get(pair, 0))

    def changes(self, other: "AccessOrder", most: int = 10) -> list[Change]:
        """Accesses that differ, the first of them."""
        mine, theirs = (_by_access(order) for order in (self, other))
        found = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
        return [self._change(key, mine.get(key), theirs.get(key)) for key in found[:most]]

    def _change(self, key: tuple[int, int], mine: tuple[int, int] | None, theirs: tuple[int, int] | None) -> Change:
        parts = unpacked(key[0])
        before, after = (None if one is None else one[1] for one in (mine, theirs))
        kind = self.kinds[parts["kind"]] if parts["kind"] < len(self.kinds) else "access"
        return Change(parts["cta"], parts["warp"], parts["lane"], parts["line"], kind, key[1] + 1, before, after)


def packed(**parts: Array) -> Array:
    """Keys of accesses."""
    key: Array = np.array(0, np.int64)
    for name, bits in FIELDS:
        key = (key << np.int64(bits)) | np.asarray(parts[name]).astype(np.int64)
    return key


def unpacked(key: int) -> dict[str, int]:
    """The parts of a key."""
    parts = {}
    for name, bits in reversed(FIELDS):
        parts[name] = key & ((1 << bits) - 1)
        key >>= bits
    return parts


def _by_access(order: AccessOrder) -> dict[tuple[int, int], tuple[int, int]]:
    keys = zip(order.keys.tolist(), order.occurrences.tolist(), strict=True)
    return dict(zip(keys, zip(order.fingerprints.tolist(), order.counts.tolist(), strict=True), strict=True))
