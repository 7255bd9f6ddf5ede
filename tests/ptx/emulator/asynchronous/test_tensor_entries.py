"""Accesses to tensor memory that one loop enters: the same cells as one by one, and nothing of what is wrong."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.tcgen05 import COMMIT, KINDS_F16, WAIT, idesc, kernel, launch, load, mma, tiles

from kernbench import ptx
from kernbench.common.deferred import in_python
from kernbench.ptx.emulator.checks.asynchronous import tensor_order
from kernbench.ptx.emulator.checks.asynchronous.tensor import TensorChecks
from kernbench.ptx.emulator.checks.asynchronous.tensor_cells import COPY, LOAD, MULTIPLY, STORE
from kernbench.ptx.emulator.checks.asynchronous.tensor_entries import (
    begin_moves,
    enter_moves,
    enter_regions,
    hold_commits,
    note_commits,
    publish,
    sort_moves,
)
from kernbench.ptx.emulator.checks.asynchronous.tensor_order import TensorOrder

CTAS, WARPS, FIRST = 2, 9, 12
# registers of descriptors, and bits of these that are changed: the address, a stride, the swizzle
FLIPPED = ((4, 1 << 6), (5, 1 << 12), (4, 1 << 33), (5, 3 << 61))


class State:
    """Tensor memory of a few CTAs and what is known of it, all of it random."""

    def __init__(self, seed):
        self.random = random = np.random.default_rng(seed)
        count = CTAS * WARPS
        self.clocks = random.integers(1, 5, (CTAS, WARPS, FIRST + 3 * WARPS)).astype(np.int32)
        self.near = random.integers(3, 8, (count, FIRST + 3 * WARPS)).astype(np.int32)
        self.near_of = np.full(count * 32, -1)
        self.near_of[random.choice(count * 32, count, replace=False)] = range(count)
        self.known = random.integers(0, 6, (CTAS, WARPS, 3 * WARPS))
        self.fences = bool(random.integers(2))
        self.begun = random.integers(2, 8, (3, count))
        self.done = np.maximum(self.begun - random.integers(0, 2, (3, count)), 0)
        self.owner = np.zeros((CTAS, 512), np.int32)
        self.owner[:, :256] = 1
        self.owner[:, 256:384] = 2
        # most accesses are done, and known to be
        calm = random.random() < 0.5
        self.cells = np.zeros((CTAS, 8, 512, 3), np.uint64)
        for cta, group, start in np.ndindex(CTAS, 8, 16):
            for which, whats in enumerate(((STORE, MULTIPLY, COPY), (LOAD,), (MULTIPLY,))):
                if which == 0 or random.random() < 0.4:
                    number, clock = (0, 0) if calm and random.random() < 0.9 else random.integers(0, 7, 2)
                    cell = random.choice(whats) | random.integers(WARPS) << 3 | number << 8 | clock << 28 | 5 << 48
                    self.cells[cta, group, 32 * start : 32 * start + 32, which] = cell
        if random.random() < 0.3:
            self.cells[random.integers(CTAS), random.integers(8), :64, 0] = 0

    def given(self, cells):
        knowledge = (self.clocks, FIRST, self.near_of, self.near, self.known, self.fences, self.begun, self.done)
        return (cells, self.owner), knowledge, np.zeros((4, WARPS), np.int64)

    def knows(self, warp):
        """The counters and clocks that a warp knows, by plain sums of what there is."""
        cta, inside = warp % CTAS, warp // CTAS
        rows = [self.clocks[cta, inside]]
        rows += [self.near[row] for row in self.near_of[32 * warp : 32 * warp + 32] if row >= 0]
        row = np.max(rows, axis=0)
        counters = self.known[cta, inside] if self.fences else row[FIRST:]
        counters = counters.reshape(3, WARPS).copy()
        counters[1:, inside] = self.done[1:, warp]
        clocks = row[:WARPS].copy()
        clocks[inside] = self.clocks[cta, inside, inside]
        return counters, clocks

    def ordered(self, cell, what, reads, warp):
        counters, clocks = self.knows(warp)
        other, their, number, clock = cell & 7, cell >> 3 & 31, cell >> 8 & 0xFFFFF, cell >> 28 & 0xFFFFF
        if number <= counters[{LOAD: 1, STORE: 2}.get(other, 0), their]:
            return True
        unit = other in (MULTIPLY, COPY) and what in (MULTIPLY, COPY) and not (reads and other == MULTIPLY)
        return unit and (their == warp // CTAS or clock <= clocks[their])

    def wrong(self, cells, warp, groups, first, last, filled, what, writes):
        owner = self.owner[warp % CTAS, first:last]
        if last > 512 or not len(owner) or not owner.all() or len(set(owner.tolist())) > 1:
            return True
        here = cells[warp % CTAS, groups, first:last]
        looked = np.unique(here[..., : 3 if writes else 1])
        late = (cell for cell in looked.tolist() if cell and not self.ordered(cell, what, not writes, warp))
        return (filled and not here[..., 0].all()) or any(late)

    def enter(self, cells, warp, groups, first, last, what, writes):
        cta, inside = warp % CTAS, warp // CTAS
        number = int(self.begun[{LOAD: 1, STORE: 2}.get(what, 0), warp])
        mine = what | inside << 3 | number << 8 | int(self.clocks[cta, inside, inside]) << 28 | 7 << 48
        for group in groups:
            if writes:
                cells[cta, group, first:last] = mine, 0, 0
            else:
                cells[cta, group, first:last, 1 if what == LOAD else 2] = mine

    def step(self, cells, units, what, writes, filled):
        """Enter units one by one: how many warps or regions were, before the first with which something is wrong."""
        count = 0
        for warps, regions in units:
            doubled = writes and len({warp // CTAS for warp in warps}) > 1
            each = [(warp, *region) for warp in warps for region in regions]
            if doubled or any(self.wrong(cells, *one, filled, what, writes) for one in each):
                return count
            for one in each:
                self.enter(cells, *one, what, writes)
            count += len(warps)
        return count


def moves(state, cells):
    """Random loads or stores: what the loop gives, and what plain Python does."""
    random, writes = state.random, bool(state.random.integers(2))
    warps = np.sort(random.choice(CTAS * WARPS, random.integers(1, 6), replace=False))
    lanes = int(random.choice([16, 32]))
    columns = random.choice([0, 64, 200, 250, 380, 500], 2)[random.integers(0, 2, len(warps))]
    addresses = (warps // CTAS % 4 * 32 + (random.integers(0, 2) * 16 if lanes == 16 else 0)) << 16 | columns
    spans = np.array([[0, 8], [16, 24]])[: random.integers(1, 3)]
    order, what = np.empty((2, len(warps)), np.int64), STORE if writes else LOAD
    assert sort_moves(warps, addresses, CTAS, lanes, order)
    units = []
    for key in sorted({(int(warp) // CTAS % 4, int(at)) for warp, at in zip(warps, addresses, strict=True)}):
        same = [int(w) for w, at in zip(warps, addresses, strict=True) if (w // CTAS % 4, at) == key]
        groups = [key[1] >> 20] if lanes == 16 else [2 * key[0], 2 * key[0] + 1]
        units.append((same, [(groups, (key[1] & 0xFFFF) + a, (key[1] & 0xFFFF) + b) for a, b in spans.tolist()]))
    expected = cells.copy()
    wanted = state.step(expected, units, what, writes, not writes)
    return enter_moves(0, order, spans, lanes, warps, (what, 7, writes), *state.given(cells)), wanted, expected


def products(state, cells):
    """Random products on regions: what the loop gives, and what plain Python does."""
    random, writes, filled = state.random, bool(state.random.integers(2)), bool(state.random.integers(2))
    inside = random.integers(WARPS)
    warps = inside * CTAS + np.arange(CTAS)[: random.integers(1, CTAS + 1)]
    if random.random() < 0.2:
        warps = np.array([1, 1 + CTAS * random.integers(1, WARPS)])
    rows, regions = [], []
    for _ in range(random.integers(1, 3)):
        groups, first = random.choice(8, random.integers(1, 5), replace=False), int(random.choice([0, 40, 250, 500]))
        rows.append([sum(1 << int(group) for group in groups), first, first + 16, filled])
        regions.append((groups.tolist(), first, first + 16))
    expected = cells.copy()
    done = [state.step(expected, [(warps.tolist(), [one])], MULTIPLY, writes, filled) for one in regions[:1]]
    if done[0] and len(regions) > 1:
        done.append(state.step(expected, [(warps.tolist(), regions[1:])], MULTIPLY, writes, filled))
    wanted = sum(1 for one in done if one)
    found = enter_regions(0, np.array(rows, np.int64), warps, (MULTIPLY, 7, writes), *state.given(cells))
    return found, wanted, expected


@pytest.mark.parametrize("do", [moves, products])
def test_a_loop_enters_what_plain_python_does(do):
    stopped, passed = 0, 0
    for seed in range(30):
        state = State(seed)
        cells = state.cells.copy()
        for _ in range(4):
            found, wanted, expected = do(state, cells)
            assert found == wanted
            assert np.array_equal(cells, expected)
            stopped, passed = stopped + (found == 0), passed + (found > 0)
    assert stopped > 15
    assert passed > 15


def test_what_warps_and_lanes_say_of_themselves():
    for seed in range(10):
        state = State(seed)
        random, warps = state.random, np.sort(state.random.choice(CTAS * WARPS, 4, replace=False))
        ctas, inside = warps % CTAS, warps // CTAS
        expected = state.clocks.copy()
        for family in (1, 2):
            expected[ctas, inside, FIRST + family * WARPS + inside] = state.done[family, warps]
        publish(warps, FIRST, state.done, state.clocks)
        assert np.array_equal(state.clocks, expected)
        lanes, rows = warps * 32 + random.integers(0, 32, 4), state.clocks[ctas, inside].copy()
        expected = rows.copy()
        expected[range(4), inside] = state.clocks[ctas, inside, inside] * 32 + lanes % 32
        expected[range(4), FIRST + inside] = state.begun[0, warps]
        note_commits(lanes, FIRST, 0, state.begun, state.clocks, rows)
        assert np.array_equal(rows, expected)
        homes, held = random.integers(0, CTAS, 6), random.integers(0, 9, (6, rows.shape[1])).astype(np.int32)
        slots, owners, expected = random.integers(0, 6, 5), random.integers(0, 4, 5), held.copy()
        for slot, owner in zip(slots, owners, strict=True):
            if homes[slot] == ctas[owner]:
                expected[slot] = np.maximum(expected[slot], rows[owner])
        hold_commits(slots, owners, lanes, homes, CTAS, rows, held)
        assert np.array_equal(held, expected)


def test_moves_are_counted_sorted_and_entered():
    for seed in range(20):
        state = State(seed)
        warps, (tensor, *known) = np.arange(2 * CTAS), state.given(state.cells.copy())
        addresses, order, last = warps // CTAS % 4 << 21, np.empty((2, len(warps)), np.int64), np.zeros(40, np.int64)
        begun, cells, writes = state.begun.copy(), state.cells.copy(), bool(seed % 2)
        begun[2 if writes else 1, warps] += 1
        what, access = (np.array([[0, 8]]), 32, last[: 0 if writes else 40]), (STORE if writes else LOAD, 7, writes)
        foreign = addresses + (1 << 21 if seed % 5 == 4 else 0)
        found = begin_moves(warps, foreign, (*what, seed % 3 > 0), order, access, tensor, *known)
        assert np.array_equal(state.begun, begun)
        assert last[warps].tolist() == [0 if writes else one for one in begun[1, warps]]
        wanted = -1 if seed % 5 == 4 else 0
        if seed % 5 < 4 and seed % 3:
            sort_moves(warps, addresses, CTAS, 32, order)
            wanted = enter_moves(0, order, what[0], 32, warps, access, (cells, state.owner), *known)
        assert found == wanted
        assert np.array_equal(tensor[0], cells)


def test_lanes_of_another_quarter_are_told():
    order = np.empty((2, 2), np.int64)
    warps = np.array([0, CTAS])
    for second, lanes, fine in ((32 << 16, 32, True), (0, 32, False), (40 << 16, 32, False), (48 << 16, 16, True)):
        assert sort_moves(warps, np.array([0, second]), CTAS, lanes, order) == fine
    assert sort_moves(np.array([0, 4 * CTAS]), np.array([9, 3]), CTAS, 32, order)
    assert order.tolist() == [[3, 9], [1, 0]]


class Counting(np.ndarray):
    """An array that counts how often its elements are read."""

    reads = 0

    def __getitem__(self, at):
        Counting.reads += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 31, 32, 33, 500])
def test_moves_are_sorted_in_few_steps(size):
    random = np.random.default_rng(size)
    warps = np.arange(size) * 7 % max(size, 1)
    keys = warps // 3 % 4 << 32
    for columns in (np.zeros(size, np.int64), np.arange(size)[::-1], random.integers(0, 9, size)):
        addresses = (warps // 3 % 4 * 32 << 16) | columns
        order = np.empty((2, size), np.int64).view(Counting)
        Counting.reads = 0
        # as Python runs it: compiled it does the same
        assert in_python(sort_moves.py_func, {})(warps, addresses, 3, 32, order)
        assert Counting.reads <= 5 * size * (size.bit_length() + 1)
        wanted = np.argsort(keys | addresses, kind="stable")
        assert np.array_equal(np.asarray(order), [(keys | addresses)[wanted], wanted])
        again = np.empty((2, size), np.int64)
        assert sort_moves(warps, addresses, 3, 32, again)
        assert np.array_equal(again, np.asarray(order))


def test_findings_are_those_of_one_region_after_the_other(monkeypatch):
    _, _, image, descriptors = tiles(12, 128, 64, 16, KINDS_F16)
    whole = kernel(mma("f16") + COMMIT + WAIT + load(64), 64, 128).module.emit()
    lines = [line for line in whole.split("\n") if "tcgen05." in line or "bar.sync" in line]
    # lines that are dropped, addresses and descriptors that are wrong, and a product that adds to what nobody wrote
    changed = [whole, *(whole.replace(line + "\n", "", 1) for line in lines)]
    changed += [whole.replace("shl.b32 %r4, %r1, 21", f"shl.b32 %r4, %r1, {bits}") for bits in (20, 22, 5)]
    changed += [whole.replace(f"tcgen05.{what}", f"add.u32 %r3, %r3, 96;\n  tcgen05.{what}") for what in ("mma", "ld")]
    product = "@%p3 tcgen05.mma"
    changed += [whole.replace(product, f"xor.b64 %rd{n}, %rd{n}, {bits};\n  {product}") for n, bits in FLIPPED]

    def found():
        given = (image, descriptors, idesc(128, 64, KINDS_F16), 64)
        runs = [launch(ptx.parse(text).kernels["kernel"], *given)[0] for text in changed]
        return [(run.status, run.findings, run.formal) for run in runs]

    together = found()
    for name in ("enter_moves", "enter_regions"):
        monkeypatch.setattr(TensorOrder, name, lambda self, start, *given: start)
    monkeypatch.setattr(
        tensor_order, "begin_moves", lambda *given: begin_moves(*given[:2], (*given[2][:3], False), *given[3:])
    )
    monkeypatch.setattr(TensorChecks, "_are_plain", lambda *given: False)
    assert found() == together
    assert sum(1 for _, findings, _ in together if findings) > 5
    assert not together[0][1]
