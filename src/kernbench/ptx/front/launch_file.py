"""Launch files: a small TOML file that describes a launch of a PTX kernel. What it omits is made at random.

kernel = "saxpy"                # may be left out if the module has one kernel
grid = [4]
block = [128]
cluster = [2]                   # blocks of a cluster, where the kernel does not say it itself
shared_bytes = 0

[args.x]                        # a parameter, by its name or its number
dtype = "f32"
shape = [512]
fill = "normal"                 # normal, uniform, range, zeros, ones, empty, or a number
expect = "x.npy"                # compared with the array after the launch

[args.n]
value = 512

[arrays.page0]                  # an array that is no parameter itself ...
file = "page0.npy"

[args.pages]
pointers = ["page0", "page0"]   # ... but is reached through one

[args.map]
tensor_map = { array = "x", dims = [64, 8], strides = [128], box = [64, 8], swizzle = "128B" }

[[checkpoint]]                  # with --first-wrong: what a kernel holds on its way
name = "scores"
line = 120                      # of the PTX, or "kernel.py:35" of the source: before the instruction there
registers = ["%f1:%f8"]         # of each thread; or shared = "buffer + 1024", global = "%rd5", with count = 64
at = ["ctaid.x * 16 + tid.x / 4", "i"]      # element i of these in the expected array
expect = "scores.npy"           # or numbers as they are: [0, 2, 4]
reduction = 128                 # terms that each is a sum of
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from kernbench import golden
from kernbench.bench.definition.bench import Expected
from kernbench.common.dtypes import DTYPES, Array
from kernbench.common.errors import BenchError, KernbenchError, unknown
from kernbench.ptx.launching.device_base import Device, DeviceArray
from kernbench.ptx.launching.element_types import MORE_TYPES
from kernbench.ptx.launching.tensor_map import MapOptions, TensorMap
from kernbench.ptx.names.demangling import choose, title
from kernbench.ptx.text.checkpoints import PtxCheckpoint, read_checkpoint
from kernbench.ptx.text.module import Kernel, Module, Parameter
from kernbench.result.comparison import Comparison
from kernbench.result.run import Run, Status

ELEMENTS = 65536
MOST_BYTES = 1 << 34
_NAMES = {np.dtype(kind.numpy): name for name, kind in DTYPES.items()}
_NAMES |= {kind: name for name, kind in MORE_TYPES.items()}
_TOP = ("kernel", "grid", "block", "cluster", "shared_bytes", "seed", "args", "arrays", "checkpoint")
_ARRAY = ("dtype", "shape", "fill", "file", "expect", "tolerance", "pointers")
_EXPECTED = ("expect", "reduction", "compute_dtype")
_ARGUMENT = (*_ARRAY, "value", "bytes", "tensor_map")
_TENSOR_MAP = ("array", "dims", "strides", "box", "swizzle", *MapOptions.__annotations__)
# bytes of a CUtensorMap
TENSOR_MAP_BYTES = 128


@dataclass(frozen=True)
class LaunchFile:
    """The content of a launch file; every field may be absent."""

    kernel: str = ""
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    # None: not given
    shared_bytes: int | None = None
    seed: int = 0
    args: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    arrays: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    folder: Path = Path()
    cluster: tuple[int, ...] = ()
    # parameter -> its name in the source, where known
    names: Mapping[str, str] = field(default_factory=dict)
    # arguments whose type is known from a compiler's metadata, but whose content is random
    made_up: frozenset[str] = frozenset()
    checkpoints: tuple[PtxCheckpoint, ...] = ()
    # checkpoint name -> expected values
    intermediates: Mapping[str, Expected] = field(default_factory=dict)


def read_launch_file(path: Path) -> LaunchFile:
    """Read and check a launch file."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BenchError(f"{path}: {error}") from None
    _known(path, "", document, _TOP)
    tables: dict[str, Any] = {}
    for name, allowed in (("args", _ARGUMENT), ("arrays", _ARRAY)):
        tables[name] = document.get(name, {})
        if not isinstance(tables[name], dict) or not all(isinstance(v, dict) for v in tables[name].values()):
            raise BenchError(f"{path}: [{name}.NAME] tables are wanted; got {name} = {tables[name]!r}")
        for key, table in tables[name].items():
            _known(path, f"{name}.{key}", table, allowed)
            _alone(path, f"{name}.{key}", table)
    numbers = {key: _numbers(path, key, document.get(key, [])) for key in ("grid", "block", "cluster")}
    shared = _number(path, "shared_bytes", document["shared_bytes"]) if "shared_bytes" in document else None
    seed = _number(path, "seed", document.get("seed", 0))
    kernel = document.get("kernel", "")
    if not isinstance(kernel, str):
        raise BenchError(f"{path}: kernel = {kernel!r}: a name is wanted")
    grid, block, cluster = numbers.values()
    points, wanted = _checkpoints(path, document.get("checkpoint", []))
    return LaunchFile(
        kernel,
        grid,
        block,
        shared,
        seed,
        tables["args"],
        tables["arrays"],
        path.parent,
        cluster,
        checkpoints=points,
        intermediates=wanted,
    )


