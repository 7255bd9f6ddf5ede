"""Draws normal numbers of one generator with several threads: the same numbers as drawn sequentially.

How many words of the generator a number takes depends on the words, so the index of the number that begins at a given
word is unknown. But the number depends only on the word at which it begins. So each thread starts at a word of its
choice, as if a number began there, and continues into the next stretch, until a number of both ends at the same word:
from there on both sequences are the same. Nearly every word begins a number, so that this takes a step or two. NumPy
draws in every thread; this module only determines the word that a generator is at.
"""

from functools import partial
from math import sqrt
from threading import Lock

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.safety.jobs import wanted_jobs
from kernbench.safety.processes.threads import together

# words of a stretch, numbers drawn and rounded at once, and most numbers that two stretches may share
STRETCH, BLOCK, MOST_COMMON = 1 << 19, 1 << 16, 1 << 10
# words that a number takes on average, and about its variance
_WORDS, _SPREAD = 1.0222, 0.04
# step of a PCG64: its state times this, plus a constant of its own
_MULTIPLIER, _BITS = 0x2360ED051FC65DA44385DF649FCCF645, 128
_MASK = (1 << _BITS) - 1


class _NotDividedError(Exception):
    """A generator that is not at the expected word, or stretches that do not join."""


def fill(found: Array, rng: np.random.Generator) -> None:
    """Fill a flat array with normal numbers, drawn as float32; the generator continues after them."""
    bits = rng.bit_generator
    if wanted_jobs(None) == 1 or not isinstance(bits, np.random.PCG64):
        _put(rng, found)
        return
    try:
        last = _Filling(found, bits).fill()
    except _NotDividedError:
        _put(rng, found)
    else:
        bits.state = last.state


def _put(rng: np.random.Generator, found: Array) -> None:
    """Draw as many numbers as an array takes, rounded to its type."""
    drawn = np.empty(min(BLOCK, len(found)), np.float32)
    for start in range(0, len(found), BLOCK):
        part = found[start : start + BLOCK]
        rng.standard_normal(out=drawn[: len(part)], dtype=np.float32)
        part[...] = drawn[: len(part)]


class _Drawing:
    """A generator like another, advanced by some words, that knows its current word."""

    def __init__(self, other: np.random.PCG64, at: int):
        self.bits = np.random.PCG64(0)
        self.bits.state = other.state
        # a step of the generator makes two words
        if at:
            self.bits.advance(at // 2)
        self._rng = np.random.Generator(self.bits)
        self._began, self._at = self.bits.state["state"], at

    def at(self) -> int:
        """The word that it is at: one of the two words of the last step may be left."""
        now = self.bits.state
        steps = _steps(self._began["state"], now["state"]["state"], self._began["inc"])
        return self._at + 2 * steps - bool(now["has_uint32"])

    def put(self, found: Array) -> None:
        """Draw as many numbers as an array takes."""
        _put(self._rng, found)


class _Filling:
    """An array filled from stretches of a generator, each appended where the one before ends."""

    def __init__(self, found: Array, bits: np.random.PCG64):
        self._found, self._bits = found, bits
        expected = _WORDS * len(found) - 8 * sqrt(_SPREAD * len(found))
        self._stretches = max(0, int(expected // STRETCH))
        self._lock = Lock()
        # drawn stretches: their numbers, and how many of these the next one begins with, too
        self._drawn: dict[int, tuple[Array, int]] = {}
        # number of stretches with a known offset, the offset of the next one, and how many of its numbers exist already
        self._known, self._end, self._common = 0, 0, 0

    def fill(self) -> np.random.PCG64:
        """Draw all; returns a generator positioned after them. The original generator is unchanged."""
        works = (partial(self._draw, number) for number in range(self._stretches))
        together(works, most=wanted_jobs(None))
        last = self._drawing(self._stretches)
        last.put(np.empty(self._common, np.float32))
        last.put(self._found[self._end :])
        return last.bits

    def _drawing(self, number: int) -> _Drawing:
        """A generator at the first word of a stretch."""
        return _Drawing(self._bits, number * STRETCH)

    def _draw(self, number: int) -> None:
        """Draw a stretch, and store all stretches whose offset is known then."""
        drawing, following = self._drawing(number), self._drawing(number + 1)
        numbers = np.empty(STRETCH + 2 * MOST_COMMON, self._found.dtype)
        count, end, at = 0, (number + 1) * STRETCH, drawing.at()
        # up to shortly before its end, then up to shortly before that
        while (some := _surely_before(end - at)) > 0:
            drawing.put(numbers[count : count + some])
            count, at = count + some, drawing.at()
        common, other = 0, end
        while at != other:
            if max(common, count - STRETCH) >= MOST_COMMON:
                raise _NotDividedError
            if at < other:
                drawing.put(numbers[count : count + 1])
                count, at = count + 1, drawing.at()
            else:
                following.put(np.empty(1, np.float32))
                common, other = common + 1, following.at()
        for offset, own in self._offsets(number, numbers[:count], common):
            self._found[offset : offset + len(own)] = own

    def _offsets(self, number: int, numbers: Array, common: int) -> list[tuple[int, Array]]:
        """Stretches whose offset became known by this one, with their offsets: threads finish in any order."""
        offsets = []
        with self._lock:
            self._drawn[number] = numbers, common
            while self._known in self._drawn:
                numbers, common = self._drawn.pop(self._known)
                own = numbers[self._common :]
                if self._end + len(own) > len(self._found):
                    raise _NotDividedError
                offsets.append((self._end, own))
                self._known, self._end, self._common = self._known + 1, self._end + len(own), common
        return offsets


def _surely_before(words: int) -> int:
    """How many numbers very probably take no more than this many words."""
    return int((words - 4 * sqrt(_SPREAD * words)) / _WORDS) - 1 if words > 0 else 0


def _steps(begin: int, end: int, step: int) -> int:
    """How many steps a PCG64 takes from one state to another. The lowest bits of a state depend only on the lowest
    bits of the state before: bit by bit, steps of 1, 2, 4 and so on make them equal.
    """
    multiplier, found, bit = _MULTIPLIER, 0, 1
    while begin != end:
        if bit > _MASK:
            raise _NotDividedError
        if (begin ^ end) & bit:
            begin = (begin * multiplier + step) & _MASK
            found |= bit
        # two such steps are one of the next size
        step = (multiplier + 1) * step & _MASK
        multiplier = multiplier * multiplier & _MASK
        bit <<= 1
    return found
