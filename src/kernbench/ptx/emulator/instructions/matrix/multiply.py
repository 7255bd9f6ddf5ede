"""Matrix multiply-accumulate of a warp: mma.sync, and wmma with its own loads and stores."""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.instructions.matrix.matrix import whole_warps
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.memory.port import space_of
from kernbench.ptx.emulator.program.operands import Decoding, Row, StoredPart
from kernbench.ptx.emulator.program.steps import Step, action, compute
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.numerics.matrix import Layout, mma, mma_quads, mma_sparse, wmma, wmma_mma
from kernbench.ptx.numerics.matrix.layout import ELEMENT_BITS, dimensions
from kernbench.ptx.numerics.matrix.scaled import mma_narrow, mma_scaled

Function = Callable[..., None]


def multiply(d: Decoding) -> Step:
    """mma.sync."""
    shape = d.mod("shape")
    kinds = (d.mod("dtype"), d.mod("atype"), d.mod("btype"), d.mod("ctype"))
    if d.has("block_scale"):
        return _scaled(d, shape, kinds)
    if d.has("kind"):
        return _product(d, lambda a, b, c, out: mma_narrow(shape, kinds, a, b, c, out))
    if shape == "m8n8k4" and kinds[1] == "f16":
        majors = (d.mod("alayout"), d.mod("blayout"))
        return _product(d, lambda a, b, c, out: mma_quads(majors, kinds, a, b, c, out))
    flags = {"satfinite": d.has("satfinite"), "xor": d.mod("op") == "xor"}
    return _product(d, lambda a, b, c, out: mma(shape, kinds, a, b, c, out, **flags))


# default number of scales per row
_SCALES = {"kind::mxf8f6f4": 1, "kind::mxf4": 2}


def _scaled(d: Decoding, shape: str, kinds: tuple[str, str, str, str]) -> Step:
    """mma.block_scale: the operands are followed by words of scales, and the byte and lanes that hold them."""
    vector = d.mod("vector")
    count = int(vector[-2]) if vector else _SCALES[d.mod("kind")]
    scales = d.mod("stype")

    def function(*parts: Any) -> None:
        a, b, c, (words_a,), indices_a, (words_b,), indices_b, out = parts
        of_a, of_b = (words_a, *indices_a), (words_b, *indices_b)
        mma_scaled(shape, kinds, count, scales, a, b, c, of_a, of_b, out)

    return _product(d, function, (1, 2, 3, 4, 5, 6, 7))


def multiply_sparse(d: Decoding) -> Step:
    """mma.sp."""
    shape, selector = d.mod("shape"), d.constant_of(5) or 0
    kinds = (d.mod("dtype"), d.mod("atype"), d.mod("btype"), d.mod("ctype"))
    saturates = d.has("satfinite")

    def function(a: Any, b: Any, c: Any, e: Any, out: Any) -> None:
        mma_sparse(shape, kinds, a, b, c, e[0], selector, out, saturates)

    return _product(d, function, (1, 2, 3, 4))


def wmma_multiply(d: Decoding) -> Step:
    """wmma.mma."""
    shape = d.mod("shape")
    kinds = (d.mod("dtype"), d.mod("atype", "f16"), d.mod("btype", "f16"), d.mod("ctype"))
    flags = {"satfinite": d.has("satfinite"), "xor": d.mod("op") == "xor"}
    return _product(d, lambda a, b, c, out: wmma_mma(shape, kinds, a, b, c, out, **flags))


def _product(d: Decoding, function: Function, operands: tuple[int, ...] = (1, 2, 3)) -> Step:
    """A step of `function(a, b, c, ..., out)`, each a list of rows."""
    parts = [[d.row_slot(slot) for slot in d.sources(index)] for index in operands]
    targets = d.targets(0)
    m, n, k = dimensions(d.mod("shape"))
    d.flops = 2 * m * n * k // WARP
    ends = [0, *accumulate(len(part) for part in parts)]
    if d.resolved.meaning == "mma" and operands == (1, 2, 3):
        d.row = Row("product", (*targets, *(slot for part in parts for slot in part)))

    def over_rows(*rows: Any) -> None:
        function(*(rows[start:end] for start, end in pairwise(ends)), rows[ends[-1] :])

    step, site = compute(over_rows, [slot for part in parts for slot in part], targets), d.site

    def general(window: Window, mask: Mask | None) -> None:
        whole_warps(window, mask, site)
        step.general(window, mask)

    return Step(step.direct, general)


