"""Whole random programs of tcgen05."""

import numpy as np
from tests.ptx.emulator.tensor.programs import THREADS, Fault
from tests.ptx.emulator.tensor.units import Units


class Drawn(Units):
    """A program from its seed."""

    def whole(self):
        """Draw it."""
        shown = self.begin()
        first = next(iter(self.cells))
        width = min(self.sizes[first], int(self.random.choice([8, 32, 64])))
        words = self.random.integers(0, 1 << 32, (self.group, THREADS, width)).astype(np.uint32)
        self.stores([(first, 0, words, "")])
        parts = [*[self.chain] * 3, self.some_store, *[self.some_load] * 2, self.some_copy, self.some_shift]
        for _ in range(int(self.random.integers(2, 7))):
            parts[self.random.integers(len(parts))]()
            if self.random.random() < 0.1:
                self._exchange()
        self.some_load()
        self._end()
        if any(kind.startswith(("mma", "cp")) for kind in self.kinds):
            self.faults.append(Fault("no proxy fence", {shown: None}, {"missing-fence"}, set()))
        return self.finish()

    def _exchange(self):
        """An allocation is freed, and there is another in its place."""
        slot = self._slot()
        self._settle()
        self.free(slot)
        size = int(self.random.choice([size for size in (32, 64, 128) if size <= self.sizes[slot]]))
        self.allocate(slot, size)
        self.text.barrier()
        self.look()
        self.kinds.add("exchange")
        words = self.random.integers(0, 1 << 32, (self.group, THREADS, 16)).astype(np.uint32)
        self.stores([(slot, 0, words, "")])

    def _settle(self):
        """All that was begun is done, and everybody knows."""
        self.between("unit")
        self._flush()
        self.text.add("tcgen05.fence::before_thread_sync;")
        self.text.barrier()
        self.text.add("tcgen05.fence::after_thread_sync;")
        self.before, self.was = [], ""

    def _end(self):
        self._settle()
        if self.random.random() < 0.7:
            self.text.add(f"@%p2 tcgen05.relinquish_alloc_permit.cta_group::{self.group}.sync.aligned;")
        for slot in list(self.cells):
            line = self.free(slot)
            said = self.text.lines[line - 1].strip()
            self.faults.append(Fault("not freed", {line: None}, {"tensor-memory"}, {self.alloc_lines[slot]}))
            self.faults.append(Fault("freed twice", {line: f"{said} {said}"}, {"tensor-memory"}, {line}))
        self.text.add("ret;")


def program(seed):
    """A program that is right."""
    return Drawn(seed).whole()
