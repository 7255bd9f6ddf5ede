"""The reference of `filled`: a program run with many fillings at once."""

import numpy as np
from tests.ptx.emulator.analysis.undefined.filled import (
    COMPARISONS,
    FILLINGS,
    LANE,
    LANES,
    LOGIC,
    OPERATIONS,
    SLOTS,
    WORDS,
)

SHAPE = FILLINGS, LANES
NONE = np.zeros(SHAPE, bool)
ROWS = np.arange(FILLINGS)[:, None]


# instructions that only compute, and the number of the operand that is their target
TARGETS = {"mov": 0, "not": 0, "operation": 1, "logic": 1, "setp": 0, "selp": 0, "pack": 0, "unpack": 0}


def is_choice(operands, behind):
    """Whether a break leaves its own block, past instructions that only compute, and not its predicate."""
    predicate, depth = operands
    return bool(behind) and depth == 0 and (predicate is None or computes(predicate[0], behind, 0))


def computes(predicate, body, depth):
    for kind, *operands in body:
        if kind == "block":
            fine = computes(predicate, operands[0], depth + 1)
        elif kind == "loop":
            fine = computes(predicate, operands[1], depth)
        elif kind == "break":
            fine = operands[1] <= depth
        else:
            fine = kind in TARGETS and operands[TARGETS[kind]] != predicate
        if not fine:
            return False
    return True


def targets(body):
    """The registers that a body may write."""
    for kind, *operands in body:
        if kind in ("block", "loop"):
            yield from targets(operands[-1])
        elif kind == "pack":
            yield from (operands[0] + part for part in ("low", "high"))
        elif kind in TARGETS:
            yield operands[TARGETS[kind]]


