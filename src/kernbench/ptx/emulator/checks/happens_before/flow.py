"""A digest of the data flow: what each read finds at every word of memory, and what each write replaces.

If the checks are silent, all conflicting accesses are ordered, and the order in which they are recorded here is that
order. Two silent runs with the same flow therefore order all conflicting accesses alike, whatever else they order.
"""

import numpy as np

from kernbench.common.dtypes import Array

WORD = 4


def mixed(values: Array | np.uint64) -> Array:
    """Hash values (splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.asarray(values).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


class Words:
    """For each word of one memory: hashes of the last writers, and of the readers since."""

    def __init__(self, count: int):
        self.writers: Array = np.zeros(count, np.uint64)
        self.readers: Array = np.zeros(count, np.uint64)

    def meet(self, words: Array, owners: Array, names: Array, writes: bool) -> Array:
        """Record accesses `names` to words; `owners` is the access of each word. Returns what each access met."""
        found = mixed(self.writers[words])
        if writes:
            found = found + mixed(self.readers[words] ^ np.uint64(1))
        met = np.zeros(len(names), np.uint64)
        with np.errstate(over="ignore"):
            np.add.at(met, owners, mixed(found ^ mixed(words)))
            if writes:
                self.writers[words] = 0
                self.readers[words] = 0
                np.add.at(self.writers, words, names[owners])
            else:
                np.add.at(self.readers, words, names[owners])
        return met


class Flow:
    """The sum of what all accesses of a launch met; sums do not depend on the order of unrelated accesses."""

    def __init__(self) -> None:
        self.total = np.zeros(2, np.uint64)

    def add(self, names: Array, met: Array) -> None:
        """Add accesses, with the hashes of what they met."""
        with np.errstate(over="ignore"):
            both = mixed(names ^ mixed(met))
            self.total += np.array([both.sum(dtype=np.uint64), mixed(both).sum(dtype=np.uint64)], np.uint64)

    @property
    def digest(self) -> str:
        """The whole flow as a hexadecimal string."""
        return "".join(f"{int(part):016x}" for part in self.total)


def words_of(starts: Array, lengths: Array, owners: Array) -> tuple[Array, Array]:
    """The words that ranges of bytes touch, and the access of each; overlapping ranges give a word more than once."""
    first = starts // WORD
    counts = (starts + lengths + WORD - 1) // WORD - first
    before = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(starts)), counts)
    words = first[owner] + np.arange(int(counts.sum())) - before[owner]
    return words, owners[owner]
