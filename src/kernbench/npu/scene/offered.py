"""The modules that a file with test classes imports, by their own names, for as long as it is read and run.

They describe a test: its arguments, its cases, what it expects. What runs it is not in them.
"""

import copy
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import ClassVar, NamedTuple, NoReturn, TypeVar

import numpy as np

from kernbench.common.dtypes import as_array

C = TypeVar("C", bound="type[SceneTestCase]")
T = TypeVar("T")


class ArgDirection(IntEnum):
    """What a task does with a tensor."""

    SCALAR = 0
    IN = 1
    OUT = 2
    INOUT = 3


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
        """One more tensor."""
        self._add(TensorArg(name, value))

    def add_scalar(self, name: str, value: object) -> None:
        """One more number; tensors come before."""
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


def compare_outputs(
    given: TaskArgsBuilder, golden: TaskArgsBuilder, names: list[str], rtol: float, atol: float
) -> None:
    """Raise where an output is not what was expected."""
    for name in names:
        actual, expected = (as_array(getattr(side, name)).astype(np.float64) for side in (given, golden))
        if not np.allclose(actual, expected, rtol=rtol, atol=atol):
            difference = np.abs(actual - expected)
            worst = "NaN" if np.isnan(difference).any() else f"{difference.max():.3g}"
            raise AssertionError(f"{name} is wrong: off by up to {worst}, rtol {rtol}, atol {atol}")


class SceneTestCase:
    """The base of test classes."""

    # level and runtime, once it is marked as a test
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
        """Put what is expected into the outputs."""
        raise NotImplementedError

    def compare_outputs(
        self,
        test_args: TaskArgsBuilder,
        golden_args: TaskArgsBuilder,
        output_names: list[str],
        params: dict[str, object],
    ) -> None:
        """Raise where an output is not what was expected."""
        compare_outputs(test_args, golden_args, output_names, self.RTOL, self.ATOL)

    @staticmethod
    def run_module(name: str) -> None:
        """Nothing: who reads the file runs its cases."""


def scene_test(level: int = 2, runtime: str = "tensormap_and_ringbuffer") -> Callable[[C], C]:
    """Mark a test class with its level (2: one chip) and the runtime it is written for."""

    def mark(cls: C) -> C:
        cls.SCENE = (int(level), runtime)
        return cls

    return mark


def scene_level(level: int) -> Callable[[T], T]:
    """Mark a class or a function with its level; nothing more is made of it."""

    def mark(thing: T) -> T:
        return thing

    return mark


def _refused(*_: object, **__: object) -> NoReturn:
    raise NotImplementedError("it speaks to the runtime itself, which there is none of here")


def _modules(root: Path | None) -> dict[str, ModuleType]:
    """The modules by name; `root` is the folder that has the golden functions."""
    setup, level = ModuleType("simpler_setup"), IntEnum("SceneTestLevel", {"L2": 2, "L3": 3, "L4": 4})
    setup.__dict__.update(
        ArgDirection=ArgDirection, TensorArg=TensorArg, Scalar=Scalar, TaskArgsBuilder=TaskArgsBuilder,
        SceneTestCase=SceneTestCase, scene_test=scene_test, scene_level=scene_level, SceneTestLevel=level,
    )  # fmt: skip
    setup.__path__ = [] if root is None else [str(root / "simpler_setup")]
    scene = ModuleType("simpler_setup.scene_test")
    scene.__dict__.update(setup.__dict__, _compare_outputs=compare_outputs, _outputs_dir=_refused)
    for name in ("_sanitize_for_filename", "_build_chip_task_args", "_build_l2_ref_args"):
        setattr(scene, name, _refused)
    simpler, interface = ModuleType("simpler"), ModuleType("simpler.task_interface")
    simpler.__path__ = []
    interface.__dict__.update(ArgDirection=ArgDirection)
    return {
        "simpler_setup": setup,
        "simpler_setup.scene_test": scene,
        "simpler": simpler,
        "simpler.task_interface": interface,
    }


def _root(file: Path) -> Path | None:
    """The folder above a file that has golden functions beside it."""
    return next((p for p in file.parents if (p / "simpler_setup" / "goldens").is_dir()), None)


@contextmanager
def offered(file: Path) -> Iterator[None]:
    """While it lasts, the modules that `file` imports are there by their names."""
    names = ("simpler", "simpler_setup")
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in names}
    for name in kept:
        del sys.modules[name]
    sys.modules.update(_modules(_root(file)))
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in names]:
            del sys.modules[name]
        sys.modules.update(kept)


def load(file: Path) -> ModuleType:
    """The module of a file; call it inside `offered(file)`. What lies beside it can be imported by a dot."""
    parent = f"kernbench_scene_{abs(hash(file.parent))}"
    package = ModuleType(parent)
    package.__path__ = [str(file.parent)]
    sys.modules[parent] = package
    name = f"{parent}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
