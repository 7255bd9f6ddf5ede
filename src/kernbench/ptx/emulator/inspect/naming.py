"""Values that a kernel names: at a checkpoint, a step takes them from registers or memory and passes them on.

The steps are decoded only for launches that need checkpoints. Registers are taken from all lanes that arrive together;
memory once for each block, when the first of its warps arrives for the n-th time.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import Array, dtype_of
from kernbench.common.errors import KernelError, MisuseError, unknown
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import COLUMNS, LANES
from kernbench.ptx.emulator.checks.findings.reporter import by_axis
from kernbench.ptx.emulator.inspect.hub import Batch, Window
from kernbench.ptx.emulator.lanes.clusters import RANK_SHIFT
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.special import special_value
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.isa.special import SPECIAL_REGISTERS
from kernbench.ptx.names.demangling import title
from kernbench.ptx.names.names import qualified_name, source_name
from kernbench.ptx.text.checkpoints import PtxCheckpoint
from kernbench.ptx.text.index_expressions import Expression
from kernbench.ptx.text.module import Module
from kernbench.ptx.text.types import TYPES
from kernbench.result.checkpoint import Checkpoint, Taken
from kernbench.result.finding import SourceLocation

ELEMENT = "i"
_FLOATS: dict[str, npt.DTypeLike] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
ELEMENT_TYPES: dict[str, np.dtype[np.generic]] = {name: dtype_of(kind) for name, kind in _FLOATS.items()}
ELEMENT_TYPES |= {f"{k}{n}": dtype_of(f"{'u' * (k == 'u')}int{n}") for k in "su" for n in (8, 16, 32, 64)}
# types that a comparison takes unchanged; others become float64
_COMPARED = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32", "int8")
# a value of each lane of a batch, by lane number
Known = Callable[[Batch, Array], Array]


@dataclass(eq=False)
class Naming:
    """The checkpoints of one launch: their consumer, and how often each warp of each block has reached one."""

    taken: Taken
    file: str
    _visits: dict[tuple[int, int], Counter[int]] = field(default_factory=dict)

    def first_of_block(self, site: int, block: int, warp: int) -> bool:
        """Whether this warp is the first of its block to reach a site this many times."""
        times = self._visits.setdefault((site, block), Counter())
        most = max(times.values(), default=0)
        times[warp] += 1
        return times[warp] > most

    def location(self, site: Site) -> SourceLocation:
        """The line to show for a site."""
        if site.source_line and site.source_file:
            return SourceLocation(site.source_file, site.source_line, title(site.function))
        return SourceLocation(self.file, site.line, title(site.function), site.text)


def naming_step(decoding: Decoding, point: PtxCheckpoint, module: Module) -> Step:
    """A step that takes the values of a checkpoint."""
    taker = _Taker(decoding, point, module)
    return action(taker.visit)


class _Taker:
    """A checkpoint with resolved names."""

    def __init__(self, decoding: Decoding, point: PtxCheckpoint, module: Module):
        self._decoding, self._point, self._module = decoding, point, module
        self._site: Site = decoding.site
        self._registers = [self._register(name) for name in point.registers]
        self._dtype = self._element_type()
        texts = {"base": point.base, "address": point.address, "when": point.when}
        self._texts = {key: Expression(text) for key, text in texts.items() if text}
        self._at = [Expression(text) for text in point.at]
        self._keys = {key: Expression(text) for key, text in point.keys.items()}
        everything = [*self._texts.values(), *self._at, *self._keys.values()]
        self._known = {name: self._find(name) for each in everything for name in each.names if name != ELEMENT}
        for text in (self._texts.get("base"), *self._keys.values()):
            if text is not None and ELEMENT in text.names:
                raise self._wrong(f"{text.text!r}: an address and a key are of a thread, not of its elements (i)")

    def _wrong(self, what: str) -> MisuseError:
        return MisuseError(f"line {self._site.line}: checkpoint {self._point.name!r}: {what}")

    def _register(self, name: str) -> Register:
        found: Register | None = self._decoding.scope.register(name)
        if found is None or found.rows > 1:
            raise self._wrong(f"there is no register {name!r} of at most 64 bits here")
        return found

    def _element_type(self) -> np.dtype[np.generic]:
        declared = {r.type for r in self._registers}
        name = self._point.type or (declared.pop() if len(declared) == 1 else "")
        name = TYPES[name].lane or name if name in TYPES else name
        if name not in ELEMENT_TYPES:
            problem = f"its element type must be said, type = one of {', '.join(ELEMENT_TYPES)}"
            raise self._wrong(f"{problem}; got {name!r}" if name else problem)
        dtype = ELEMENT_TYPES[name]
        narrow = [r.name for r in self._registers if TYPES[r.type].storage in ("bool", "uint8")]
        narrow += [r.name for r in self._registers if TYPES[r.type].bits < 8 * dtype.itemsize]
        if narrow:
            raise self._wrong(f"{narrow[0]} is too narrow for {name}")
        return dtype

    def _find(self, name: str) -> Known:
        """Resolve a name in an expression."""
        bare = name.removeprefix("%")
        register = self._decoding.scope.register(name)
        if register is not None:
            return _of_register(register)
        base = f"%{bare.partition('.')[0]}"
        special = SPECIAL_REGISTERS.get(f"%{bare}") or SPECIAL_REGISTERS.get(base)
        if special is not None and (f"%{bare}" in SPECIAL_REGISTERS or "." in bare):
            return lambda batch, lanes: np.broadcast_to(special_value(batch, f"%{bare}"), batch.lanes)[lanes]
        return self._variable(name)

    def _variable(self, name: str) -> Known:
        offset = self._shared_offset(name)
        if offset is not None:
            return lambda batch, lanes: np.full(len(lanes), offset)
        kernel = self._module.kernels.get(self._decoding.code.name)
        parameters = {p.name: p for p in kernel.params} if kernel is not None else {}
        if name in parameters and parameters[name].size in (1, 2, 4, 8) and not parameters[name].dims:
            size, sign = parameters[name].size, "" if parameters[name].type.startswith("s") else "u"
            return lambda batch, lanes: np.repeat(
                batch.launch.parameter(name, 0, f"{sign}int{8 * size}", 1), len(lanes)
            )
        if name in self._module.variables and self._module.variables[name].space in ("global", "const"):
            return lambda batch, lanes: np.full(len(lanes), batch.launch.symbol("global", name))
        known = ("i", "%REGISTER", "tid.x", "ctaid.x", "laneid", *parameters, *self._module.variables)
        raise self._wrong(unknown("name", name, known))

    def _shared_offset(self, name: str) -> int | None:
        found = self._decoding.scope.variable(name)
        key = (id(found[1]), name) if found is not None else (0, name)
        shared: dict[tuple[int, str], int] = self._decoding.linker.shared
        if key in shared:
            return shared[key]
        offsets = {offset for (_, held), offset in shared.items() if name in (source_name(held), qualified_name(held))}
        return offsets.pop() if len(offsets) == 1 else None

    def visit(self, window: Window, mask: Mask | None) -> None:
        """Lanes have reached the checkpoint."""
        naming = window.batch.launch.naming
        assert naming is not None, "only a launch that takes values has steps that name them"
        lanes = window.lane_numbers if mask is None else window.lane_numbers[mask]
        if not len(lanes):
            return
        try:
            self._take(window.batch, lanes, naming)
        except MisuseError as error:
            problem = str(error) if "checkpoint" in str(error) else f"checkpoint {self._point.name!r}: {error}"
            raise KernelError("misuse", problem, "", naming.location(self._site)) from None

    def _take(self, batch: Batch, lanes: Array, naming: Naming) -> None:
        if self._point.space:
            lanes = self._of_blocks(batch, lanes, naming)
            if not len(lanes):
                return
            values = _SPACES[self._point.space](self, batch, lanes)
        else:
            values = self._held(batch, lanes)
        count = values.shape[1]
        chosen = self._value("when", batch, lanes, count) != 0
        indices = [np.broadcast_to(text.value(self._names(batch, lanes, count)), values.shape) for text in self._at]
        keys = {k: np.ravel(text.value(self._names(batch, lanes, 1))) for k, text in self._keys.items()}
        for rows, group in _groups(keys, len(lanes)):
            inside = np.zeros(values.shape, bool)
            inside[rows] = np.broadcast_to(chosen, values.shape)[rows]
            if inside.any():
                self._hand(naming, batch, lanes, values, indices, inside, group)

    def _hand(
        self,
        naming: Naming,
        batch: Batch,
        lanes: Array,
        values: Array,
        indices: list[Array],
        inside: Array,
        keys: dict[str, int],
    ) -> None:
        """Pass one group of elements to the comparison."""
        owners = lanes[np.nonzero(inside)[0]]
        array, where, name = values[inside], naming.location(self._site), self._point.name
        if array.dtype.name not in _COMPARED:
            array = array.astype(np.float64)
        if self._point.space and not self._at:
            # each block has all elements
            for lane in dict.fromkeys(owners.tolist()):
                naming.taken(Checkpoint(name, array[owners == lane], where, self._who(batch, lane), keys))
            return

        def owner(element: int) -> str:
            return self._who(batch, int(owners[element]))

        who = owner(0) if len(np.unique(owners)) == 1 else _summary(batch, owners, bool(self._point.space))
        naming.taken(Checkpoint(name, array, where, who, keys, tuple(index[inside] for index in indices), owner))

    def _who(self, batch: Batch, lane: int) -> str:
        block = by_axis(int(batch.numbers[lane // WARP % batch.ctas]), batch.launch.grid)
        if self._point.space:
            return f"block {block}"
        return f"block {block}, thread {_thread(batch, lane)}"

    def _of_blocks(self, batch: Batch, lanes: Array, naming: Naming) -> Array:
        """One lane of each block whose memory is to be read now."""
        _, first = np.unique(lanes // WARP, return_index=True)
        found: dict[int, int] = {}
        for lane in lanes[np.sort(first)]:
            cta, warp = int(lane // WARP % batch.ctas), int(lane // WARP // batch.ctas)
            if naming.first_of_block(self._site.number, int(batch.numbers[cta]), warp):
                found.setdefault(cta, int(lane))
        return np.array(list(found.values()), np.int64)

    def _names(self, batch: Batch, lanes: Array, count: int) -> Callable[[str], Array]:
        def known(name: str) -> Array:
            if name == ELEMENT:
                return np.arange(count)[None, :]
            return np.asarray(self._known[name](batch, lanes)).astype(np.int64)[:, None]

        return known

    def _value(self, what: str, batch: Batch, lanes: Array, count: int) -> Array:
        """One of the expressions, a row for each lane; 1 if it is missing."""
        text = self._texts.get(what)
        if text is None:
            return np.ones((len(lanes), count), np.int64)
        return np.broadcast_to(text.value(self._names(batch, lanes, count)), (len(lanes), count))

    def _held(self, batch: Batch, lanes: Array) -> Array:
        """The registers' elements, a row for each lane."""
        parts = [np.ascontiguousarray(batch.banks[r.bank][r.row, lanes]).view(self._dtype) for r in self._registers]
        return np.concatenate([part.reshape(len(lanes), -1) for part in parts], axis=1)

    def _bytes(self, batch: Batch, lanes: Array, size: int, what: str) -> Array:
        """The offset of each element of memory."""
        count = self._point.count
        if count > size:
            raise self._wrong(f"{count:,} elements of {size:,} bytes of {what}")
        start = self._value("base", batch, lanes, 1)
        if "address" in self._texts:
            return np.asarray(start + self._value("address", batch, lanes, count))
        return np.asarray(start + np.arange(count) * self._dtype.itemsize)

    def _shared(self, batch: Batch, lanes: Array) -> Array:
        size = batch.launch.shared_bytes
        first = self._bytes(batch, lanes, size, "shared memory") & ((1 << RANK_SHIFT) - 1)
        self._check_inside(first, size, "shared memory")
        origins = (lanes // WARP % batch.ctas * batch.shared_stride)[:, None]
        return self._gathered(batch.port.space("shared").words[1], first + origins)

    def _global(self, batch: Batch, lanes: Array) -> Array:
        space = batch.port.space("global")
        first = self._bytes(batch, lanes, int(space.size), "global memory") - GLOBAL_BASE
        self._check_inside(first, int(space.size), "global memory")
        return self._gathered(space.words[1], first)

    def _check_inside(self, first: Array, size: int, what: str) -> None:
        outside = (first < 0) | (first + self._dtype.itemsize > size)
        if outside.any():
            row, element = np.argwhere(outside)[0]
            raise self._wrong(f"element {element} is byte {first[row, element]:,} of {size:,} bytes of {what}")

    def _gathered(self, memory: Array, first: Array) -> Array:
        nbytes = self._dtype.itemsize
        parts = memory[first[:, :, None] + np.arange(nbytes)]
        return np.ascontiguousarray(parts).view(self._dtype)[:, :, 0]

    def _tensor(self, batch: Batch, lanes: Array) -> Array:
        if batch.tensor_memory is None:
            raise self._wrong("no tensor memory is allocated here")
        start = self._value("base", batch, lanes, 1)[:, 0]
        columns, rows, found = self._point.columns, self._point.lanes, []
        for lane, address in zip(lanes, start, strict=True):
            row, column = int(address) >> 16 & 0xFFFF, int(address) & 0xFFFF
            if row + rows > LANES or column + columns > COLUMNS:
                raise self._wrong(f"{rows} lanes from {row} and {columns} columns from {column}: there are 128 and 512")
            words = batch.tensor_memory.words[int(lane) // WARP % batch.ctas].reshape(LANES, COLUMNS)
            part = np.ascontiguousarray(words[row : row + rows, column : column + columns])
            found.append(part.view(self._dtype).reshape(-1))
        return np.array(found)


_SPACES: dict[str, Callable[[_Taker, Batch, Array], Array]] = {
    "shared": _Taker._shared,
    "global": _Taker._global,
    "tensor": _Taker._tensor,
}


def _of_register(register: Register) -> Known:
    signed = register.type.startswith("s")

    def value(batch: Batch, lanes: Array) -> Array:
        bits: Array = batch.banks[register.bank][register.row, lanes]
        return bits.view(f"int{8 * bits.itemsize}") if signed else bits

    return value


def _thread(batch: Batch, lane: int) -> str:
    return str(by_axis(int(batch.thread[lane]), batch.launch.block))


def _summary(batch: Batch, lanes: Array, whole_blocks: bool) -> str:
    blocks = np.unique(lanes // WARP % batch.ctas)
    first = f"block {by_axis(int(batch.numbers[blocks[0]]), batch.launch.grid)}"
    who = first if whole_blocks else f"{len(np.unique(lanes))} threads of {first}"
    return f"{who} and {len(blocks) - 1} more blocks" if len(blocks) > 1 else who


def _groups(keys: dict[str, Array], count: int) -> list[tuple[Array, dict[str, int]]]:
    """Rows grouped by equal keys, in order of first occurrence."""
    if not keys:
        return [(np.arange(count), {})]
    table = np.stack(list(keys.values()), axis=1)
    kinds, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return [
        (np.flatnonzero(which.reshape(-1) == number), dict(zip(keys, map(int, kinds[number]), strict=True)))
        for number in np.argsort(first)
    ]