def _checkpoints(path: Path, tables: object) -> tuple[tuple[PtxCheckpoint, ...], dict[str, Expected]]:
    """The checkpoints of a launch file, and the expected values by name."""
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BenchError(f"{path}: [[checkpoint]] tables are wanted; got checkpoint = {tables!r}")
    points, wanted = [], {}
    for number, table in enumerate(tables):
        where = f"{path}: [[checkpoint]] number {number + 1}"
        own = {key: value for key, value in table.items() if key not in _EXPECTED}
        name = str(own.get("name", ""))
        # with a name alone, the checkpoint is a label within the PTX
        if set(own) != {"name"}:
            points.append(_checkpoint(own, where))
        if "expect" in table:
            array = _expected(path, where, table["expect"])
            reduction = _number(path, "reduction", table.get("reduction", 1)) or 1
            wanted[name] = Expected(array, None, None, table.get("compute_dtype"), reduction=reduction)
    return tuple(points), wanted


def _expected(path: Path, where: str, expect: object) -> Array:
    """Expected values: the content of an .npy file, or the numbers given in the launch file."""
    if not isinstance(expect, list):
        return _load(path.parent / str(expect))
    try:
        return np.array(expect, np.float64)
    except (TypeError, ValueError):
        raise BenchError(f"{where}: expect = {expect!r}: an .npy file, or numbers in lists of equal lengths") from None


def _checkpoint(table: Mapping[str, object], where: str) -> PtxCheckpoint:
    try:
        point = read_checkpoint(table, where)
    except KernbenchError as error:
        raise BenchError(str(error)) from None
    if not point.line:
        raise BenchError(f"{where}: line = N says before which line of the PTX, or FILE:LINE of its source, it is")
    return point


def _known(path: Path, where: str, table: Mapping[str, object], allowed: Sequence[str]) -> None:
    for key in table:
        if key not in allowed:
            raise BenchError(f"{path}: {where and f'[{where}] '}{unknown('key', key, allowed)}")


def _alone(path: Path, where: str, table: Mapping[str, object]) -> None:
    """Refuse other keys beside value, bytes or tensor_map: those are no arrays."""
    for key in ("value", "bytes", "tensor_map"):
        rest = [other for other in table if other != key]
        if key in table and rest:
            remedy = "; an array of one number has fill = NUMBER" if key == "value" else ""
            raise BenchError(f"{path}: [{where}] {key} stands alone, without {', '.join(rest)}{remedy}")


def _numbers(path: Path, key: str, value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    if len(values) > 3 or any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in values):
        raise BenchError(f"{path}: {key} = {value!r}: one to three whole numbers from 1 on are wanted")
    return tuple(values)