def wmma_load(d: Decoding) -> Step:
    """wmma.load: the warp reads a matrix; the assignment of elements to lanes is the emulator's own."""
    return _Fragment(d, targets=d.targets(0), address=1).step("load")


def wmma_store(d: Decoding) -> Step:
    """wmma.store."""
    fragment = _Fragment(d, targets=[d.register_slot(slot) for slot in d.sources(1)], address=0)
    d.store_space, d.stored_parts = fragment.space, fragment.parts
    return fragment.step("store")


class _Fragment:
    """A fragment in memory: each lane's elements, in the order of its registers."""

    def __init__(self, d: Decoding, targets: list[int], address: int):
        kind, which = d.mod("type"), d.mod("matrix").replace("d", "c")
        self._layout: Layout = wmma(d.mod("shape"), which, kind)
        # elements narrower than a byte are moved a word at a time; strides still count elements
        self._word = max(1, 32 // ELEMENT_BITS[kind]) if ELEMENT_BITS[kind] < 8 else 1
        self._bits = ELEMENT_BITS[kind] * self._word
        self._registers = targets
        self._address = d.address(address)
        self.space = space_of(self._address.space or d.mod("space"))
        self._row_major = d.mod("layout") == "row"
        stride = d.position("stride")
        self._stride = None if stride is None else d.row_slot(d.source(stride))
        self._scratch = d.temporary(f"uint{self._bits}")
        bank, rows = d.bank_rows([self._scratch])
        self._bank, self._row = bank, np.array(rows, np.int64)
        self._site = d.site
        nbytes = self._layout.elements // self._word * self._bits // 8
        d.traffic = ("generic" if self.space == "generic" else self.space, "moved", nbytes)

    def step(self, what: str) -> Step:
        """The load or store."""
        move = self._load if what == "load" else self._store
        site = self._site

        def general(window: Window, mask: Mask | None) -> None:
            whole_warps(window, mask, site)
            move(window, mask)

        return action(general)

    def _addresses(self, window: Window, element: int) -> Array:
        """The address of each position's element of this index."""
        base = window.batch.port.addresses(window, self._address.slot) + np.uint64(self._address.offset)
        first = element * self._word
        rows, columns = self._layout.rows[:, first], self._layout.columns[:, first]
        slow, fast = (rows, columns) if self._row_major else (columns, rows)
        dense = self._layout.shape[1] if self._row_major else self._layout.shape[0]
        stride = dense if self._stride is None else window.rows[self._stride].astype(np.int64)
        index = np.tile(slow, window.size // WARP) * stride + np.tile(fast, window.size // WARP)
        addresses: Array = base + (index // self._word * (self._bits // 8)).astype(np.uint64)
        return addresses

    def _load(self, window: Window, mask: Mask | None) -> None:
        port, per = window.batch.port, self._layout.elements // self._word // len(self._registers)
        for number, register in enumerate(self._registers):
            dtype = window.blank(register).dtype
            value = np.zeros(window.size, dtype)
            for part in range(per):
                addresses = self._addresses(window, number * per + part)
                port.load(
                    self.space, addresses, window.lane_numbers, np.uint64(0), self._bank, self._row, mask, self._site
                )
                value |= window.rows[self._scratch].astype(dtype) << dtype.type(part * self._bits)
            window.put(register, value, mask)

    def _store(self, window: Window, mask: Mask | None) -> None:
        port = window.batch.port
        for part in self.parts(window):
            value = window.rows[self._registers[part.register]]
            element = (value >> value.dtype.type(8 * part.first)).astype(f"uint{self._bits}")
            window.put(self._scratch, element, mask)
            port.store(
                self.space, part.addresses, window.lane_numbers, np.uint64(0), self._bank, self._row, mask, self._site
            )

    def parts(self, window: Window) -> Iterator[StoredPart]:
        """What a store puts where."""
        per, nbytes = self._layout.elements // len(self._registers), self._bits // 8
        for element in range(self._layout.elements):
            number, part = divmod(element, per)
            yield StoredPart(number, part * nbytes, nbytes, self._addresses(window, element))


MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {
    "mma": multiply,
    "mma.sp": multiply_sparse,
    "wmma.load": wmma_load,
    "wmma.store": wmma_store,
    "wmma.mma": wmma_multiply,
}
