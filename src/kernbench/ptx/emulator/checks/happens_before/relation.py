"""The happens-before relation of one run, as the checker saw it, in a form that two runs can be compared by.

One of the two runs usually has a synchronisation instruction changed. An access is identified by its thread, its line
and how often the thread has been there. Beside it is a fingerprint of all accesses of other agents that are ordered
before it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kernbench.common.dtypes import Array

# the parts of an access's key, most significant first, with their widths in bits
FIELDS = (("cta", 20), ("warp", 6), ("lane", 5), ("line", 20), ("kind", 6))


@dataclass(frozen=True, slots=True)
class Change:
    """An access that has other predecessors in the second run; a count is None if that run does not have the access."""

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
    """All accesses of a run, sorted by key: key, occurrence, number of preceding accesses, and their fingerprint."""

    keys: Array
    occurrences: Array
    counts: Array
    fingerprints: Array
    kinds: tuple[str, ...]
    # digest of the data flow: which write each read found, and what each write replaced
    flow: str = ""
    # unordered pairs of conflicting lines, with how many accesses: complete, while the checks keep a few
    unordered: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """The whole relation as a hexadecimal string."""
        state = hashlib.sha256()
        for column in (self.keys, self.occurrences, self.fingerprints):
            state.update(np.ascontiguousarray(column).tobytes())
        return state.hexdigest()[:32]

    def __len__(self) -> int:
        return len(self.keys)

    def same(self, other: "AccessOrder") -> bool:
        """Whether every access has the same predecessors in both runs."""
        return self.digest == other.digest

    def torn(self, other: "AccessOrder") -> list[tuple[int, int]]:
        """Pairs of lines whose accesses conflict and are ordered here, but not in the other run."""
        return sorted(pair for pair, count in other.unordered.items() if count > self.unordered.get(pair, 0))

    def changes(self, other: "AccessOrder", most: int = 10) -> list[Change]:
        """The first `most` accesses whose predecessors differ."""
        mine, theirs = (_by_access(order) for order in (self, other))
        found = [key for key in sorted(mine.keys() | theirs.keys()) if mine.get(key) != theirs.get(key)]
        return [self._change(key, mine.get(key), theirs.get(key)) for key in found[:most]]

    def _change(self, key: tuple[int, int], mine: tuple[int, int] | None, theirs: tuple[int, int] | None) -> Change:
        parts = unpacked(key[0])
        before, after = (None if one is None else one[1] for one in (mine, theirs))
        kind = self.kinds[parts["kind"]] if parts["kind"] < len(self.kinds) else "access"
        return Change(parts["cta"], parts["warp"], parts["lane"], parts["line"], kind, key[1] + 1, before, after)


def packed(**parts: Array) -> Array:
    """Pack keys of accesses."""
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
