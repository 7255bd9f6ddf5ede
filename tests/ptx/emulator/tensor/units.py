"""Steps of the one thread that issues: chains of products, copies from shared memory, shifts."""

from dataclasses import replace

import numpy as np
from tests.ptx.emulator.tensor import formats, memory
from tests.ptx.emulator.tensor.products import DEPTH, Product, multiply
from tests.ptx.emulator.tensor.programs import THREADS, Fault
from tests.ptx.emulator.tensor.steps import KINDS, SCALES, Steps

EIGHTS = [8, 16, 24, 32, 40, 64, 104, 128, 256]


class Units(Steps):
    """Draws the work of the tensor core."""

    def _rooms(self, *widths):
        """A slot and random columns for ranges of these widths that do not meet, or None."""
        slot, rooms = self._slot(), []
        left = (self.sizes[slot] - sum(-(-width // 4) * 4 for width in widths)) // 4
        if left < 0:
            return None
        gaps = np.sort(self.random.integers(0, left + 1, len(widths)))
        order, at = self.random.permutation(len(widths)), 0
        starts = {}
        for gap, index in zip(gaps, order, strict=True):
            starts[int(index)] = at + 4 * int(gap)
            at += -(-widths[index] // 4) * 4
        rooms = [starts[index] for index in range(len(widths))]
        return slot, rooms

    # products

    def draw_product(self):
        """A product without its matrices, in shared memory or not yet anywhere."""
        random = self.random
        kind = str(random.choice(list(KINDS)))
        d, *types = KINDS[kind][random.integers(len(KINDS[kind]))]
        ws = self.group == 1 and kind not in SCALES and random.random() < 0.25
        if kind in SCALES:
            m = 128 * self.group
        elif ws:
            m = int(random.choice([32, 64, 128]))
        else:
            m = int(random.choice([64, 128])) * self.group
        sizes = [64, 128] if ws else [n * self.group for n in EIGHTS if n * self.group <= 256]
        if kind == "i8":
            sizes = [n for n in sizes if n <= 32 * self.group or n % 16 == 0]
            sizes = [n for n in sizes if self.group == 1 or n % 32 == 0]
        product = Product(kind, d, tuple(types), m, int(random.choice(sizes)), None, None, self.group, ws)
        if kind != "i8":
            product.negate = tuple(bool(x) for x in random.integers(0, 2, 2))
        else:
            product.saturate = bool(random.integers(2))
        if m == 64 and not ws:
            product.lane = 16 * int(random.integers(2))
        return product

    def _transposed(self, product, which):
        """The swizzles with which A or B may lie along M or N."""
        kind, rows = product.types[which], (product.m, product.n)[which] // self.group
        if kind == "tf32":
            return ["128B/32B"] if rows % 32 == 0 else []
        bits = formats.BITS[kind]
        if bits < 8 or product.kind in ("mxf4", "mxf4nvf4") or (bits == 8 and which and product.n % (16 * self.group)):
            return []
        fits = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
        return [mode for mode, width in fits.items() if rows * bits // 8 % width == 0]

    def matrix(self, product, which):
        """Random elements of A or B: their codes and values [rows, K]."""
        shape = ((product.m, product.n)[which], DEPTH[product.kind])
        return formats.draw(self.random, shape, product.types[which], product.d == "f16")

    def in_shared(self, product, which, codes, transposed):
        """A or B in shared memory, half of its rows in each CTA of a pair: what to add to the descriptor."""
        kind, parts = product.types[which], codes.reshape(self.group, -1, codes.shape[1])
        if transposed:
            modes = self._transposed(product, which)
            size = {8: np.uint8, 16: np.uint16, 32: np.uint32}[formats.BITS[kind]]
            return self.tiles.columns(parts.astype(size), str(self.random.choice(modes)))
        container = None if product.kind in ("mxf4", "mxf4nvf4") else "sixteen"
        return self.tiles.rows(formats.packed(parts, kind, container))

    def in_tensor(self, product, codes):
        """A as words of lanes, [CTAs, lanes, 8]; lanes that A does not use hold noise."""
        container = None if product.kind in ("mxf4", "mxf4nvf4") else "byte"
        rows = formats.packed(codes, product.types[0], container).view(np.uint32)
        words = self.random.integers(0, 1 << 32, (self.group, THREADS, 8)).astype(np.uint32)
        for row, word in enumerate(rows):
            for cta, lane in product.lanes_of_a(row):
                words[cta, lane] = word
        return words

    def accumulator(self, product):
        """Words that a product may add to, [CTAs, lanes, columns]."""
        shape = (self.group, THREADS, product.width)
        if product.d == "s32":
            return self.random.integers(0, 1 << 32, shape).astype(np.uint32)
        whole = self.random.integers(-8, 9, shape)
        if product.d == "f32":
            return whole.astype(np.float32).view(np.uint32)
        noise = self.random.integers(0, 1 << 16, shape).astype(np.uint32) << 16
        return whole.astype(np.float16).view(np.uint16).astype(np.uint32) | noise

    def scales(self, product):
        """Scales of rows of A and B: drawn, and as words of 32 lanes [CTAs, lanes, columns] for each."""
        vector, count, kind = SCALES[product.kind][self.random.integers(len(SCALES[product.kind]))]
        codes = [126, 127, 128] if kind == "ue8m0" else [0x30, 0x34, 0x38, 0x3C, 0x40]
        said = {"vector": vector, "type": kind, "ids": []}
        words = []
        for name, rows, ctas in (("a", product.m, self.group), ("b", product.n, 1)):
            given = self.random.choice(codes, (rows, count))
            said[name] = 2.0 ** (given - 127.0) if kind == "ue8m0" else formats.values(given, "e4m3")
            first = int(self.random.integers(4 // count)) * count
            said["ids"].append(first)
            # each CTA has the scales of its rows of A, and of all columns of B
            parts = given.reshape(ctas, -1, count)
            columns = 4 * -(-parts.shape[1] // 128)
            data = self.random.integers(0, 256, (self.group, 32, columns, 4))
            for cta in range(self.group):
                for row, few in enumerate(parts[cta % ctas]):
                    data[cta, row % 32, row // 32, first : first + count] = few
            words.append(data.astype(np.uint8).view(np.uint32)[..., 0])
        product.scales = said
        return words

    def chain(self):
        """A step of products into one accumulator, with the stores that it needs before it."""
        random, product = self.random, self.draw_product()
        in_tensor, by_copy = random.random() < 0.4, random.random() < 0.5
        words = self.scales(product) if product.kind in SCALES else []
        found = self._rooms(product.width, *([8] if in_tensor else []), *(w.shape[2] for w in words))
        if found is None:
            return
        slot, (at, *more) = found
        codes, product.a = self.matrix(product, 0)
        shift = in_tensor and product.m // self.group == 128 and random.random() < 0.4
        a_at = more.pop(0) if in_tensor else None
        stores, copies = [], []
        if in_tensor:
            rows = self.in_tensor(product, codes)
            (copies if by_copy and not shift else stores).append(
                (slot, a_at, rows, "" if shift or not by_copy else "A")
            )
        for where, few in zip(more, words, strict=True):
            (copies if by_copy else stores).append((slot, where, np.tile(few, (1, 4, 1)), "scales" if by_copy else ""))
        add = random.random() < 0.5
        if add:
            stores.append((slot, at, self.accumulator(product), product.d))
        else:
            # what is there may be a result already, of the same type
            ctas, lanes, columns = product.places(product.m)
            add = bool((self.cells[slot].holds[ctas, lanes, columns + at] == product.d).all())
        if stores:
            self.stores(stores)
        self._products(product, slot, at, a_at, more, copies, shift, add, codes)

    def _products(self, product, slot, at, a_at, scales_at, copies, shift, add, codes):
        random, lines = self.random, self.between("unit")
        work = [self._copy_in(*one) for one in copies]
        count = int(random.integers(1, 4))
        shared = None
        trans = [False, False]
        if a_at is None:
            trans[0] = bool(self._transposed(product, 0)) and random.random() < 0.3
            shared = self.in_shared(product, 0, codes, trans[0])
        trans[1] = bool(self._transposed(product, 1)) and random.random() < 0.3
        product.transpose = tuple(trans)
        same = not shift and random.random() < 0.4
        for number in range(count):
            if shift and random.random() < 0.7:
                quarter = int(random.integers(4))
                work.append(self._shift(slot, a_at, quarter))
                product.a = self._down(product, product.a, slice(32 * quarter, 32 * quarter + 32))
            here = replace(product, accumulates=add or number > 0)
            b, here.b = self.matrix(product, 1)
            right, use = self.in_shared(here, 1, b, trans[1]), self._collector(product, number, count, same)
            work.append(self._product(here, slot, at, a_at, scales_at, shared, right, use))
        self._flush()
        self.step("unit", work, lines)
        if random.random() < 0.8:
            self._look_at(product, slot, at)

    def _down(self, product, a, rows=slice(None)):
        """Rows of A after a shift, in each CTA by itself."""
        parts = a.reshape(self.group, -1, a.shape[1]).copy()
        parts[:, rows][:, 1:] = parts[:, rows][:, :-1].copy()
        return parts.reshape(a.shape)

    def _product(self, product, slot, at, a_at, scales_at, shared, b, use):
        add = self.text.add
        self._address("%r17", slot, at, product.lane)
        a, ashift = self._left(product, slot, a_at, shared, use)
        add(f"add.u64 %rd7, %rd5, {b};")
        add(f"mov.b32 %r22, {product.instruction()};")
        add(f"setp.{'eq' if product.accumulates else 'ne'}.b32 %p7, 0, 0;")
        block, more, last = self._options(product, slot, scales_at)
        ws = ".ws" if product.ws else ""
        name = f"tcgen05.mma{ws}.cta_group::{self.group}.kind::{product.kind}{block}{ashift}{use}"
        line = add(f"@%p3 {name} [%r17], {a}, %rd7, %r22, {more}%p7{last};")
        before = self.cells[slot].known.copy()
        multiply(self.cells[slot], at, product)
        self._kinds_of(product, a_at, ashift)
        if not product.accumulates and not before[0, :, at : at + product.width].any():
            wrong = f"setp.eq.b32 %p7, 0, 0; {self.text.lines[line - 1].strip()}"
            self.faults.append(Fault("adds to nothing", {line: wrong}, {"uninitialised-read"}, {line}))
        return self._work_of_product(product, line, slot, at, a_at, scales_at)

    def _left(self, product, slot, a_at, shared, use):
        """A as the instruction names it, and whether its rows are shifted on the way."""
        if a_at is None:
            self.text.add(f"add.u64 %rd6, %rd5, {shared};")
            return "%rd6", ""
        self._address("%r18", slot, a_at, product.lane)
        whole = product.m // self.group == 128 and not product.ws and product.kind not in SCALES
        if not whole or use or self.random.random() < 0.7:
            return "[%r18]", ""
        product.a = self._down(product, product.a)
        return "[%r18]", ".ashift"

    def _options(self, product, slot, scales_at):
        """What stands in the name for scaled blocks, before the predicate, and behind it."""
        random = self.random
        if product.scales:
            for register, where in zip(("%r19", "%r20"), scales_at, strict=True):
                self._address(register, slot, where)
            return f".block_scale.{product.scales['vector']}", "[%r19], [%r20], ", ""
        if product.ws:
            return "", "", ""
        more = self._disable(product) if product.accumulates and random.random() < 0.4 else ""
        if product.kind in ("f16", "tf32") and product.accumulates and random.random() < 0.5:
            product.scale = int(random.integers(0, 3))
            return "", more, f", {product.scale}"
        return "", more, ""

    def _collector(self, product, number, count, same):
        """How a product of a chain uses what is kept of A, or of B."""
        if product.ws:
            return str(self.random.choice(["", ".collector::b0::fill", ".collector::b3::discard"]))
        if same and count > 1:
            return ".collector::a::" + ("fill" if number == 0 else "use" if number < count - 1 else "lastuse")
        return str(self.random.choice(["", "", ".collector::a::discard"]))

    def _kinds_of(self, product, a_at, ashift):
        self.kinds |= {f"mma {product.kind} {product.group}", f"m {product.m} {product.ws} {product.group}"}
        self.kinds |= {"A in tensor memory"} if a_at is not None else set()
        self.kinds |= {"ashift"} if ashift else set()
        self.kinds |= {"disabled lanes"} if product.disabled else set()
        self.kinds |= {"scale of d"} if product.scale else set()

    def _work_of_product(self, product, line, slot, at, a_at, scales_at):
        _, lanes, columns = product.places(product.m // self.group)
        work = self._work(line, "mma", slot, (lanes, columns + at), True)
        if product.accumulates:
            work.reads |= work.writes
        if a_at is not None:
            lanes = [lane for row in range(product.m // self.group) for _, lane in product.lanes_of_a(row)]
            work.reads[np.repeat(lanes, 8), np.tile(np.arange(8) + a_at, len(lanes))] = True
        for where, rows in zip(scales_at, (128, product.n), strict=bool(scales_at)):
            row = np.arange(rows)
            for quarter in range(4):
                work.reads[32 * quarter + row % 32, where + row // 32] = True
        return work

    def _disable(self, product):
        masks = self.random.integers(0, 1 << 32, 4 * self.group)
        for i, mask in enumerate(masks):
            self.text.add(f"mov.b32 %mask{i}, {int(mask)};")
        lanes = {32 * word + bit for word, mask in enumerate(masks) for bit in range(32) if int(mask) >> bit & 1}
        product.disabled = frozenset(lanes)
        return "{" + ", ".join(f"%mask{i}" for i in range(len(masks))) + "}, "

    def _look_at(self, product, slot, at):
        """A load of all of D."""
        widths = [1 << i for i in range(8) if 1 << i <= product.width]
        width = widths[-1]
        first = at + int(self.random.integers(0, product.width - width + 1))
        if product.m // self.group == 64 and self.group == 1 and not product.ws:
            move = ("16x64b", max(width // 2, 1), False, 0)
        else:
            move = ("32x32b", width, False, 0)
        if self._written(slot, move, first, product.lane):
            self.load(slot, move, first, product.lane)

    # copies and shifts

    def _copy(self, slot, at, shape, rows, narrow=None):
        """tcgen05.cp of rows [CTAs, rows, bytes]."""
        descriptor = self.tiles.rows(rows)
        self._address("%r21", slot, at)
        self.text.add(f"add.u64 %rd10, %rd5, {descriptor};")
        form = {None: "", 4: ".b8x16.b4x16_p64", 6: ".b8x16.b6x16_p32"}[narrow]
        line = self.text.add(f"@%p3 tcgen05.cp.cta_group::{self.group}.{shape}{form} [%r21], %rd10;")
        memory.copy(self.cells[slot], at, shape, rows, narrow)
        self.kinds.add(f"cp {shape} {narrow}")
        lanes = [lane for row in range(memory.COPIES[shape][0]) for lane in memory.COPIES[shape][2](row)]
        width = memory.COPIES[shape][1] // 4
        places = np.repeat(lanes, width), np.tile(np.arange(width) + at, len(lanes))
        return self._work(line, "cp", slot, places, True)

    def _copy_in(self, slot, at, words, what):
        """Words of lanes that a product needs, by a copy."""
        if what == "A":
            return self._copy(slot, at, "128x256b", words.view(np.uint8).reshape(self.group, 128, 32))
        for first in range(0, words.shape[2], 4):
            part = np.ascontiguousarray(words[:, :32, first : first + 4]).view(np.uint8).reshape(self.group, 32, 16)
            work = self._copy(slot, at + first, "32x128b.warpx4", part)
        return work

    def _shift(self, slot, at, quarter):
        self._address("%r21", slot, at, 32 * quarter)
        line = self.text.add(f"@%p3 tcgen05.shift.cta_group::{self.group}.down [%r21];")
        memory.shift(self.cells[slot], at, quarter)
        self.kinds.add("shift")
        work = self._work(line, "shift", slot, (slice(32 * quarter, 32 * quarter + 32), slice(at, at + 8)), True)
        work.reads |= work.writes
        return work

    def some_copy(self):
        """A step of one copy of any shape."""
        shape, narrow = str(self.random.choice(list(memory.COPIES))), self.random.choice([None, None, 4, 6])
        rows, nbytes, _ = memory.COPIES[shape]
        found = self._rooms(nbytes // 4)
        if found is None:
            return
        slot, (at,) = found
        lines = self.between("unit")
        data = self.random.integers(0, 256, (self.group, rows, nbytes)).astype(np.uint8)
        work = self._copy(slot, at, shape, data, narrow)
        self._flush()
        self.step("unit", [work], lines)
        self._look_back(slot, at, nbytes // 4)

    def _look_back(self, slot, at, width):
        move = ("32x32b", width, False, 0)
        if self._written(slot, move, at, 0):
            self.load(slot, move, at)

    def some_shift(self):
        """A step of one shift of columns that were written."""
        found = self._rooms(8)
        if found is None or not self.cells[found[0]].known[:, :, found[1][0] : found[1][0] + 8].all():
            return
        slot, (at,) = found
        lines = self.between("unit")
        work = self._shift(slot, at, int(self.random.integers(4)))
        self._flush()
        self.step("unit", [work], lines)
        self._look_back(slot, at, 8)
