"""What single lanes know, as rows of arrays: random events against dictionaries of plain numbers, lane by lane, and
against the same clocks that keep knowledge by name."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests import sampled

from kernbench.ptx.emulator.checks.asynchronous.handover import Handover
from kernbench.ptx.emulator.checks.happens_before.clocks import Clocks
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge, Publications
from kernbench.ptx.emulator.checks.happens_before.near_rows import each_alone, grouped, join_at
from kernbench.ptx.emulator.checks.happens_before.patterns import MemoryOrder
from kernbench.ptx.emulator.fast_paths import ALL
from kernbench.ptx.emulator.lanes.actors import Actors
from kernbench.ptx.emulator.lanes.lanes import WARP, group

CTAS, WARPS, SLOTS = 3, 3, 2
LANES = CTAS * WARPS * WARP
ACTORS = Actors(WARPS, True)
FIRST_CTA = 5
EVENTS = ["arrive"] * 2 + ["wait"] * 3 + ["commit", "signal", "warps", "barrier", "other"]
HOMES = np.arange(CTAS * SLOTS) % CTAS


def bits(mask):
    return [lane for lane in range(WARP) if mask >> lane & 1]


def larger(one, two):
    return [max(pair) for pair in zip(one, two, strict=True)]


def latest(one, two):
    return {name: max(one.get(name, 0), two.get(name, 0)) for name in {**one, **two}}


class Reference:
    """The same by dictionaries: of each warp a vector clock and names, of lanes and barriers both if they have any."""

    def __init__(self):
        self.row = [[0] * ACTORS.count for _ in range(CTAS * WARPS)]
        for warp, row in enumerate(self.row):
            row[warp // CTAS] = 1
        self.met = [0] * (CTAS * WARPS)
        self.names, self.lanes, self.slots, self.held = {}, {}, {}, {}
        self.peers = {}
        self.alive = [(1 << WARP) - 1] * (CTAS * WARPS)

    def released(self, warp, mask):
        """What lanes of a warp release: a row, and names."""
        inside, row, names = warp // CTAS, list(self.row[warp]), dict(self.names.get(warp, {}))
        own = row[inside]
        if self.alive[warp] & ~mask:
            row[inside] = self.met[warp]
            row[ACTORS.lane(inside)] = own * WARP + bits(mask)[0]
            for lane in bits(mask):
                for other, clock in self.peers.get((warp, lane), {}).items():
                    known = max(self.peers.get((warp, one), {}).get(other, 0) for one in bits(mask))
                    names[inside, other] = max(known, clock)
            for lane in bits(mask):
                names[inside, lane] = own
        for lane in bits(mask):
            if (warp, lane) in self.lanes:
                row, names = larger(row, self.lanes[warp, lane][0]), latest(names, self.lanes[warp, lane][1])
        return row, names

    def release(self, slot, what):
        before = self.slots.get(slot, ([0] * ACTORS.count, {}))
        self.slots[slot] = larger(before[0], what[0]), latest(before[1], what[1])

    def together(self, warp, what):
        inside = warp // CTAS
        own = self.row[warp][inside]
        self.row[warp] = larger(self.row[warp], what[0])
        self.row[warp][inside] = own
        self.met[warp] = max(self.met[warp], what[0][inside])
        if what[1]:
            self.names[warp] = latest(self.names.get(warp, {}), what[1])

    def acquire(self, warp, mask, what):
        if not self.alive[warp] & ~mask:
            self.together(warp, what)
            return
        for lane in bits(mask & self.alive[warp]):
            before = self.lanes.get((warp, lane), ([0] * ACTORS.count, {}))
            self.lanes[warp, lane] = larger(before[0], what[0]), latest(before[1], what[1])

    def advance(self, warps):
        for warp in warps:
            self.row[warp][warp // CTAS] += 1

    def collapse(self, warp):
        for lane in range(WARP):
            if (warp, lane) in self.lanes:
                self.together(warp, self.lanes.pop((warp, lane)))

    def meet(self, warp, mask):
        inside = warp // CTAS
        if not self.alive[warp] & ~mask:
            self.met[warp] = self.row[warp][inside]
            self.collapse(warp)
        elif mask & self.alive[warp]:
            here = bits(mask & self.alive[warp])
            known = {}
            for lane in here:
                known = latest(known, self.peers.get((warp, lane), {}))
            known |= dict.fromkeys(here, self.row[warp][inside])
            self.peers |= {(warp, lane): dict(known) for lane in here}
            for what in [self.lanes[warp, lane] for lane in here if (warp, lane) in self.lanes]:
                self.acquire(warp, mask & self.alive[warp], what)
        self.advance([warp])

    def barrier(self, cta, members):
        warps = [inside * CTAS + cta for inside in members]
        for warp in warps:
            self.collapse(warp)
        joined = [max(column) for column in zip(*(self.row[warp] for warp in warps), strict=True)]
        for warp in warps:
            self.row[warp], self.met[warp] = list(joined), joined[warp // CTAS]
            self.row[warp][warp // CTAS] += 1

    def show(self, warp):
        first = ACTORS.proxied(0)
        for row in [self.row[warp], *(self.lanes[warp, lane][0] for lane in range(WARP) if (warp, lane) in self.lanes)]:
            row[first : first + WARPS] = larger(row[first : first + WARPS], row[:WARPS])


class System:
    """Clocks with what mbarriers hand on, as rows or by name."""

    def __init__(self, rows):
        alive = np.full(CTAS * WARPS, (1 << WARP) - 1, np.uint32)
        mbarriers = SimpleNamespace(
            homes=HOMES,
            held=np.zeros((len(HOMES), ACTORS.count), np.int32),
            done=np.zeros((len(HOMES), ACTORS.count), np.int32),
        )
        self.batch = SimpleNamespace(
            ctas=CTAS, warps_per_cta=WARPS, warps=CTAS * WARPS, lanes=LANES, numbers=FIRST_CTA + np.arange(CTAS),
            cluster=SimpleNamespace(size=1), launch=SimpleNamespace(actors=ACTORS, fast=ALL), alive_bits=alive,
            mbarriers=mbarriers,
        )  # fmt: skip
        self.clocks = Clocks(self.batch, Publications(20 * ACTORS.count), lambda warps, clocks: None)
        self.clocks.near.suffices = rows
        along = SimpleNamespace(arriving=lambda lanes: None, arrived=lambda: None)
        patterns = MemoryOrder(self.batch, self.clocks)
        checks = SimpleNamespace(clocks=self.clocks, along=along, patterns=patterns)
        self.handover = Handover(self.batch, checks)

    def commit(self, lanes, slots):
        if self.clocks.near.suffices:
            return self.clocks.released_by(each_alone(lanes))
        return [self.clocks.snapshot(int(lane) // WARP).released_by(1 << int(lane) % WARP) for lane in lanes]

    def committed(self, slots, what):
        if isinstance(what, tuple):
            self.handover.committed(slots, *what)
        else:
            for slot, knowledge in zip(slots.tolist(), what, strict=True):
                self.handover.inform(slot, knowledge, False)

    def wait(self, slots, lanes):
        whole = np.zeros(CTAS * WARPS, bool)
        self.handover._waited(slots, lanes, whole, True)

    def state(self):
        """All that is known, in words that both ways have."""
        clocks, every = self.clocks, np.arange(LANES)
        warps = range(CTAS * WARPS)
        named = {warp: clocks._of_warp(warp) for warp in warps}
        alone = {warp: clocks._of_lanes(warp) for warp in warps}
        slots = {slot: self.handover.released(slot) for slot in range(len(HOMES))}
        return {
            "clocks": clocks.clocks.tolist(),
            "met": clocks.met.tolist(),
            "names": {warp: known.lanes for warp, known in named.items() if known is not None},
            "lanes": {(warp, lane): plain(known) for warp in warps for lane, known in sorted(alone[warp].items())},
            "slots": {slot: plain(known) for slot, known in slots.items() if known is not None},
            "held": self.batch.mbarriers.held.tolist(),
            "aware": clocks.aware(every).tolist(),
            "helps": clocks.helps(every).tolist(),
            "of lanes": clocks.own_rows(every).tolist(),
            "of warps": clocks.rows_of(np.arange(CTAS * WARPS)).tolist(),
            "table": clocks.table().tolist(),
        }


def plain(knowledge):
    return {first: row.tolist() for first, row in knowledge.rows.items() if row.any()}, dict(knowledge.lanes)


def by_thread(warp, names):
    first = (FIRST_CTA + warp % CTAS) * ACTORS.count
    return {(first + inside) * WARP + lane: clock for (inside, lane), clock in names.items()}


def reference_state(reference):
    """As `System.state`, of what a reference has."""

    def told(cta, what):
        return {(FIRST_CTA + cta) * ACTORS.count: what[0]} if any(what[0]) else {}, by_thread(cta, what[1])

    rows = reference.row
    return {
        "clocks": [[rows[inside * CTAS + cta] for inside in range(WARPS)] for cta in range(CTAS)],
        "met": reference.met,
        "lanes": {key: told(key[0] % CTAS, what) for key, what in sorted(reference.lanes.items())},
        "slots": {slot: told(int(HOMES[slot]), what) for slot, what in sorted(reference.slots.items())},
    }


def random_lanes(rng, alive):
    """Lanes of some warps of all CTAs that do something together: most often one of each, the same everywhere."""
    kind, inside = rng.integers(4), rng.integers(WARPS)
    lanes = []
    for cta in range(CTAS) if rng.random() < 0.8 else [int(rng.integers(CTAS))]:
        warp = int(inside) * CTAS + cta
        there = [lane for lane in range(WARP) if alive[warp] >> lane & 1]
        some = {0: [0, 0, 0, 7], 1: [int(rng.integers(WARP))], 2: rng.integers(0, WARP, 5).tolist(), 3: range(WARP)}[
            int(kind)
        ]
        lanes += [warp * WARP + lane for lane in sorted(set(some) & set(there))]
    return np.array(lanes, np.int64)


def run_all(seed, steps, systems, reference, after):
    """Random events in all; `after` is called after each."""
    rng = np.random.default_rng(seed)
    one = systems[0]
    pending, fences = [], []
    for _ in range(steps):
        lanes = random_lanes(rng, one.batch.alive_bits.tolist())
        if not len(lanes):
            continue
        ctas = lanes // WARP % CTAS
        number = rng.integers(SLOTS) if rng.random() < 0.7 else rng.integers(0, SLOTS, len(lanes))
        slots = number * CTAS + ctas
        event = rng.choice(EVENTS)
        groups = group(lanes, slots)
        if event == "arrive":
            arrive(systems, reference, slots, lanes, groups)
        elif event == "wait":
            done = rng.integers(0, 6, (len(HOMES), ACTORS.count)) * (rng.random((len(HOMES), ACTORS.count)) < 0.1)
            for system in systems:
                system.batch.mbarriers.done[...] = done
                system.wait(slots, lanes)
            for warp, slot, mask in groups:
                reference.acquire(warp, mask, (done[slot].tolist(), {}))
                if slot in reference.slots:
                    reference.acquire(warp, mask, reference.slots[slot])
        elif event == "commit":
            lanes, slots = lanes[:1], slots[:1]
            each = [system.commit(lanes, slots) for system in systems]
            mine = reference.released(int(lanes[0]) // WARP, 1 << int(lanes[0]) % WARP)
            pending.append((slots, each, mine))
            advance(systems, reference, lanes)
        elif event == "signal" and pending:
            slots, each, mine = pending.pop(int(rng.integers(len(pending))))
            for system, what in zip(systems, each, strict=True):
                system.committed(slots, what)
            reference.release(int(slots[0]), mine)
        elif event == "warps":
            meet(systems, reference, groups)
        elif event == "barrier":
            barrier(rng, systems, reference)
        elif event == "other":
            other(rng, systems, reference, lanes, fences)
        after()


def arrive(systems, reference, slots, lanes, groups):
    aware = systems[0].clocks.aware(lanes)
    for system in systems:
        system.handover.arriving(slots, lanes)
    # of a group those lanes release beside compiled loops that know more than these hand on
    for warp, slot, mask in group(lanes[aware], slots[aware]):
        reference.release(slot, reference.released(warp, mask))
    advance(systems, reference, lanes)


def advance(systems, reference, lanes):
    warps = np.unique(lanes // WARP)
    for system in systems:
        system.clocks.advance(warps)
    reference.advance(warps.tolist())


def meet(systems, reference, groups):
    for warp, _, mask in groups:
        for system in systems:
            system.clocks.meet(np.array([warp]), np.array([mask]))
        reference.meet(warp, mask)


def barrier(rng, systems, reference):
    members = sorted({int(inside) for inside in rng.integers(0, WARPS, 4)})
    done = rng.random(CTAS) < 0.7
    present = np.zeros((CTAS, WARPS), bool)
    present[:, members] = True
    if not done.any():
        return
    for system in systems:
        system.clocks.barrier(done, present)
    for cta in np.flatnonzero(done).tolist():
        reference.barrier(cta, members)
    # what warps share of single lanes is the clocks' own: see `test_names_are_shared_at_barriers`
    reference.names = {
        warp: names_of(systems[1].clocks, warp) for warp in range(CTAS * WARPS) if systems[1].clocks._of_warp(warp)
    }


def names_of(clocks, warp):
    first = (FIRST_CTA + warp % CTAS) * ACTORS.count * WARP
    return {divmod(thread - first, WARP): clock for thread, clock in clocks._of_warp(warp).lanes.items()}


def other(rng, systems, reference, lanes, fences):
    """Lanes end; a proxy fence of a warp; a fence whose knowledge another warp of the CTA acquires through memory."""
    warp = int(lanes[0]) // WARP
    mask = sum(1 << int(lane) % WARP for lane in lanes if lane // WARP == warp)
    if rng.random() < 0.1 and bits(reference.alive[warp] & ~mask):
        reference.alive[warp] &= ~mask
        for system in systems:
            system.batch.alive_bits[warp] = reference.alive[warp]
    elif rng.random() < 0.3:
        for system in systems:
            system.clocks.show_proxy(np.array([warp]), [ACTORS.proxied(0)])
        reference.show(warp)
        reference.advance([warp])
    elif fences and rng.random() < 0.5:
        by, each, what = fences.pop()
        reader = (warp // CTAS) * CTAS + by % CTAS
        for system, knowledge in zip(systems, each, strict=True):
            system.clocks.acquire(reader, mask, knowledge)
        reference.acquire(reader, mask, what)
    else:
        each = [system.clocks.snapshot(warp).released_by(mask) for system in systems]
        fences.append((warp, each, reference.released(warp, mask)))
        advance(systems, reference, lanes[:1])


def same(systems, reference=None):
    """Both ways of a system hold the same, and of it the reference what it has."""
    states = [system.state() for system in systems]
    for name in states[0]:
        assert states[0][name] == states[1][name], name
    for name, known in reference_state(reference).items() if reference is not None else ():
        assert states[0][name] == known, name


@pytest.mark.parametrize("seed", range(sampled.examples(3, 6)))
def test_rows_and_names_and_plain_dictionaries_hold_the_same(seed):
    systems, reference = (System(rows=True), System(rows=False)), Reference()
    run_all(seed, 60, systems, reference, lambda: same(systems, reference))
    assert systems[0].clocks.near.suffices


@pytest.mark.parametrize("seed", range(sampled.examples(3, 6)))
def test_rows_become_names_when_something_of_another_block_is_acquired(seed):
    """A lane, or a warp, acquires what a block of another batch knows, of which the reference knows nothing."""
    systems = System(rows=True), System(rows=False)
    far = Knowledge({0: np.arange(ACTORS.count, dtype=np.int32)}, None, {3: 2})
    events = []

    def after():
        events.append(seed)
        if len(events) == 20:
            for system in systems:
                system.clocks.acquire(seed % (CTAS * WARPS), 2 if seed % 2 else (1 << WARP) - 1, far)
        same(systems)

    run_all(seed, 50, systems, Reference(), after)
    assert not systems[0].clocks.near.suffices


def test_names_are_shared_at_barriers():
    """All who meet know the lanes that one of them knew by name, but for those of warps that have just met."""
    systems = System(rows=True), System(rows=False)
    for system in systems:
        clocks = system.clocks
        # lane 0 of warp 0 and lane 3 of warp 2 release alone, and the whole of warp 1 acquires
        for lane in (0, 2 * CTAS * WARP + 3):
            clocks.acquire(lane // WARP, 1 << lane % WARP, Knowledge({}))
            system.handover.arriving(np.array([0]), np.array([lane]))
        system.wait(np.zeros(WARP, np.int64), CTAS * WARP + np.arange(WARP))
        present = np.array([[True, True, False]] * CTAS)
        clocks.barrier(np.array([True, False, False]), present)
        number = FIRST_CTA * ACTORS.count
        for warp in (0, CTAS):
            assert clocks._of_warp(warp).lanes == {(number + 2) * WARP + 3: 1}
        assert clocks._of_warp(2 * CTAS) is None
    same(systems)


def test_lanes_by_warp_and_key():
    rng = np.random.default_rng(0)
    for _ in range(20):
        lanes = rng.permutation(LANES)[: rng.integers(0, 40)]
        keys = rng.integers(0, 3, len(lanes))
        found = grouped(lanes, keys)
        each = zip(found.warps.tolist(), found.keys.tolist(), found.masks.tolist(), strict=True)
        assert list(each) == group(lanes, keys)
        assert found.firsts.tolist() == [bits(mask)[0] for mask in found.masks.tolist()]
        for lane, number in zip(found.lanes.tolist(), found.numbers.tolist(), strict=True):
            assert found.warps[number] == lane // WARP
            assert found.masks[number] >> lane % WARP & 1


def test_rows_are_joined_where_some_are_named_twice():
    rng = np.random.default_rng(0)
    for count in (0, 1, 3, 9):
        target, rows = rng.integers(0, 9, (5, 4)), rng.integers(0, 9, (count, 3))
        where, wanted = rng.integers(0, 5, count), target.copy()
        np.maximum.at(wanted[:, :3], where, rows)
        join_at(target, where, rows)
        assert (target == wanted).all()
