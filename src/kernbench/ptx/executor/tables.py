"""The tables of a launch: which arrays there are, and what each access is meant for."""

from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.memory.meant import MeantArrays
from kernbench.ptx.emulator.engine.launch import Launch
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, Allocation
from kernbench.ptx.emulator.program.program import Program, SharedVariable, Word
from kernbench.ptx.executor.ops import layout
from kernbench.ptx.executor.ops.loads_stores import STATE_BITS, WRITTEN
from kernbench.ptx.executor.ops.running_blocks import all_written
from kernbench.ptx.executor.rows import UnsupportedError
from kernbench.ptx.executor.stamps import ArrayStamps, Stamps


def arrays_of(launch: Launch, stamps: Stamps) -> tuple[Array, list[ArrayStamps]]:
    """A row for each living array (`layout.LOW` and following), and the stamps of those that the launch may write."""
    live = [one for one in launch.arena.allocations() if one.nbytes]
    found: Array = np.zeros((len(live), layout.ARRAY_WORDS), np.int64)
    found[:, layout.LOW] = [one.offset for one in live]
    found[:, layout.LOW] += GLOBAL_BASE
    found[:, layout.HIGH] = [one.nbytes for one in live]
    found[:, layout.HIGH] += found[:, layout.LOW]
    held = list[ArrayStamps]()
    for number in _written(launch, live, found):
        held.append(stamps.of(live[number]))
        found[number, layout.FLAGS] = layout.TRACKED
        found[number, layout.ROW_WRITES : layout.FIRST_ROW + 1] = held[-1].entry
    if not launch.checks.checking:
        # nobody asks who wrote a byte, and what is written keeps its state
        found[:, layout.FLAGS] |= layout.DEFINED
    for number in _holding(found, np.frombuffer(launch.parameter_words, np.uint64)):
        if launch.checks.checking and _is_written(launch, live[number]):
            found[number, layout.FLAGS] |= layout.DEFINED
    return found, held


def _written(launch: Launch, live: list[Allocation], arrays: Array) -> list[int]:
    """The numbers of arrays that the kernel may write, according to its pointers."""
    written = launch.program.written_params
    if written is None:
        numbers = set(range(len(live)))
    else:
        given = [address for name in written for address in launch.addresses_in(name)]
        symbols = launch.variable_addresses()
        numbers = set(_holding(arrays, np.array(given, np.uint64)))
        numbers.update(np.flatnonzero(np.isin(arrays[:, layout.LOW], symbols)).tolist() if symbols else ())
        numbers.update(number for number, one in enumerate(live) if one.sparse)
    return sorted(number for number in numbers if live[number].space == "global")


def _holding(arrays: Array, addresses: Array) -> list[int]:
    """The numbers of the arrays that contain addresses; arrays are in the order of theirs."""
    lows, highs = (arrays[:, column].astype(np.uint64) for column in (layout.LOW, layout.HIGH))
    numbers = np.searchsorted(lows, addresses, "right") - 1
    inside = numbers >= 0
    inside[inside] = addresses[inside] < highs[numbers[inside]]
    return sorted(set(numbers[inside].tolist()))


def _is_written(launch: Launch, allocation: Allocation) -> bool:
    """Whether every byte of an array is known to be written, so that accesses need not look."""
    if allocation.usual is not None or allocation.sparse:
        return False
    states = launch.arena.state
    begin, end = allocation.offset, allocation.offset + allocation.nbytes
    first, last = min(-(-begin // 8) * 8, end), max(end // 8 * 8, begin)
    ends = np.concatenate((states[1][begin:first], states[1][max(first, last) : end]))
    if ((ends & STATE_BITS) != WRITTEN).any():
        return False
    return first >= last or bool(all_written(states[8][first // 8 : last // 8]))


@dataclass(frozen=True, slots=True, eq=False)
class _Fixed:
    """What launches with as much shared memory share: their table, and which accesses are meant for what words say."""

    shared_bytes: int
    table: Array
    meant: list[tuple[frozenset[Word], list[int]]]


_FIXED: "WeakKeyDictionary[Program, _Fixed]" = WeakKeyDictionary()


def accesses_of(launch: Launch) -> Array:
    """A row for each instruction, from `layout.MEANT_LOW` on; raises `UnsupportedError` for what it cannot say."""
    fixed = _FIXED.get(launch.program)
    if fixed is None or fixed.shared_bytes != launch.shared_bytes:
        fixed = _FIXED[launch.program] = _fixed(launch.program, launch.shared_bytes)
    table: Array = fixed.table.copy()
    meant = MeantArrays(launch.program, launch.arena)
    meant.begin(launch)
    for words, sites in fixed.meant:
        found = meant.behind(words)
        if len(found) == 1:
            (one,) = found
            table[sites, layout.MEANT_LOW] = one.address
            table[sites, layout.MEANT_HIGH] = one.address + one.nbytes
            table[sites, layout.IS_MEANT] |= layout.MEANT
        elif found:
            raise UnsupportedError("an access that is meant for several arrays")
    return table


def _fixed(program: Program, shared_bytes: int) -> _Fixed:
    table: Array = np.zeros((len(program.sites), layout.ACCESS_WORDS), np.int64)
    table[:, layout.SHARED_HIGH] = shared_bytes
    # what the non-coherent cache holds may be older than what the launch writes
    table[sorted(program.noncoherent_sites), layout.IS_MEANT] = layout.NONCOHERENT
    for number, variables in program.meant_variables.items():
        table[number, layout.SHARED_LOW :] = _range(program, shared_bytes, variables)
    meant: dict[frozenset[Word], list[int]] = {}
    for number, words in program.meant.items():
        meant.setdefault(words, []).append(number)
    return _Fixed(shared_bytes, table, list(meant.items()))


def _range(program: Program, size: int, variables: Iterable[SharedVariable]) -> tuple[int, int]:
    """The range of the shared variables of an access, which must follow each other."""
    found = sorted((one.offset, size if one.size is None else one.offset + one.size) for one in variables)
    low, high = found[0][0], max(end for _, end in found)
    if len([one for one in program.shared if low <= one.offset < high]) != len(found):
        raise UnsupportedError("an access that is meant for variables with others between them")
    return low, high
