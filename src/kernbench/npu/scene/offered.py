"""The names that a file with test classes imports to describe its tests: arguments, cases and expected results.

Running the tests is done elsewhere; `modules.py` installs these names in modules.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from kernbench.common.dtypes import Array, as_array
from kernbench.npu.cpp.memory import STORED

# types of torch that are passed as bytes: scales, and pairs of 4-bit numbers
_BITS = ("float8_e8m0fnu", "float4_e2m1fn_x2")
C = TypeVar("C", bound="type[SceneTestCase]")
T = TypeVar("T")


class ArgDirection(IntEnum):
    """The direction of a tensor."""

    SCALAR = 0
    IN = 1
    OUT = 2
    INOUT = 3


class SceneTestLevel(IntEnum):
    """The hardware of a test: one chip, a host with several, several hosts."""

    L2 = 2
    L3 = 3
    L4 = 4


class TensorArg(NamedTuple):
    """A tensor by name."""

    name: str
    value: object


class Scalar(NamedTuple):
    """A number by name: one of ctypes, or of Python."""

    name: str
    value: object


class TaskArgsBuilder:
    """Arguments in the order in which an orchestration takes them, tensors first; each is an attribute by its name."""

    def __init__(self, *specs: TensorArg | Scalar):
        self._specs: list[TensorArg | Scalar] = []
        for spec in specs:
            self._add(spec)

    def add_tensor(self, name: str, value: object) -> None:
        """Add a tensor."""
        self._add(TensorArg(name, value))

    def add_scalar(self, name: str, value: object) -> None:
        """Add a number, after all tensors."""
        self._add(Scalar(name, value))

    def _add(self, spec: TensorArg | Scalar) -> None:
        if any(spec.name == other.name for other in self._specs):
            raise ValueError(f"two arguments are called {spec.name!r}")
        if isinstance(spec, TensorArg) and any(isinstance(other, Scalar) for other in self._specs):
            raise ValueError(f"tensor {spec.name!r} follows a scalar: tensors come first")
        self._specs.append(spec)

    def __getattr__(self, name: str) -> object:
        for spec in self.__dict__.get("_specs", ()):
            if spec.name == name:
                return spec.value
        raise AttributeError(f"there is no argument {name!r}")

    def clone(self) -> "TaskArgsBuilder":
        """The same arguments with copies of their values."""
        return TaskArgsBuilder(*(type(spec)(spec.name, _copied(spec.value)) for spec in self._specs))

    @property
    def specs(self) -> list[TensorArg | Scalar]:
        """All arguments in order."""
        return self._specs

    def tensor_names(self) -> list[str]:
        """Names of the tensors."""
        return [spec.name for spec in self._specs if isinstance(spec, TensorArg)]


def _copied(value: object) -> object:
    clone: Callable[[], object] | None = getattr(value, "clone", None)
    return copy.copy(value) if clone is None else clone()


def array_of(value: object) -> Array:
    """A tensor of a test as an array, integers of any width included."""
    kind = str(getattr(value, "dtype", "")).removeprefix("torch.")
    if kind in _BITS:
        import torch

        assert isinstance(value, torch.Tensor)
        value, kind = value.contiguous().view(torch.uint8), "uint8"
    numpy: Callable[[], Array] | None = getattr(value, "numpy", None)
    if numpy is not None and kind in STORED:
        return np.ascontiguousarray(numpy())
    return as_array(value)


def compare_outputs(
    given: TaskArgsBuilder, golden: TaskArgsBuilder, names: list[str], rtol: float, atol: float
) -> None:
    """Raise an AssertionError if an output differs from the expected one."""
    for name in names:
        actual, expected = (array_of(getattr(side, name)).astype(np.float64) for side in (given, golden))
        if not np.allclose(actual, expected, rtol=rtol, atol=atol):
            difference = np.abs(actual - expected)
            worst = "NaN" if np.isnan(difference).any() else f"{difference.max():.3g}"
            raise AssertionError(f"{name} is wrong: off by up to {worst}, rtol {rtol}, atol {atol}")


class SceneTestCase:
    """The base of test classes."""

    # level and runtime, set by `scene_test`
    SCENE: ClassVar[tuple[int, str] | None] = None
    CALLABLE: ClassVar[dict[str, object]] = {}
    CASES: ClassVar[list[dict[str, object]]] = []
    RTOL: float = 1e-5
    ATOL: float = 1e-5
    SKIP_GOLDEN: bool = False
    RUNTIME_ENV: ClassVar[dict[str, object]] = {}

    def generate_args(self, params: dict[str, object]) -> TaskArgsBuilder:
        """The arguments of a case."""
        raise NotImplementedError

    def compute_golden(self, args: TaskArgsBuilder, params: dict[str, object]) -> None:
        """Write the expected values into the outputs."""
        raise NotImplementedError

    def compare_outputs(
        self,
        test_args: TaskArgsBuilder,
        golden_args: TaskArgsBuilder,
        output_names: list[str],
        params: dict[str, object],
    ) -> None:
        """Raise an AssertionError if an output differs from the expected one."""
        compare_outputs(test_args, golden_args, output_names, self.RTOL, self.ATOL)

    @staticmethod
    def run_module(name: str) -> None:
        """Does nothing: the reader of the file runs its cases."""


def scene_test(level: int = 2, runtime: str = "tensormap_and_ringbuffer") -> Callable[[C], C]:
    """Mark a test class with its level (2: one chip) and the runtime it is written for."""

    def mark(cls: C) -> C:
        cls.SCENE = (int(level), runtime)
        cls.CALLABLE = _located(cls.CALLABLE, Path(inspect.getfile(cls)).parent)
        return cls

    return mark


def _located(table: Mapping[str, object], folder: Path) -> dict[str, object]:
    """A description of sources with paths resolved relative to the file of the class."""
    found = dict(table)
    if "source" in found:
        found["source"] = str(folder / str(found["source"]))
    if isinstance(extra := found.get("extra_include_dirs"), (list, tuple)):
        found["extra_include_dirs"] = [str(folder / str(one)) for one in extra]
    for key, value in found.items():
        if key == "orchestration" and isinstance(value, Mapping):
            found[key] = _located(value, folder)
        elif key in ("incores", "callables") and isinstance(value, (list, tuple)):
            found[key] = [_located(one, folder) if isinstance(one, Mapping) else one for one in value]
    return found


def scene_level(level: int) -> Callable[[T], T]:
    """Mark a class or a function with its level, which is not used here."""

    def mark(thing: T) -> T:
        return thing

    return mark
