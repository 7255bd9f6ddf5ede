"""The steps of random programs: stores, loads, copies, shifts and products, and what orders one before the next."""

import numpy as np
from tests.ptx.emulator.tensor import memory
from tests.ptx.emulator.tensor.programs import THREADS, Fault, Frame, Work

NARROW = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
# kind -> types of D, A and B
KINDS = {
    "f16": [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "f16", "bf16")],
    "tf32": [("f32", "tf32", "tf32")],
    "f8f6f4": [(d, a, b) for d in ("f32", "f16") for a in NARROW for b in NARROW],
    "i8": [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")],
    "mxf8f6f4": [("f32", a, b) for a in NARROW for b in NARROW],
    "mxf4": [("f32", "e2m1", "e2m1")],
    "mxf4nvf4": [("f32", "e2m1", "e2m1")],
}
# kind -> scales of a row, their type
SCALES = {
    "mxf8f6f4": [("scale_vec::1X", 1, "ue8m0")],
    "mxf4": [("scale_vec::2X", 2, "ue8m0")],
    "mxf4nvf4": [("scale_vec::2X", 2, "ue8m0"), ("scale_vec::4X", 4, "ue8m0"), ("scale_vec::4X", 4, "ue4m3")],
}


class Steps(Frame):
    """Draws steps and writes them down."""

    def __init__(self, seed):
        super().__init__(seed)
        # the work of the step before, what it was, and registers that are still to be stored
        self.before, self.was, self.kept = [], "", None

    # what one step needs of the other

    def between(self, now):
        """What orders the step before and this one, `now` "move" or "unit"; lines that faults leave out."""
        text, random = self.text, self.random
        lines = {}
        if self.was in ("st", "ld"):
            lines["wait"] = [text.add(f"tcgen05.wait::{self.was}.sync.aligned;")] if self._workers("begin") else []
            self._workers("end")
            if now == "unit" or random.random() < 0.3:
                lines["before"] = [text.add("tcgen05.fence::before_thread_sync;")]
                lines["barrier"] = text.barrier()
                lines["after"] = [text.add("tcgen05.fence::after_thread_sync;")]
        elif self.was == "unit":
            number = int(random.integers(8))
            lines["commit"] = [text.commit(number, random.random() < 0.3)]
            lines["mbarrier"], lines["parity"] = text.waited(number)
            lines["after"] = [text.add("tcgen05.fence::after_thread_sync;")]
            # nobody commits to this mbarrier again before all have seen this phase
            lines["late"] = text.barrier()
        return lines

    def _workers(self, which):
        """Only the four warps that load and store; the others go past."""
        if self.threads == THREADS:
            return True
        if which == "begin":
            self.past = self.text.label("PAST")
            self.text.add(f"@!%p4 bra {self.past};")
        else:
            self.text.add(f"{self.past}:")
        return True

    def step(self, was, work, lines):
        """A step has been written down: what may be wrong between the one before and this one."""
        pairs = [(one, two) for one in self.before for two in work if one.conflicts(two)]
        for kinds in sorted({(one.what, two.what) for one, two in pairs}):
            # of several that one fault concerns, any may be told
            self._plant(*kinds, lines, {work.line for pair in pairs for work in pair})
        self.before, self.was = work, was

    def _plant(self, one, two, lines, where):
        """Faults between work of two sorts at these lines."""
        moves = ("ld", "st")
        dropped = {"wait": "no wait", "before": "no fence before", "barrier": "no barrier", "after": "no fence after"}
        if one in moves and two in moves:
            # the same warp and the same lanes: only the wait orders them
            dropped = {"wait": "no wait"}
        if one not in moves:
            if two not in moves:
                return
            dropped = {"mbarrier": "no wait for the mbarrier", "after": "no fence after"}
            # the barrier behind the wait says nothing of what the unit does
            self.faults.append(Fault("wrong parity", lines["parity"], {"race"}, where))
            self.faults.append(Fault("no commit", {lines["commit"][0]: None}, {"deadlock"}, {lines["mbarrier"][1]}))
        for name, said in dropped.items():
            if lines.get(name):
                self.faults.append(Fault(f"{said}: {one} {two}", dict.fromkeys(lines[name]), {"race"}, where))
                # a pair's work is begun by the first CTA: what the second has not finished before is not looked for
                if self.group == 2 and one not in moves:
                    edits = self._in_the_peer(name, lines[name])
                    self.faults.append(Fault(f"{said} in the peer: {one} {two}", edits, {"race"}, where))

    def _in_the_peer(self, name, lines):
        """What leaves lines out in the second CTA of a pair only."""
        said = self.text.lines[lines[-1] - 1].strip()
        if name == "mbarrier":
            return {lines[-1]: f"or.pred %p6, %p6, %p0; {said}"}
        return {lines[-1]: f"@!%p0 {said}"}

    # moves

    def _work(self, line, what, slot, places, writes):
        """Cells that CTA 0 touches, given as lists of lanes and columns."""
        cells = np.zeros((128, self.sizes[slot]), bool)
        cells[places] = True
        none = np.zeros_like(cells)
        return Work(line, what, slot, none if writes else cells, cells if writes else none)

    def _moved(self, move, at, lane):
        _, _, rows, columns, _ = memory.places(*move)
        lanes = np.concatenate([rows + lane + 32 * warp for warp in range(4)])
        return lanes, np.tile(columns + at, 4)

    def _address(self, register, slot, at, lane=0, warps=False):
        self.text.add(f"add.u32 {register}, %slot{slot}, {lane << 16 | at};")
        if warps:
            self.text.add(f"add.u32 {register}, {register}, %r4;")

    def store(self, slot, at, move, table, lane=0, holds=""):
        """tcgen05.st of given words by all four warps."""
        self.data(table)
        self._address("%r16", slot, at, lane, warps=True)
        shape, repeat, narrow, split = move
        names = "{" + ", ".join(f"%d{i}" for i in range(table.shape[2])) + "}"
        name = f"tcgen05.st.sync.aligned.{shape}.x{repeat}{'.unpack::16b' if narrow else ''}.b32"
        middle = f"{split}, " if shape == "16x32bx2" else ""
        line = self.text.add(f"{name} [%r16], {middle}{names};")
        memory.store(self.cells[slot], at, lane, move, table)
        places = self._moved(move, at, lane)
        self.cells[slot].holds[:, *places] = holds
        self.kinds.add(f"st {shape}" + (" unpack" if narrow else ""))
        return self._work(line, "st", slot, places, True)

    def stores(self, wanted):
        """A step of stores: each of slot, column, words [CTAs, lanes, columns] and what they hold."""
        lines = self.between("move")
        self._workers("begin")
        work = [one for given in wanted for one in self._by_powers(*given)]
        self._workers("end")
        self._flush()
        self.step("st", work, lines)

    def _by_powers(self, slot, at, words, holds):
        """Stores of whole rows, as wide as they come."""
        first, left = 0, words.shape[2]
        while left:
            width = min(1 << left.bit_length() - 1, 128)
            part = words[:, :, first : first + width]
            yield self.store(slot, at + first, ("32x32b", width, False, 0), part, holds=holds)
            first, left = first + width, left - width

    def _draw_move(self, slot):
        random, columns = self.random, self.sizes[slot]
        while True:
            shape, narrow = str(random.choice(list(memory.SHAPES))), bool(random.random() < 0.3)
            repeat = 1 << int(random.integers(0, 8))
            split = int(random.integers(0, 64)) if shape == "16x32bx2" else 0
            reach = memory.reach(shape, repeat, narrow, split)
            if memory.registers(shape, repeat) <= 128 and reach <= columns:
                at = int(random.integers(columns - reach + 1))
                lane = 16 * int(random.integers(2)) if shape != "32x32b" else 0
                # two halves of a split store must not meet
                if shape != "16x32bx2" or split >= repeat * (2 if narrow else 1):
                    return (shape, repeat, narrow, split), at, lane

    def some_store(self):
        """A step of one store of any shape."""
        slot = self._slot()
        move, at, lane = self._draw_move(slot)
        table = self.random.integers(0, 1 << 32, (self.group, THREADS, memory.registers(*move[:2]))).astype(np.uint32)
        lines = self.between("move")
        self._workers("begin")
        work = self.store(slot, at, move, table, lane)
        self._workers("end")
        self._flush()
        self.step("st", [work], lines)

    def some_load(self):
        """A step of one load of any shape, of columns that were written."""
        for _ in range(40):
            slot = self._slot()
            move, at, lane = self._draw_move(slot)
            if self._written(slot, move, at, lane):
                self.load(slot, move, at, lane)
                return

    def _written(self, slot, move, at, lane):
        known = self.cells[slot].known[:, *self._moved(move, at, lane)]
        return bool((known != 0).all())

    def load(self, slot, move, at, lane=0):
        lines = self.between("move")
        self._flush()
        self._workers("begin")
        self._address("%r16", slot, at, lane, warps=True)
        shape, repeat, narrow, split = move
        count = memory.registers(shape, repeat)
        names = "{" + ", ".join(f"%e{i}" for i in range(count)) + "}"
        name = f"tcgen05.ld.sync.aligned.{shape}.x{repeat}{'.pack::16b' if narrow else ''}.b32"
        line = self.text.add(f"{name} {names}, [%r16]{f', {split}' if shape == '16x32bx2' else ''};")
        self._workers("end")
        self.kept = memory.load(self.cells[slot], at, lane, move)
        self.kinds.add(f"ld {shape}" + (" pack" if narrow else ""))
        work = self._work(line, "ld", slot, self._moved(move, at, lane), False)
        self._plant_addresses(line, slot, move)
        self.step("ld", [work], lines)

    def _plant_addresses(self, line, slot, move):
        """Columns beyond those of the allocation, and lanes of another warp."""
        said = self.text.lines[line - 1].strip()
        at = self.sizes[slot] - memory.reach(*move) + 1 + int(self.random.integers(8))
        for name, wrong in (("wrong column", at), ("no such column", 512 + at), ("lanes of another warp", 32 << 16)):
            address = f"add.u32 %r16, {f'%slot{slot}' if name != 'lanes of another warp' else '%r16'}, {wrong};"
            more = " add.u32 %r16, %r16, %r4;" if name != "lanes of another warp" else ""
            if name == "wrong column" and len(self.sizes) > 1:
                continue
            self.faults.append(Fault(name, {line: f"{address}{more} {said}"}, {"tensor-memory"}, {line}))
        empty = [at for at in range(self.sizes[slot] - memory.reach(*move)) if not self._touched(slot, at, move)]
        if empty:
            address = f"add.u32 %r16, %slot{slot}, {empty[0]}; add.u32 %r16, %r16, %r4;"
            # it is told where the words are stored
            self.faults.append(Fault("never written", {line: f"{address} {said}"}, {"uninitialised-read"}, set()))

    def _touched(self, slot, at, move):
        return bool(self.cells[slot].known[:, :, at : at + memory.reach(*move)].any())

    def _flush(self):
        """Registers of the last load go to memory."""
        if self.kept is not None:
            self._workers("begin")
            self.keep(*self.kept)
            self._workers("end")
            self.kept = None

    def _slot(self):
        return int(self.random.choice(list(self.cells)))
