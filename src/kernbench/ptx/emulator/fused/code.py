"""The LLVM text of a run, and its machine code, which is cached on disk by a hash of the text.

The code is one pass over the lanes, a few at a time: registers are loaded when first read, and stored at the end. No
two slots share a row, so the order of loads and stores does not matter.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from kernbench.common.native.entry import Entry, layout_is_known
from kernbench.common.native.kinds import EMPTY, Array, Kind, Scalar
from kernbench.common.native.machine import Code, machine_name, pointers_are_plain
from kernbench.common.native.writer import PRELUDE
from kernbench.common.native_loops import KeptCode
from kernbench.ptx.emulator.fused.emitting import emit
from kernbench.ptx.emulator.fused.values import Lines, NotFused, Value, kind
from kernbench.ptx.emulator.lanes.slots import BANKS, ConstantSlot, RegisterSlot, Slot, SpecialSlot
from kernbench.ptx.emulator.program.steps import Computed

BITS = {"bool": 1, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


# nanoseconds that a run must have cost before it is compiled, plus so many per line: half the time of compilation, as
# the code is cached for other programs
_COMPILE, _COMPILE_LINE = 5e6, 0.05e6


class Written(NamedTuple):
    """The text of a run: its unique name, the text, the slots of special registers, and the names in its table.

    `lines` counts its own lines, without those for calling it.
    """

    name: str
    text: str
    specials: tuple[int, ...]
    table: list[str]
    lines: int

    @property
    def price(self) -> float:
        """Nanoseconds that the steps must have cost before the run is compiled."""
        return _COMPILE + _COMPILE_LINE * self.lines


class RunLines(Lines):
    """Writes the steps of a run; registers that have been written are held as values."""

    def __init__(self, slots: Sequence[Slot], masked: bool = False):
        super().__init__()
        self._slots = slots
        # the first of the lanes being computed, as an LLVM name
        self.lane = "%lane"
        self._masked = masked
        # the rows in use: their addresses are computed before the loop
        self._rows: dict[RegisterSlot, str] = {}
        self.specials: list[int] = []
        self._held: dict[int, Value] = {}
        self._written: dict[int, None] = {}
        self._mask: Value | None = None

    def step(self, computed: Computed) -> None:
        """Write one step; if it raises, nothing of it is kept."""
        kept = len(self.lines), dict(self._held), dict(self._rows), list(self.specials), self._mask
        try:
            given = [self.read(slot) for slot in computed.sources]
            wanted = [BITS[self._slots[slot].dtype] for slot in computed.targets]
            results = emit(computed.function, given, wanted)
            where = self._where(computed)
            for slot, result in zip(computed.targets, results, strict=True):
                self._held[slot] = result if where is None else where.select(result, self.read(slot))
                self._written[slot] = None
        except NotFused:
            del self.lines[kept[0] :]
            self._held, self._rows, self.specials, self._mask = kept[1:]
            raise

    def _where(self, computed: Computed) -> Value | None:
        """The lanes in which a step writes; None for all."""
        where = None
        if self._masked and not computed.relaxed:
            if self._mask is None:
                self._mask = self._truth("%mask")
            where = self._mask
        if computed.guard is not None:
            slot, negated = computed.guard
            held = ~self.read(slot) if negated else self.read(slot)
            where = held if where is None else held & where
        return where

    def _truth(self, row: str) -> Value:
        at = self.put(f"getelementptr i8, ptr {row}, i64 {self.lane}")
        return Value(self, 8, self.put(f"load {kind(8)}, ptr {at}, align 1")).compare("ne", 0)

    def read(self, slot: int) -> Value:
        """The value of a slot; raises `NotFused` if it is known only at launch."""
        if slot not in self._held:
            self._held[slot] = self._load(slot)
        return self._held[slot]

    def _load(self, slot: int) -> Value:
        spec = self._slots[slot]
        if isinstance(spec, ConstantSlot):
            return self.constant(BITS[spec.dtype], spec.bits)
        if isinstance(spec, RegisterSlot):
            row = self._row(spec)
        elif isinstance(spec, SpecialSlot) and spec.dtype in BITS:
            if slot not in self.specials:
                self.specials.append(slot)
            row = f"%special{self.specials.index(slot)}"
        else:
            raise NotFused("an address that a launch decides")
        bits = BITS[spec.dtype]
        if bits == 1:
            return self._truth(row)
        at = self.put(f"getelementptr i{bits}, ptr {row}, i64 {self.lane}")
        return self.value(bits, f"load {kind(bits)}, ptr {at}, align {bits // 8}")

    def _row(self, spec: RegisterSlot) -> str:
        return self._rows.setdefault(spec, f"%{spec.bank}.{spec.row}")

    def _stores(self, slots: Iterable[int]) -> None:
        for slot in slots:
            spec, value = self._slots[slot], self._held[slot]
            assert isinstance(spec, RegisterSlot)
            value = value.wide(max(value.bits, 8))
            at = self.put(f"getelementptr i{value.bits}, ptr {self._row(spec)}, i64 {self.lane}")
            self.do(f"store {kind(value.bits)} {value.name}, ptr {at}, align {value.bits // 8}")

    def _begins(self) -> list[str]:
        """Compute the address of each row, and the number of lanes."""
        begins: list[str] = []
        for number, bank in enumerate(BANKS):
            begins += [
                f"  %{bank}.at = getelementptr i64, ptr %layout, i64 {2 * number}",
                f"  %{bank} = load ptr, ptr %{bank}.at",
                f"  %{bank}.gap.at = getelementptr i64, ptr %layout, i64 {2 * number + 1}",
                f"  %{bank}.gap = load i64, ptr %{bank}.gap.at",
            ]
        for spec, name in self._rows.items():
            begins += [
                f"  {name}.by = mul i64 %{spec.bank}.gap, {spec.row}",
                f"  {name} = getelementptr i8, ptr %{spec.bank}, i64 {name}.by",
            ]
        return [
            *begins,
            f"  %count.at = getelementptr i64, ptr %layout, i64 {2 * len(BANKS)}",
            "  %count = load i64, ptr %count.at",
        ]

    def text(self, dead: frozenset[int]) -> str:
        """The function, without stores to dead slots."""
        self._stores([slot for slot in self._written if slot not in dead])
        specials = "".join(f", ptr %special{n}, i64 %specials{n}" for n in range(len(self.specials)))
        head = f"internal void @run(ptr %layout, i64 %n0, ptr %mask, i64 %n1{specials})"
        return self.over_lanes(head, self._begins())


def parted(
    slots: Sequence[Slot], steps: Sequence[Computed], dead: frozenset[int], masked: bool
) -> list[tuple[int, int, Written | None]]:
    """Steps in parts: a range, and a text if the part is a run, None for a single step.

    `dead` slots are read only by the steps themselves.
    """
    found: list[tuple[int, int, Written | None]] = []
    run, begin = RunLines(slots, masked), 0
    for number, step in enumerate(steps):
        try:
            run.step(step)
        except NotFused:
            if begin < number:
                found.append((begin, number, _written(slots, run, dead - _read_by(steps[number:]))))
            found.append((number, number + 1, None))
            run, begin = RunLines(slots, masked), number + 1
    if begin < len(steps):
        found.append((begin, len(steps), _written(slots, run, dead)))
    return found


def _read_by(steps: Sequence[Computed]) -> frozenset[int]:
    """Slots whose values steps may read, including targets that they keep under a guard."""
    found: set[int] = set()
    for step in steps:
        found.update(step.sources)
        if step.guard is not None:
            found.update((step.guard[0], *step.targets))
    return frozenset(found)


def _written(slots: Sequence[Slot], run: RunLines, dead: frozenset[int]) -> Written:
    kinds = (Array(Scalar("i", 64), 1, True), Array(Scalar("b", 1), 1, True))
    return written(slots, run.text(dead), run.specials, kinds, EMPTY)


def written(slots: Sequence[Slot], body: str, specials: list[int], first: tuple[Kind, ...], result: Kind) -> Written:
    """A function `run` with arguments of the `first` kinds, followed by rows of special registers."""
    name = f"run_{sha256(f'{body} {machine_name()}'.encode()).hexdigest()[:24]}"
    number = {bits: Scalar("u", bits) for bits in (8, 16, 32, 64)}
    kinds = [*first, *(Array(number[BITS[slots[slot].dtype]], 1, True) for slot in specials)]
    # runs are short: compiling the entry point takes longer than the run itself
    entry = Entry(name, "run", tuple(kinds), result)
    return Written(name, PRELUDE + body + entry.text, tuple(specials), entry.names, body.count("\n"))


_KEPT = KeptCode(parted, "run")


def machine_code(written: Written, make: bool) -> Code | None:
    """The machine code of a run, from the cache on disk; if missing, compiled if `make`, else None."""
    return _KEPT.code(written.name, written.text, written.table, make)


def is_possible() -> bool:
    """Whether machine code can be called on this machine at all."""
    return layout_is_known() and pointers_are_plain()
