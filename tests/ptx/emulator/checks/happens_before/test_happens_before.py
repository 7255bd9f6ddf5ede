"""Random small programs: what the race check says, against the memory model written out over all pairs of accesses."""

import itertools
import random
import re
from dataclasses import dataclass

import numpy as np
import pytest
from tests import sampled

from kernbench.ptx.emulator.checks.findings.reporter import Reporter

SCOPES = ("cta", "cluster", "gpu", "sys")
# block and thread of those who take part: lanes of one warp, two warps, two blocks
PLACES = [
    [(0, 0), (0, 1)],
    [(0, 0), (0, 32)],
    [(0, 0), (1, 0)],
    [(0, 0), (0, 1), (1, 0)],
    [(0, 0), (0, 1), (0, 32)],
    [(0, 0), (0, 1), (0, 2), (1, 1)],
    [(0, 0), (0, 33), (1, 0), (1, 32)],
]


@dataclass(frozen=True)
class Event:
    """One step of one thread: an access or fence, or a barrier (with those who meet there)."""

    number: int
    thread: int
    phase: int
    kind: str
    place: int = -1
    sem: str = ""
    scope: str = ""
    members: tuple = ()

    @property
    def reads(self):
        return self.kind in ("ld", "atom")

    @property
    def writes(self):
        return self.kind in ("st", "atom")

    @property
    def strong(self):
        return self.sem != "" or self.kind in ("fence", "atom")

    @property
    def acquires(self):
        return self.sem in ("acquire", "acq_rel", "sc")

    @property
    def releases(self):
        return self.sem in ("release", "acq_rel", "sc")

    @property
    def instruction(self):
        return self.text().split("\n")[0].strip()

    def text(self):
        """The lines; each write has a value of its own, each read leaves what it saw."""
        modifiers = f"{'.' + self.sem if self.sem else ''}{'.' + self.scope if self.scope else ''}"
        at, keep = f"[%rd20+{4 * self.place}]", f"  st.global.u32 [%rd21+{4 * self.number}], %r10;"
        if self.kind == "fence":
            return f"  fence{modifiers};"
        if self.kind == "ld":
            return f"  ld{modifiers}.global.u32 %r10, {at};\n{keep}"
        if self.kind == "st":
            return f"  st{modifiers}.global.u32 {at}, {self.number + 1};"
        return f"  atom{modifiers}.global.exch.b32 %r10, {at}, {self.number + 1};\n{keep}"


def random_access(rng, number, thread, phase, places):
    kind = rng.choices(("ld", "st", "atom", "fence"), (4, 4, 2, 2))[0]
    if kind == "fence":
        return Event(
            number, thread, phase, kind, sem=rng.choice(("acq_rel", "sc", "acquire", "release")), scope=scope(rng)
        )
    choices = {
        "ld": ("", "", "relaxed", "acquire", "volatile"),
        "st": ("", "", "relaxed", "release", "volatile"),
        "atom": ("relaxed", "acquire", "release", "acq_rel"),
    }
    sem = rng.choice(choices[kind])
    return Event(number, thread, phase, kind, rng.randrange(places), sem, "" if sem in ("", "volatile") else scope(rng))


def scope(rng):
    return rng.choice((*SCOPES, "gpu", "gpu"))


def random_program(rng):
    """Threads with accesses in phases, and barriers of blocks or of some lanes of a warp between the phases."""
    threads, events = rng.choice(PLACES), []
    phases, locations = rng.randint(1, 3), rng.randint(1, 3)
    for phase in range(phases):
        for thread in range(len(threads)):
            for _ in range(rng.randint(0, 3)):
                events.append(random_access(rng, len(events), thread, phase, locations))
        if phase + 1 < phases and rng.random() < 0.6:
            events += random_barrier(rng, len(events), phase, threads)
    return threads, events


