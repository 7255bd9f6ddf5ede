"""Reaching definitions against a walk through every state that a small program can be in."""

import random
from collections import Counter
from types import SimpleNamespace

from tests import sampled

from kernbench.ptx.emulator.analysis.flow.definitions import sources_of


class Program:
    """Blocks of instructions that read and write numbered registers, some with a guard, and where each block goes."""

    def __init__(self, chance: random.Random):
        count = chance.randint(1, 6)
        self.decodings = [[self._instruction(chance) for _ in range(chance.randint(0, 4))] for _ in range(count)]
        self.edges = [chance.sample(range(count), chance.randint(0, min(2, count))) for _ in range(count)]
        for site, d in enumerate(self):
            d.site = SimpleNamespace(number=10 + site)

    def __iter__(self):
        return (d for decodings in self.decodings for d in decodings)

    def _instruction(self, chance):
        def registers(most):
            return tuple(SimpleNamespace(number=number) for number in chance.sample(range(5), chance.randint(0, most)))

        guard = None if chance.random() < 0.7 else "guard"
        return SimpleNamespace(reads=registers(3), writes=registers(2), instruction=SimpleNamespace(guard=guard))


def walked(program):
    """By site, the sites that set what an instruction reads, in all states that can be reached from any block."""
    found = {d.site.number: set() for d in program}
    waiting = [(block, ()) for block in range(len(program.decodings))]
    seen = set(waiting)
    while waiting:
        block, state = waiting.pop()
        states = [dict(state)]
        for d in program.decodings[block]:
            after = []
            for known in states:
                guarded = d.instruction.guard is not None
                read = (*d.reads, *d.writes) if guarded else d.reads
                found[d.site.number] |= {known[one.number] for one in read if one.number in known}
                after.append({**known, **{one.number: d.site.number for one in d.writes}})
                after += [known] if guarded else []
            states = after
        for known in states:
            for following in program.edges[block]:
                step = (following, tuple(sorted(known.items())))
                if step not in seen:
                    seen.add(step)
                    waiting.append(step)
    return found


@sampled.each(range(60))
def test_sources_are_those_of_every_walk(seed):
    program = Program(random.Random(seed))
    writers = Counter(register.number for d in program for register in d.writes)
    # a register that is set once is taken to be set wherever it is read
    once = {d.site.number for d in program if any(writers[register.number] == 1 for register in d.writes)}
    reference = walked(program)
    for d, sources in sources_of(program):
        assert sources - once <= reference[d.site.number] <= sources


def test_what_is_set_anew_is_not_what_was_there():
    program = Program(random.Random(0))
    first, second = (
        SimpleNamespace(reads=(), writes=(SimpleNamespace(number=3),), instruction=SimpleNamespace(guard=None))
        for _ in range(2)
    )
    last = SimpleNamespace(reads=first.writes, writes=(), instruction=SimpleNamespace(guard=None))
    program.decodings, program.edges = [[first, second, last]], [[]]
    for site, d in enumerate(program):
        d.site = SimpleNamespace(number=site)
    assert [sources for _, sources in sources_of(program)] == [set(), set(), {1}]