class Reference:
    """Every register as three arrays: its numbers, where it is undefined, and where because it was never set.

    `used` says that something undefined may have been used; `excused` that something was that counts as defined, as a
    register that was never set does in a vote.
    """

    def __init__(self, program, seed):
        self.random = np.random.default_rng(seed)
        self.registers = {}
        self.shared = [self.numbers((FILLINGS, WORDS * LANES)), np.ones((FILLINGS, WORDS * LANES), bool)]
        # local memory: what nobody wrote is as a register that was never set
        self.local = {slot: (self.numbers(SHAPE), ~NONE, ~NONE) for slot in range(SLOTS)}
        self.events, self.used, self.excused, self.divided = [], False, False, False
        self.put("%t0", np.broadcast_to(LANE, SHAPE).astype(np.uint32), NONE, NONE, ~NONE)
        self.put("%t4", np.ones(SHAPE, np.uint32), NONE, NONE, ~NONE)
        self.gone = NONE
        self.run(program.body, ~NONE, NONE)

    def depends(self):
        """Whether anything that others can see differs between two fillings."""
        return any((array != array[:1]).any() for event in self.events for array in event)

    def numbers(self, shape):
        """Some of them small, as what programs compare with; and all zeros and all ones."""
        wide = self.random.integers(0, 1 << 32, shape, np.uint32)
        found = np.where(self.random.random(shape) < 0.5, self.random.integers(0, 50, shape, np.uint32), wide)
        found[0], found[1] = 0, 0xFFFFFFFF
        return found

    def get(self, name):
        if not isinstance(name, str):
            return np.full(SHAPE, name, np.uint32), NONE, NONE
        if name not in self.registers:
            found = self.numbers(SHAPE)
            self.registers[name] = (found % 2 == 1 if name[1] in "puq" else found), ~NONE, ~NONE
        return self.registers[name]

    def predicate(self, operand):
        if operand is None:
            return ~NONE, NONE, NONE
        value, undefined, unset = self.get(operand[0])
        return (~value if operand[1] else value), undefined, unset

    def put(self, name, value, undefined, unset, lanes):
        before = self.get(name) if name in self.registers or not lanes.all() else (value, undefined, unset)
        made = zip((value, undefined, unset), before, strict=True)
        self.registers[name] = tuple(np.where(lanes, new, old) for new, old in made)

    def write(self, name, found, guard, lanes, decided):
        """Write a register under a guard: what it leaves as it was depends on it, too."""
        holds, unsure, unset = self.predicate(guard)
        before = self.get(name)
        value, undefined, new = (np.where(holds, a, b) for a, b in zip(found, before, strict=True))
        self.put(name, value, undefined | unsure | decided, new | (unset & unsure), lanes)

    def event(self, lanes, undefined, *values):
        self.events.append([lanes, *(np.where(lanes, value, 0) for value in values)])
        self.may_use(lanes, undefined)

    def may_use(self, lanes, undefined):
        self.used = self.used or bool((undefined & lanes).any())

    def run(self, body, lanes, decided, is_block=False):
        """Run a body for some lanes; `decided` are those that came there by something undefined.

        Which lanes left for which block outside, and what has been decided by then.
        """
        leaving = []
        for number, (kind, *operands) in enumerate(body):
            lanes = lanes & ~self.gone
            if kind in ("block", "loop"):
                times, inside = (1, operands[0]) if kind == "block" else operands
                for _ in range(times):
                    inner, more = self.run(inside, lanes, decided, kind == "block")
                    out = [(depth - (kind == "block"), left) for depth, left in inner]
                    leaving += [(depth, left) for depth, left in out if depth >= 0]
                    for depth, left in out:
                        lanes = lanes & ~left if depth >= 0 else lanes
                    if kind == "loop" or any(depth >= 0 for depth, _ in out):
                        decided = decided | more
            elif kind == "break":
                holds, undefined, unset = self.predicate(operands[0])
                leaving.append((operands[1], lanes & holds))
                decided = decided | (lanes & undefined)
                # compilers do not branch on what was never set
                chooses = is_block and is_choice(operands, body[number + 1 :])
                self.may_use(lanes, undefined & unset if chooses else undefined)
                for name in targets(body[number + 1 :]) if chooses else ():
                    # whatever the paths may write, even where no filling comes there
                    value, lost, never = self.get(name)
                    self.put(name, value, lost | (lanes & undefined), never, ~NONE)
                lanes = lanes & ~holds
            elif kind == "exit":
                holds, undefined, _ = self.predicate(operands[0])
                self.event(lanes, undefined | decided, holds)
                self.gone = self.gone | (lanes & holds)
            else:
                getattr(self, kind.replace(".", "_").replace("not", "inverse"))(operands, lanes, decided)
        return leaving, decided

    def computed(self, function, *names):
        values, undefined, unset = zip(*(self.get(name) for name in names), strict=True)
        return function(*values), np.logical_or.reduce(undefined), np.logical_or.reduce(unset)

    def mov(self, operands, lanes, decided):
        target, source, guard = operands
        self.write(target, self.get(source), guard, lanes, decided)

    def inverse(self, operands, lanes, decided):
        target, source, guard = operands
        self.write(target, self.computed(np.logical_not, source), guard, lanes, decided)

    def operation(self, operands, lanes, decided):
        name, target, one, other, guard = operands
        self.write(target, self.computed(OPERATIONS[name], one, other), guard, lanes, decided)

    def logic(self, operands, lanes, decided):
        name, target, one, other, guard = operands
        self.write(target, self.computed(LOGIC[name], one, other), guard, lanes, decided)

    def setp(self, operands, lanes, decided):
        target, how, one, other, joined, guard = operands
        found = self.computed(COMPARISONS[how], one, other)
        if joined is not None:
            value, undefined, unset = self.get(joined[1])
            found = LOGIC[joined[0]](found[0], value), found[1] | undefined, found[2] | unset
        self.write(target, found, guard, lanes, decided)

    def selp(self, operands, lanes, decided):
        target, one, other, predicate, guard = operands
        holds, undefined, unset = self.get(predicate)
        value, lost, never = (np.where(holds, a, b) for a, b in zip(self.get(one), self.get(other), strict=True))
        self.write(target, (value, lost | undefined, never | unset), guard, lanes, decided)

    def pack(self, operands, lanes, decided):
        target, low, high, guard = operands
        self.write(target + "low", self.get(low), guard, lanes, decided)
        self.write(target + "high", self.get(high), guard, lanes, decided)

    def unpack(self, operands, lanes, decided):
        target, source, guard = operands
        self.write(target, self.get(source + "high"), guard, lanes, decided)

    def div(self, operands, lanes, decided):
        target, one, other, guard = operands
        value, undefined, unset = self.computed(lambda a, b: a // np.where(b == 0, 1, b), one, other)
        zero = self.get(other)[0] == 0
        value = np.where(zero, self.numbers(SHAPE), value)
        self.divided = self.divided or bool((zero & lanes).any())
        # a division that may be by zero does more than compute
        self.may_use(lanes, decided)
        self.write(target, (value, undefined | zero, unset | zero), guard, lanes, decided)

    def load(self, target, spots, guard, lanes, decided):
        _, unsure, _ = self.predicate(guard)
        self.may_use(lanes, decided | unsure)
        spots = np.broadcast_to(spots, SHAPE)
        found = self.shared[0][ROWS, spots], self.shared[1][ROWS, spots], NONE
        self.write(target, found, guard, lanes, decided)

    def ld_own(self, operands, lanes, decided):
        self.load(operands[0], operands[1] * LANES + LANE, operands[2], lanes, decided)

    def ld_one(self, operands, lanes, decided):
        self.load(operands[0], operands[1], operands[2], lanes, decided)

    def ld_at(self, operands, lanes, decided):
        target, index, guard = operands
        value, undefined, _ = self.get(index)
        holds, unsure, _ = self.predicate(guard)
        self.event(lanes & holds, undefined | unsure | decided, value & 31)
        self.load(target, value & 31, guard, lanes, decided)

    def ld_param(self, operands, lanes, decided):
        target, guard = operands
        _, unsure, _ = self.predicate(guard)
        self.may_use(lanes, decided | unsure)
        self.write(target, self.get(77), guard, lanes, decided)

    def uniform(self, operands, lanes, decided):
        target, lane, how, limit = operands
        self.may_use(lanes, decided)
        value, undefined = self.shared[0][:, [lane]], self.shared[1][:, [lane]]
        self.put(target, COMPARISONS[how](value, limit), undefined | decided, NONE, lanes)

    def st_shared(self, operands, lanes, decided):
        word, source, guard = operands
        value, undefined, _ = self.get(source)
        holds, unsure, _ = self.predicate(guard)
        self.event(lanes & holds, unsure | decided)
        self.may_use(lanes, unsure)
        spots = slice(word * LANES, (word + 1) * LANES)
        for array, new in zip(self.shared, (value, undefined | decided), strict=True):
            array[:, spots] = np.where(lanes & holds, new, array[:, spots])

    def put_local(self, slot, found, guard, lanes, decided):
        """Write a word of local memory: what a guard leaves as it was depends on it, too."""
        holds, unsure, _ = self.predicate(guard)
        self.may_use(lanes, unsure)
        value, undefined, unset = found
        made = (value, undefined | decided, unset), self.local[slot]
        self.local[slot] = tuple(np.where(lanes & holds, new, old) for new, old in zip(*made, strict=True))

    def st_local(self, operands, lanes, decided):
        slot, source, guard = operands
        self.put_local(slot, self.get(source), guard, lanes, decided)

    def ld_local(self, operands, lanes, decided):
        target, slot, guard = operands
        _, unsure, _ = self.predicate(guard)
        self.may_use(lanes, decided | unsure)
        self.write(target, self.local[slot], guard, lanes, decided)

    def st_wide(self, operands, lanes, decided):
        slot, source, guard = operands
        for number, part in enumerate(("low", "high")):
            self.put_local(slot + number, self.get(source + part), guard, lanes, decided)

    def ld_wide(self, operands, lanes, decided):
        target, slot, guard = operands
        for number, part in enumerate(("low", "high")):
            self.ld_local((target + part, slot + number, guard), lanes, decided)

    def plus(self, operands, lanes, decided):
        target, *slots = operands
        (one, *lost), (other, *more) = (self.local[slot] for slot in slots)
        self.may_use(lanes, decided)
        self.put(target, one + other, lost[0] | more[0] | decided, lost[1] | more[1], lanes)

    def minus(self, operands, lanes, decided):
        slot, source = operands
        (one, *lost), (other, *more) = self.local[slot], self.get(source)
        self.may_use(lanes, decided)
        self.put_local(slot, (one - other, lost[0] | more[0], lost[1] | more[1]), None, lanes, decided)

    def own(self, operands, lanes, decided):
        """A function with a variable that it may leave unset."""
        target, source, limit = operands
        (value, undefined, unset), (number, lost, never) = self.get(source), self.get(limit)
        self.may_use(lanes, decided)
        written, fresh = number < 10, (self.numbers(SHAPE), ~NONE, ~NONE)
        found = [np.where(written, new, old) for new, old in zip((value, undefined, unset), fresh, strict=True)]
        self.put(target, found[0], found[1] | decided | lost, found[2] | never, lanes)

    def st_global(self, operands, lanes, decided):
        _, source, guard = operands
        value, undefined, _ = self.get(source)
        holds, unsure, _ = self.predicate(guard)
        self.event(lanes & holds, undefined | unsure | decided, value)
        self.may_use(lanes, unsure)

    red = st_global

    def bar(self, operands, lanes, decided):
        self.event(lanes, decided)

    def given(self, found, lanes, decided):
        """Lanes give a value to all others."""
        value, undefined, unset = found
        self.event(lanes, undefined | decided, value)
        self.excused = self.excused or bool((undefined & unset & lanes).any())
        return value

    def vote(self, operands, lanes, decided):
        how, target, source = operands
        value = self.given(self.predicate(source), lanes, decided)
        everywhere = value.any(axis=1) if how == "any" else value.all(axis=1)
        self.put(target, everywhere[:, None], decided, NONE, lanes)

    def ballot(self, operands, lanes, decided):
        value = self.given(self.predicate(operands[1]), lanes, decided)
        bits = (value.astype(np.uint64) << LANE.astype(np.uint64)).sum(axis=1)
        self.put(operands[0], bits.astype(np.uint32)[:, None], decided, NONE, lanes)

    def exchanged(self, source, lanes):
        """Lanes give a value to others, in which the result of a division by zero counts as defined."""
        value, undefined, unset = self.get(source)
        self.excused = self.excused or (self.divided and bool((undefined & unset & lanes).any()))
        return value, undefined, unset

    def redux(self, operands, lanes, decided):
        target, source = operands
        value, undefined, unset = self.exchanged(source, lanes)
        self.may_use(lanes, decided)
        total = value.sum(axis=1, dtype=np.uint32)[:, None]
        self.put(target, total, undefined.any(axis=1)[:, None] | decided, unset.any(axis=1)[:, None], lanes)

    def lane(self, operands, lanes, decided):
        target, source, other = operands
        self.shuffle(target, source, self.given(self.get(other), lanes, decided) & 31, lanes, decided)

    def shfl(self, operands, lanes, decided):
        how, target, predicate, source, amount = operands
        other = {"bfly": LANE ^ amount, "up": LANE - amount, "idx": np.full(LANES, amount)}[how]
        self.may_use(lanes, decided)
        self.shuffle(target, source, np.broadcast_to(np.where(other < 0, LANE, other), SHAPE), lanes, decided)
        self.put(predicate, np.broadcast_to(other >= 0, SHAPE), decided, NONE, lanes)

    def shuffle(self, target, source, other, lanes, decided):
        value, undefined, unset = self.exchanged(source, lanes)
        self.put(target, value[ROWS, other], undefined[ROWS, other] | decided, unset[ROWS, other], lanes)