def random_barrier(rng, number, phase, threads):
    block = rng.choice(threads)[0]
    here = [t for t, (b, _) in enumerate(threads) if b == block]
    kind = rng.choice(("bar", "warp"))
    if kind == "warp":
        warp = threads[rng.choice(here)][1] // 32
        here = [t for t in here if threads[t][1] // 32 == warp]
        here = sorted(rng.sample(here, rng.randint(1, len(here))))
    return [Event(number + i, t, phase, kind, members=tuple(here)) for i, t in enumerate(here)]


def body(threads, events):
    """The program as PTX: threads that take no part end at once."""
    size = 64
    numbers = [block * size + thread for block, thread in threads]
    lines = ["  mov.u32 %r40, 0;"]
    lines += [f"  setp.eq.u32 %p1, %r3, {n};\n  @%p1 mov.u32 %r40, {t + 1};" for t, n in enumerate(numbers)]
    lines += ["  setp.eq.u32 %p1, %r40, 0;\n  @%p1 exit;"]
    for phase in range(1 + max((e.phase for e in events), default=0)):
        for thread in range(len(threads)):
            lines += [f"  setp.ne.u32 %p1, %r40, {thread + 1};\n  @%p1 bra AFTER_{phase}_{thread};"]
            mine = [e for e in events if (e.thread, e.phase) == (thread, phase) and not e.members]
            lines += [e.text() for e in mine] + [f"AFTER_{phase}_{thread}:"]
        barrier = next((e for e in events if e.phase == phase and e.members), None)
        if barrier is not None:
            lines += _barrier_text(barrier, threads, phase)
    return "\n".join(lines)


def _barrier_text(barrier, threads, phase):
    block = threads[barrier.members[0]][0]
    if barrier.kind == "bar":
        return [f"  setp.ne.u32 %p1, %r1, {block};\n  @%p1 bra MET_{phase};\n  barrier.sync 0;\nMET_{phase}:"]
    mask = sum(1 << threads[t][1] % 32 for t in barrier.members)
    lines = ["  mov.u32 %r41, 0;"]
    for t in barrier.members:
        lines.append(f"  setp.eq.u32 %p1, %r40, {t + 1};\n  @%p1 mov.u32 %r41, {mask};")
    return [*lines, f"  setp.eq.u32 %p1, %r41, 0;\n  @%p1 bra MET_{phase};\n  bar.warp.sync %r41;\nMET_{phase}:"]


class Model:
    """Causality order of one execution, given what each read saw."""

    def __init__(self, threads, events, seen):
        self.threads, self.events = threads, events
        self.seen = {number: int(value) - 1 for number, value in enumerate(seen)}
        self.order = np.zeros((len(events), len(events)), bool)
        for a, b in itertools.permutations(events, 2):
            self.order[a.number, b.number] = self.in_program_order(a, b) or self.at_barrier(a, b)
        self.observed = self.closed(self.observations())
        self.order_sequential_fences()
        self.synchronise()
        self.causality = self.closed(self.order)
        self.causality |= self.observed @ self.causality

    def in_program_order(self, a, b):
        return (
            a.thread == b.thread and a.number < b.number
            if a.phase == b.phase
            else a.thread == b.thread and a.phase < b.phase
        )

    def at_barrier(self, a, b):
        """What a thread does up to a barrier comes before what another one does from it on."""
        return a.members != () and a.members == b.members and a.phase == b.phase

    @staticmethod
    def closed(order):
        order = order.copy()
        for k in range(len(order)):
            order |= np.outer(order[:, k], order[k])
        return order

    def morally_strong(self, a, b):
        if a.thread == b.thread:
            return True
        if not (a.strong and b.strong):
            return False
        (block_a, _), (block_b, _) = self.threads[a.thread], self.threads[b.thread]
        # each block is a cluster of its own
        wide = {"gpu", "sys", ""}
        return block_a == block_b or (a.scope in wide and b.scope in wide)

    def observations(self):
        """Writes and the reads that saw them, and through updates those that saw what came of them."""
        direct = np.zeros_like(self.order)
        for read in (e for e in self.events if e.reads):
            source = self.seen[read.number]
            # what a thread's own weak write tells through an update races with that update already
            if (
                source >= 0
                and self.events[source].strong
                and read.strong
                and self.morally_strong(self.events[source], read)
            ):
                direct[source, read.number] = True
        return direct

    def order_sequential_fences(self):
        """Of two fence.sc the one comes first of which something was seen before the other, barriers between or not."""
        here = self.closed(self.order)
        seen = here @ self.observed @ here
        fences = [e for e in self.events if e.sem == "sc"]
        for a, b in itertools.permutations(fences, 2):
            if seen[a.number, b.number] and self.morally_strong(a, b):
                self.order[a.number, b.number] = True

    def synchronise(self):
        releases, acquires = list(self.release_patterns()), list(self.acquire_patterns())
        for (first, write), (read, last) in itertools.product(releases, acquires):
            if self.observed[write.number, read.number] and self.morally_strong(first, last):
                self.order[first.number, last.number] = True

    def release_patterns(self):
        for write in (e for e in self.events if e.writes and e.strong):
            if write.releases:
                yield write, write
            for earlier in self.events:
                here = earlier.kind == "fence" or (earlier.writes and earlier.place == write.place)
                if here and earlier.releases and self.in_program_order(earlier, write):
                    yield earlier, write

    def acquire_patterns(self):
        for read in (e for e in self.events if e.reads and e.strong):
            if read.acquires:
                yield read, read
            for later in self.events:
                here = later.kind == "fence" or (later.reads and later.place == read.place)
                if here and later.acquires and self.in_program_order(read, later):
                    yield read, later

    def races(self):
        """Each access that races, and the thread it races with."""
        found = set()
        for a, b in itertools.combinations([e for e in self.events if e.place >= 0], 2):
            if a.place != b.place or a.thread == b.thread or not (a.writes or b.writes) or self.morally_strong(a, b):
                continue
            if not (self.causality[a.number, b.number] or self.causality[b.number, a.number]):
                found |= {(a.instruction, self.threads[b.thread]), (b.instruction, self.threads[a.thread])}
        return found

    def few(self):
        """Whether the shadow has room for all accesses of each word."""
        for place in {e.place for e in self.events if e.place >= 0}:
            here = [e for e in self.events if e.place == place]
            strong = [e for e in here if e.writes and e.strong]
            if sum(e.reads and not e.writes for e in here) > 2 or len(strong) > 2:
                return False
        return True


def _threads(role):
    thread, block = re.search(r"thread \((\d+), 0, 0\) of block \((\d+), 0, 0\)", role).groups()
    return ((int(block), int(thread)),)


def examine(lab, seed):
    rng = random.Random(seed)
    threads, events = random_program(rng)
    given = [np.zeros(4, "u4"), np.zeros(max(1, len(events)), "u4")]
    schedule = rng.choice(("canonical", "reversed", seed))
    findings = lab.findings(body(threads, events), *given, grid=2, block=64, schedule=schedule) + lab.run.formal
    assert {f.kind for f in findings} <= {"race"}
    model = Model(threads, events, lab.arrays[1].numpy())
    told = {(f.where.text, *_threads(other.role)) for f in findings for other in f.others}
    return threads, events, model, told


@pytest.fixture(autouse=True)
def _every_race_apart(monkeypatch):
    """Each race is held against the model, so none is folded into another of the same cause."""
    monkeypatch.setattr(Reporter, "_group", lambda self, key, *_: key)


@pytest.mark.parametrize("part", range(3))
def test_races_are_those_of_the_memory_model(lab, part):
    for seed in range(100 * part, 100 * part + sampled.examples(10, 20)):
        threads, events, model, told = examine(lab, seed)
        text = f"seed {seed}, threads {threads}\n{body(threads, events)}"
        assert told <= model.races(), f"invented {told - model.races()}\n{text}"
        if model.few():
            assert bool(told) == bool(model.races()), f"missed {model.races()}\n{text}"