def _number(path: Path, key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BenchError(f"{path}: {key} = {value!r}: a whole number from 0 on is wanted")
    return value


def choose_kernel(module: Module, name: str) -> Kernel:
    """The kernel called `name`, mangled or as in C++ (`softmax<float, 256>`, `softmax`), or the only one."""
    if name:
        return module.kernels[choose("kernel", module.kernels, name)]
    if len(module.kernels) != 1:
        names = ", ".join(map(title, module.kernels))
        raise BenchError(f"the module has {len(module.kernels)} kernels; choose one: {names}")
    return next(iter(module.kernels.values()))


class Arguments:
    """The arguments of one launch on `device`; `notes` list what was made up."""

    def __init__(
        self,
        device: Any,
        kernel: Kernel,
        described: LaunchFile,
        elements: int = ELEMENTS,
        taken_for: Mapping[str, np.dtype[np.generic]] | None = None,
    ):
        self._device = device
        self._described = described
        self._elements = elements
        self._random = np.random.default_rng(described.seed)
        self._made: dict[str, DeviceArray] = {}
        self._making: list[str] = []
        self.notes: list[str] = []
        # element types as inferred from the kernel's loads and stores; only the emulator knows them
        typed = getattr(device, "element_types", None)
        known: Mapping[str, np.dtype[np.generic]] = {} if typed is None else typed(kernel)
        self._taken_for = known if taken_for is None else taken_for
        self._tables = self._by_parameter(kernel)
        self.values = [self._argument(parameter) for parameter in kernel.params]

    def _by_parameter(self, kernel: Kernel) -> dict[str, Mapping[str, object]]:
        names = [p.name for p in kernel.params]
        tables: dict[str, Mapping[str, object]] = {}
        for key, table in self._described.args.items():
            name = names[int(key)] if key.isdecimal() and int(key) < len(names) else key
            if key in self._described.made_up:
                self._note(name, prod(_shape(name, table["shape"])), str(table["dtype"]))
            if name not in names:
                known = unknown(f"parameter of {title(kernel.name)}", key, names or ["none"])
                raise BenchError(f"{known} A number works as well: [args.0] is the first.")
            tables[name] = table
        return tables

    def _argument(self, parameter: Parameter) -> object:
        table = self._tables.get(parameter.name)
        if table is None:
            return self._guess(parameter)
        if "value" in table:
            return table["value"]
        if "bytes" in table:
            return self._bytes(parameter.name, table["bytes"])
        if "tensor_map" in table:
            return self._tensor_map(parameter.name, table["tensor_map"])
        return self._array(parameter.name, table)

    def _guess(self, parameter: Parameter) -> object:
        """A random array or a number, by the parameter's type."""
        name, kind = parameter.name, parameter.type
        if parameter.dims or parameter.size > 8:
            raise BenchError(_undescribed(name, parameter.size))
        if parameter.size == 8 and not kind.startswith("f"):
            dtype = self._taken_for.get(name, np.dtype(np.float32))
            if self._elements * dtype.itemsize > MOST_BYTES:
                raise BenchError(
                    f"--elements {self._elements}: array {name} would have more than {MOST_BYTES >> 30} GiB"
                )
            self._note(name, self._elements, _NAMES.get(dtype, dtype.name))
            values = _filled(name, "normal", (self._elements,), dtype, self._random)
            return self._keep(name, self._device.array(values, name=name))
        value = 1.0 if kind.startswith("f") else min(self._elements, (1 << (8 * parameter.size - 1)) - 1)
        self.notes.append(f"{self._called(name)}: {value}")
        return value

    def _note(self, name: str, count: int, dtype: str) -> None:
        self.notes.append(f"{self._called(name)}: {count:,} random {dtype}")

    def _called(self, name: str) -> str:
        """A parameter's name in the source, where known."""
        return self._described.names.get(name, name)

    def _bytes(self, name: str, text: object) -> bytes:
        with suppress(ValueError):
            if isinstance(text, str):
                return bytes.fromhex(text)
        raise BenchError(f"[args.{name}] bytes = {text!r}: hexadecimal digits are wanted")

    def _tensor_map(self, name: str, table: object) -> TensorMap:
        if not isinstance(table, dict) or not {"array", "dims", "strides", "box"} <= set(table):
            raise BenchError(f"[args.{name}] tensor_map needs array, dims, strides and box; got {table!r}")
        for key in table:
            if key not in _TENSOR_MAP:
                raise BenchError(f"[args.{name}] {unknown('key of a tensor map', key, _TENSOR_MAP)}")
        array = self._named(str(table["array"]))
        try:
            made: TensorMap = self._device.tensor_map(array, **{k: v for k, v in table.items() if k != "array"})
        except TypeError as error:
            raise BenchError(f"[args.{name}] tensor_map = {table!r}: {error}") from None
        return made

    def _named(self, name: str) -> DeviceArray:
        """A described array, by name; it is made when first needed."""
        if name in self._made:
            return self._made[name]
        table = self._described.arrays.get(name, self._tables.get(name))
        if table is None:
            raise BenchError(unknown("array", name, [*self._described.arrays, *self._tables] or ["none"]))
        return self._array(name, table)

    def _array(self, name: str, table: Mapping[str, object]) -> DeviceArray:
        if name in self._made:
            return self._made[name]
        if name in self._making:
            raise BenchError(f"array {name} points to itself: {' -> '.join([*self._making, name])}")
        self._making.append(name)
        array = self._make(self._called(name), table)
        self._making.pop()
        return self._keep(name, array)

    def _keep(self, name: str, array: DeviceArray) -> DeviceArray:
        self._made[name] = array
        return array

    def _make(self, name: str, table: Mapping[str, object]) -> DeviceArray:
        on: Device = self._device
        if "pointers" in table:
            if not isinstance(table["pointers"], list):
                raise BenchError(f"[{name}] pointers = {table['pointers']!r}: a list of arrays' names is wanted")
            addresses = [self._named(str(each)).address for each in table["pointers"]]
            return on.array(np.array(addresses, np.uint64), name=name)
        if "file" in table:
            return on.array(_load(self._described.folder / str(table["file"])), name=name)
        dtype, shape = _dtype(name, table.get("dtype", "f32")), _shape(name, table.get("shape"))
        if int(np.prod(shape, dtype=object)) * dtype.itemsize > MOST_BYTES:
            raise BenchError(f"[{name}] shape = {list(shape)}: more than {MOST_BYTES >> 30} GiB")
        if table.get("fill") == "empty":
            return on.empty(shape, dtype, name=name)
        return on.array(_filled(name, table.get("fill", "normal"), shape, dtype, self._random), name=name)

    @property
    def arrays(self) -> dict[str, DeviceArray]:
        """All arrays by name, except those that hold addresses of others."""
        tables = {**self._described.arrays, **self._tables}
        return {
            self._called(name): array for name, array in self._made.items() if "pointers" not in tables.get(name, {})
        }

    @property
    def has_pointers(self) -> bool:
        """Whether there are arrays that hold addresses of others."""
        return len(self.arrays) < len(self._made)

    def compare(self, run: Run) -> list[Comparison]:
        """Compare the arrays that have an expected value; nothing if the run did not finish."""
        tables = {**self._described.arrays, **self._tables}
        wanted = {name: table for name, table in tables.items() if "expect" in table}
        return [self._compare(name, table) for name, table in wanted.items()] if run.status is Status.FINISHED else []

    def _compare(self, name: str, table: Mapping[str, object]) -> Comparison:
        expected = _load(self._described.folder / str(table["expect"]))
        found = self._named(name).numpy()
        if expected.size != found.size:
            raise BenchError(f"[{name}] expect has shape {list(expected.shape)}; the array {list(found.shape)}")
        return golden.compare(found.reshape(expected.shape), expected.astype(np.float64), name=name)


def _load(path: Path) -> Array:
    try:
        loaded: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BenchError(f"{path}: no NumPy array (.npy): {error}") from None
    if not isinstance(loaded, np.ndarray):
        raise BenchError(f"{path} holds several arrays: save one with numpy.save")
    return loaded


def _dtype(name: str, dtype: object) -> np.dtype[np.generic]:
    kind = str(dtype)
    if kind in DTYPES:
        return np.dtype(DTYPES[kind].numpy)
    if kind in MORE_TYPES:
        return MORE_TYPES[kind]
    raise BenchError(f"[{name}] {unknown('dtype', kind, [*DTYPES, *MORE_TYPES])}")


def _shape(name: str, shape: object) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, list) else [shape]
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in sizes):
        raise BenchError(f"[{name}] shape = {shape!r}: whole numbers are wanted, such as [16, 128]")
    return tuple(sizes)


