"""The LLVM text of a chain: arithmetic steps, loads, and exchanges between lanes of a warp.

First it checks, then it acts. A loop over all lanes computes the addresses of all loads and checks that each is plain:
aligned, inside the array that it is meant for, and of initialised bytes. If one is not, nothing has been done, and the
steps run one by one. Memory that will be loaded is prefetched on the way.

Then warp after warp is computed, eight lanes at a time. Where lanes exchange values with others than these eight, the
loop over the lanes of a warp ends and another begins: exchanged values are in a buffer, and registers that are used
afterwards in their rows, which are in the nearest cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kernbench.common.native.kinds import INT, Array, Kind, Scalar
from kernbench.ptx.emulator.fused.code import BITS, RunLines, Written, written
from kernbench.ptx.emulator.fused.values import WIDTH, NotFused, Value, kind
from kernbench.ptx.emulator.lanes.slots import RegisterSlot, Slot
from kernbench.ptx.emulator.program.steps import Computed, Exchanged, Loaded

Item = Computed | Loaded | Exchanged

_WARP = 32
# bytes of a cache line
_LINE = 64
# numbers of the plan for each load: the offset added to its addresses, the last offset at which it may begin, and the
# first offset and size of the array that it is meant for
PLAN = 4
_BYTES = Array(Scalar("u", 8), 1, True)
# the layout of rows, the plan, memory, and the states of its bytes (empty if they are not checked)
_KINDS: tuple[Kind, ...] = (Array(Scalar("i", 64), 1, True), Array(Scalar("u", 64), 1, True), _BYTES, _BYTES)


class Part(NamedTuple):
    """A range of items of a chain, with its text; None for a single step that is not fused."""

    begin: int
    end: int
    written: Written | None
    # the loads among them
    loads: tuple[Loaded, ...] = ()


def targets_of(item: Item) -> tuple[int, ...]:
    """The slots that an item writes."""
    if isinstance(item, Exchanged):
        return (item.target,) if item.predicate is None else (item.target, item.predicate)
    return item.targets


def _sources(item: Item) -> tuple[int, ...]:
    """The slots that an item reads, including the targets that it keeps under a guard."""
    if isinstance(item, Exchanged):
        return (item.source,)
    own = (item.address,) if isinstance(item, Loaded) else item.sources
    return own if item.guard is None else (*own, item.guard[0], *item.targets)


def _kills(item: Item) -> tuple[int, ...]:
    return () if not isinstance(item, Exchanged) and item.guard is not None else targets_of(item)


def parts_of(slots: Sequence[Slot], items: Sequence[Item], dead: frozenset[int], written_state: int) -> list[Part]:
    """A chain in parts; each is one text or a single step.

    A load whose address depends on the part's own loads or exchanges begins a new part: its address cannot be checked
    in advance. `dead` slots are read only by the items themselves.
    """
    live = _live(items, dead)
    found: list[Part] = []
    for begin, end, fuses in _spans(slots, items):
        if fuses:
            lines = _ChainLines(slots, items[begin:end], live[begin : end + 1], written_state)
            loads = tuple(item for item in items[begin:end] if isinstance(item, Loaded))
            found.append(Part(begin, end, written(slots, lines.whole(), lines.specials, _KINDS, INT), loads))
        else:
            found.append(Part(begin, end, None))
    return found


def _live(items: Sequence[Item], dead: frozenset[int]) -> list[frozenset[int]]:
    """The slots that are live before each item, and after the last one."""
    wanted = {slot for item in items for slot in targets_of(item)} - dead
    found = [frozenset(wanted)]
    for item in reversed(items):
        wanted.difference_update(_kills(item))
        wanted.update(_sources(item))
        found.append(frozenset(wanted))
    return found[::-1]


def _spans(slots: Sequence[Slot], items: Sequence[Item]) -> list[tuple[int, int, bool]]:
    """Ranges of items, and whether each becomes a text or is left to its step."""
    found: list[tuple[int, int, bool]] = []
    begin = 0
    tainted: set[int] = set()
    for number, item in enumerate(items):
        fuses = _fuses(slots, item)
        late = isinstance(item, Loaded) and not tainted.isdisjoint(_sources(item))
        if (late or not fuses) and begin < number:
            found.append((begin, number, True))
        if late or not fuses:
            tainted, begin = set(), number
        if not fuses:
            found.append((number, number + 1, False))
            begin = number + 1
        elif not isinstance(item, Computed) or not tainted.isdisjoint(_sources(item)):
            tainted.update(targets_of(item))
        else:
            tainted.difference_update(_kills(item))
    if begin < len(items):
        found.append((begin, len(items), True))
    return found


def _fuses(slots: Sequence[Slot], item: Item) -> bool:
    """Whether an item can be machine code."""
    lines = RunLines(slots)
    try:
        if isinstance(item, Computed):
            lines.step(item)
            return True
        for slot in _sources(item):
            lines.read(slot)
    except NotFused:
        return False
    return all(isinstance(slots[slot], RegisterSlot) for slot in targets_of(item)) and _is_vector(slots, item)


def _is_vector(slots: Sequence[Slot], item: Loaded | Exchanged) -> bool:
    if isinstance(item, Exchanged):
        return slots[item.source].dtype == slots[item.target].dtype == "uint32"
    bits = {BITS[slots[slot].dtype] for slot in item.targets}
    return len(bits) == 1 and bits != {1} and len(item.targets) in (1, 2, 4) and bits.pop() * len(item.targets) <= 128


class _Access(NamedTuple):
    """The loads of eight lanes.

    Their offsets in memory, a guard if not all lanes load, and `elements` of `bits` bits each.
    """

    starts: Value
    guard: Value | None
    bits: int
    elements: int

    @property
    def span(self) -> int:
        """Bytes per lane."""
        return self.bits // 8 * self.elements


class _ChainLines(RunLines):
    """Writes one part of a chain."""

    def __init__(self, slots: Sequence[Slot], items: Sequence[Item], live: list[frozenset[int]], written_state: int):
        super().__init__(slots)
        self._items = items
        self._live = live
        self._written_state = written_state
        self._entry: list[str] = []
        self._label = "entry.end"
        self._loads = [item for item in items if isinstance(item, Loaded)]
        self._exchanges = 0
        # the first lane of the warp, and the label of the loop over its lanes
        self._warp = self._segment = ""

    def whole(self) -> str:
        """The function; it returns 1 if everything is done, and 0 if nothing is."""
        for number in range(PLAN * len(self._loads)):
            self._splat(f"plan{number}", number)
        if self._loads:
            self._look("ask", False)
            self._entry += [
                "  %looks = icmp ne i64 %n3, 0",
                "  %also = select i1 %looks, ptr %states, ptr %memory",
            ]
            self._fork("%looks", "look.begin", "look.over")
            self._mark("look.begin")
            self._look("look", True)
            self.do("br label %look.over")
            self._mark("look.over")
        self._act()
        specials = "".join(f", ptr %special{n}, i64 %specials{n}" for n in range(len(self.specials)))
        head = "ptr %layout, i64 %n0, ptr %plan, i64 %n1, ptr %memory, i64 %n2, ptr %states, i64 %n3"
        return "\n".join(
            (
                *self.tables.values(),
                *self.declared.values(),
                *self.functions.values(),
                f"define internal i64 @run({head}{specials}) nounwind {{",
                "entry:",
                *self._begins(),
                *self._entry,
                "  br label %entry.end",
                "entry.end:",
                *self.lines,
                "  ret i64 1",
                *(["refused:", "  ret i64 0"] if self._loads else []),
                "}\n",
            )
        )

    def _splat(self, name: str, number: int) -> None:
        """Broadcast a number of the plan to all lanes."""
        self._entry += [
            f"  %{name}.at = getelementptr i64, ptr %plan, i64 {number}",
            f"  %{name}.one = load i64, ptr %{name}.at",
            f"  %{name}.in = insertelement {kind(64)} poison, i64 %{name}.one, i32 0",
            f"  %{name} = shufflevector {kind(64)} %{name}.in, {kind(64)} poison, <{WIDTH} x i32> zeroinitializer",
        ]

    def _mark(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self._label = label

    def _fork(self, truth: str, yes: str, no: str) -> None:
        self.do(f"br i1 {truth}, label %{yes}, label %{no}")

    def _open(self, name: str, begin: str) -> str:
        """Begin a loop over lanes; returns the first lane of each iteration."""
        before = self._label
        self.do(f"br label %{name}")
        self._mark(name)
        self.do(f"%{name}.lane = phi i64 [ {begin}, %{before} ], [ %{name}.next, %{name}.latch ]")
        return f"%{name}.lane"

    def _close(self, name: str, step: int, end: str) -> None:
        self.do(f"br label %{name}.latch")
        self._mark(f"{name}.latch")
        self.do(f"%{name}.next = add i64 %{name}.lane, {step}")
        self.do(f"%{name}.more = icmp ult i64 %{name}.next, {end}")
        self._fork(f"%{name}.more", name, f"{name}.end")
        self._mark(f"{name}.end")

    def _forget(self) -> None:
        self._held, self._written = {}, {}

    def _look(self, name: str, states: bool) -> None:
        """A loop that computes all addresses, and leaves the function if one has a fault.

        The first pass checks bounds and prefetches memory; the second checks the states of bytes.
        """
        self._forget()
        self.lane = self._open(name, "0")
        wanted = self._slice()
        number = 0
        for item, needed in zip(self._items, wanted, strict=True):
            if isinstance(item, Loaded):
                access = self._access_of(item, number)
                if states:
                    self._look_at_states(access, f"{name}{number}")
                else:
                    self._look_at_bounds(access, number, f"{name}{number}")
                number += 1
            elif needed and isinstance(item, Computed):
                self.step(item)
        self._close(name, WIDTH, "%count")

    def _slice(self) -> list[bool]:
        """Which items contribute to addresses: a backward slice."""
        wanted: set[int] = set()
        found: list[bool] = []
        for item in reversed(self._items):
            if isinstance(item, Loaded):
                wanted.add(item.address)
                wanted.update(() if item.guard is None else (item.guard[0],))
                found.append(False)
                continue
            found.append(isinstance(item, Computed) and not wanted.isdisjoint(item.targets))
            if found[-1]:
                wanted.difference_update(_kills(item))
                wanted.update(_sources(item))
        return found[::-1]

    def _access_of(self, item: Loaded, number: int) -> _Access:
        starts = self.read(item.address) + Value(self, 64, f"%plan{PLAN * number}")
        guard = None
        if item.guard is not None:
            guard = ~self.read(item.guard[0]) if item.guard[1] else self.read(item.guard[0])
            # lanes that do not load point to the beginning of memory, which always exists
            starts = guard.select(starts, 0)
        return _Access(starts, guard, BITS[self._slots[item.targets[0]].dtype], len(item.targets))

    def _any(self, truth: Value) -> str:
        return self.call(f"llvm.vector.reduce.or.v{WIDTH}i1", "i1", (kind(1), truth.name))

    def _refuse(self, bad: str, label: str) -> None:
        self._fork(bad, "refused", f"{label}.fine")
        self._mark(f"{label}.fine")

    def _look_at_bounds(self, access: _Access, number: int, label: str) -> None:
        last, first, size = (Value(self, 64, f"%plan{PLAN * number + n}") for n in (1, 2, 3))
        starts = access.starts
        bad = starts.compare("ugt", last) | (starts - first).compare("uge", size)
        if access.span > 1:
            bad = bad | (starts & (access.span - 1)).compare("ne", 0)
        self._refuse(self._any(bad if access.guard is None else bad & access.guard), label)
        begin = self._first(starts)
        self.declared["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        for line in range(max(access.span * WIDTH // _LINE, 1)):
            at = self.put(f"add i64 {begin}, {_LINE * line}")
            for array in ("%memory", "%also"):
                there = self.put(f"getelementptr i8, ptr {array}, i64 {at}")
                self.do(f"call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 2, i32 1)")

    def _first(self, starts: Value) -> str:
        return self.put(f"extractelement {kind(64)} {starts.name}, i32 0")

    def _follow(self, access: _Access) -> str:
        """Whether the lanes' offsets are contiguous."""
        one = self.put(f"insertelement {kind(64)} poison, i64 {self._first(access.starts)}, i32 0")
        every = self.put(f"shufflevector {kind(64)} {one}, {kind(64)} poison, <{WIDTH} x i32> zeroinitializer")
        steps = ", ".join(f"i64 {access.span * lane}" for lane in range(WIDTH))
        differ = access.starts.compare("ne", Value(self, 64, every) + Value(self, 64, f"<{steps}>"))
        return self.put(f"xor i1 {self._any(differ)}, true")

    def _look_at_states(self, access: _Access, label: str) -> None:
        together, apart = f"{label}.together", f"{label}.apart"
        self._fork("false" if access.guard is not None else self._follow(access), together, apart)
        self._mark(together)
        count = access.elements * WIDTH
        found = self._flat("%states", access)
        sample = f"<{', '.join([f'i{access.bits} {self._pattern(access.bits)}'] * count)}>"
        unlike = self.put(f"icmp ne <{count} x i{access.bits}> {found}, {sample}")
        self._refuse(self.call(f"llvm.vector.reduce.or.v{count}i1", "i1", (f"<{count} x i1>", unlike)), together)
        self.do(f"br label %{label}.done")
        self._mark(apart)
        bits = 8 * access.span
        wrong = "poison"
        for lane in range(WIDTH):
            word = self._one("%states", access, lane, f"i{bits}")
            flaw = self.put(f"icmp ne i{bits} {word}, {self._pattern(bits)}")
            wrong = self.put(f"insertelement {kind(1)} {wrong}, i1 {flaw}, i32 {lane}")
        bad = Value(self, 1, wrong)
        self._refuse(self._any(bad if access.guard is None else bad & access.guard), apart)
        self.do(f"br label %{label}.done")
        self._mark(f"{label}.done")

    def _pattern(self, bits: int) -> int:
        return int.from_bytes(bytes([self._written_state] * (bits // 8)), "little")

    def _flat(self, array: str, access: _Access) -> str:
        """Load all elements of contiguous lanes."""
        at = self.put(f"getelementptr i8, ptr {array}, i64 {self._first(access.starts)}")
        typed = f"<{access.elements * WIDTH} x i{access.bits}>"
        return self.put(f"load {typed}, ptr {at}, align {access.bits // 8}")

    def _one(self, array: str, access: _Access, lane: int, typed: str) -> str:
        """Load the elements of one lane."""
        start = self.put(f"extractelement {kind(64)} {access.starts.name}, i32 {lane}")
        at = self.put(f"getelementptr i8, ptr {array}, i64 {start}")
        return self.put(f"load {typed}, ptr {at}, align {access.bits // 8}")

    def _act(self) -> None:
        """The loop over warps, with loops over their lanes."""
        self._forget()
        self._warp = self._open("warp", "0")
        self.do(f"%warp.stop = add i64 {self._warp}, {_WARP}")
        self._begin_segment()
        number = 0
        for index, item in enumerate(self._items):
            if isinstance(item, Loaded):
                self._load_item(item, number)
                number += 1
            elif isinstance(item, Exchanged):
                self._exchange(item, index)
            else:
                self.step(item)
        self._end_segment(len(self._items))
        self._close("warp", _WARP, "%count")

    def _begin_segment(self) -> None:
        self._forget()
        self._segment = f"segment{self._exchanges}"
        self.lane = self._open(self._segment, self._warp)

    def _end_segment(self, index: int) -> None:
        """Store the slots that are live from item `index` on."""
        self._stores([slot for slot in self._written if slot in self._live[index]])
        self._close(self._segment, WIDTH, "%warp.stop")

    def _load_item(self, item: Loaded, number: int) -> None:
        access = self._access_of(item, number)
        found = self._elements(access, f"load{number}")
        for position, slot in enumerate(item.targets):
            self._set(slot, self._element(found, access, position), access.guard)

    def _set(self, slot: int, value: Value, guard: Value | None) -> None:
        self._held[slot] = value if guard is None else guard.select(value, self.read(slot))
        self._written[slot] = None

    def _element(self, found: str, access: _Access, position: int) -> Value:
        """The element at `position` of each lane, out of all elements of all lanes."""
        if access.elements == 1:
            return Value(self, access.bits, found)
        flat = f"<{access.elements * WIDTH} x i{access.bits}>"
        chosen = ", ".join(f"i32 {lane * access.elements + position}" for lane in range(WIDTH))
        text = f"shufflevector {flat} {found}, {flat} poison, <{WIDTH} x i32> <{chosen}>"
        return self.value(access.bits, text)

    def _elements(self, access: _Access, label: str) -> str:
        """All elements of all lanes; in one load if they are contiguous."""
        together, apart, done = f"{label}.together", f"{label}.apart", f"{label}.done"
        typed = f"<{access.elements * WIDTH} x i{access.bits}>"
        self._fork(self._follow(access), together, apart)
        self._mark(together)
        quick = self._flat("%memory", access)
        self.do(f"br label %{done}")
        self._mark(apart)
        slow = self._gathered(access)
        self.do(f"br label %{done}")
        self._mark(done)
        return self.put(f"phi {typed} [ {quick}, %{together} ], [ {slow}, %{apart} ]")

    def _gathered(self, access: _Access) -> str:
        found = [self._one("%memory", access, lane, f"<{access.elements} x i{access.bits}>") for lane in range(WIDTH)]
        count = access.elements
        while len(found) > 1:
            typed, both = f"<{count} x i{access.bits}>", ", ".join(f"i32 {n}" for n in range(2 * count))
            found = [
                self.put(f"shufflevector {typed} {one}, {typed} {two}, <{2 * count} x i32> <{both}>")
                for one, two in zip(found[::2], found[1::2], strict=True)
            ]
            count *= 2
        return found[0]

    def _exchange(self, item: Exchanged, index: int) -> None:
        """Shuffle within eight lanes; across them through a buffer, between two loops over the lanes of a warp."""
        within = [lane % WIDTH for lane in item.lanes[:WIDTH]]
        value = self.read(item.source)
        if all(lane == number // WIDTH * WIDTH + within[number % WIDTH] for number, lane in enumerate(item.lanes)):
            chosen = ", ".join(f"i32 {lane}" for lane in within)
            text = f"shufflevector {kind(32)} {value.name}, {kind(32)} poison, <{WIDTH} x i32> <{chosen}>"
            found = self.value(32, text)
        else:
            found = self._across(item, value, index)
        self._set(item.target, found, None)
        if item.predicate is not None:
            truth = self._table("i8", [int(one) for one in item.valid])
            at = self.put(f"getelementptr i8, ptr {truth}, i64 {self._within_warp()}")
            valid = Value(self, 8, self.put(f"load {kind(8)}, ptr {at}, align 1")).compare("ne", 0)
            self._set(item.predicate, valid, None)

    def _within_warp(self) -> str:
        return self.put(f"sub i64 {self.lane}, {self._warp}")

    def _across(self, item: Exchanged, value: Value, index: int) -> Value:
        buffer = f"%buffer{self._exchanges}"
        self._entry.append(f"  {buffer} = alloca [{_WARP} x i32], align 32")
        at = self.put(f"getelementptr i32, ptr {buffer}, i64 {self._within_warp()}")
        self.do(f"store {kind(32)} {value.name}, ptr {at}, align 4")
        # the item has read its own source by now
        self._end_segment(index + 1)
        self._exchanges += 1
        self._begin_segment()
        table = self._table("i32", list(item.lanes))
        here = self.put(f"getelementptr i32, ptr {table}, i64 {self._within_warp()}")
        groups = [item.lanes[first : first + WIDTH] for first in range(0, _WARP, WIDTH)]
        if all(list(group) == list(range(group[0], group[0] + WIDTH)) for group in groups):
            start = self.put(f"load i32, ptr {here}, align 4")
            at = self.put(f"getelementptr i32, ptr {buffer}, i32 {start}")
            return self.value(32, f"load {kind(32)}, ptr {at}, align 4")
        found = "poison"
        for lane in range(WIDTH):
            which = self.put(f"load i32, ptr {self.put(f'getelementptr i32, ptr {here}, i64 {lane}')}, align 4")
            word = self.put(f"load i32, ptr {self.put(f'getelementptr i32, ptr {buffer}, i32 {which}')}, align 4")
            found = self.put(f"insertelement {kind(32)} {found}, i32 {word}, i32 {lane}")
        return Value(self, 32, found)

    def _table(self, typed: str, numbers: list[int]) -> str:
        name = f"@lanes.{typed}.{'.'.join(map(str, numbers))}"
        listed = ", ".join(f"{typed} {number}" for number in numbers)
        self.tables[name] = f"{name} = internal constant [{len(numbers)} x {typed}] [{listed}], align 32"
        return name