def _filled(
    name: str, fill: object, shape: tuple[int, ...], dtype: np.dtype[np.generic], random: np.random.Generator
) -> Array:
    whole = np.issubdtype(dtype, np.integer)
    fills: dict[str, Callable[[], Array]] = {
        "normal": lambda: random.integers(0, 100, shape) if whole else random.standard_normal(shape),
        "uniform": lambda: random.integers(0, 100, shape) if whole else random.random(shape),
        "range": lambda: np.arange(int(np.prod(shape))).reshape(shape),
        "zeros": lambda: np.zeros(shape),
        "ones": lambda: np.ones(shape),
    }
    if isinstance(fill, (int, float)) and not isinstance(fill, bool):
        return _constant(name, fill, shape, dtype)
    make = fills.get(str(fill))
    if make is None:
        raise BenchError(f"[{name}] {unknown('fill', str(fill), [*fills, 'empty', 'a number'])}")
    return make().astype(dtype)


def _constant(name: str, fill: int | float, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """An array of one number; raises an error if the element type cannot hold it."""
    if not np.issubdtype(dtype, np.integer):
        largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
        if np.isfinite(fill) and abs(fill) > largest:
            raise BenchError(f"[{name}] fill = {fill}: {dtype.name} holds numbers up to {largest:g}")
        return np.full(shape, fill).astype(dtype)
    bounds = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    if not (np.isfinite(fill) and fill == int(fill) and bounds.min <= fill <= bounds.max):
        raise BenchError(f"[{name}] fill = {fill}: {dtype.name} holds whole numbers from {bounds.min} to {bounds.max}")
    return np.full(shape, int(fill), dtype)


def _undescribed(name: str, size: int) -> str:
    """The error message for a parameter that is too large to guess."""
    message = f"parameter {name} has {size} bytes: describe it in the launch file (--launch), under [args.{name}]: "
    if size == TENSOR_MAP_BYTES:
        message += 'a tensor map is tensor_map = { array = "x", dims = [64, 8], strides = [128], box = [64, 8] }; '
    message += "anything else is bytes = hexadecimal digits; "
    return message + "`kernbench ptx launch FILE.ptx --write-launch FILE.toml` writes a launch file to fill in"
