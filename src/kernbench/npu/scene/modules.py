"""Reads a file with test classes while substitutes for the modules it imports are installed under their names.

What describes a test is provided (`offered.py`). The interfaces of the reference's own runtime can be imported, and
fail on use: in a file with one such test and ten others the ten can run.
"""

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from kernbench.npu.scene import host_program
from kernbench.npu.scene import offered as names

__kernbench_internal__ = True
# modules of the reference; `tests` and `examples` are folders of its repository, whose files import each other
_OFFERED = ("simpler", "simpler_setup", "_task_interface")
_FOLDERS = ("tests", "examples")
# the package that files of a test are modules of
_PARENT = "kernbench_scene_"


_GOLDENS = "simpler_setup.goldens"
_OF_RUNTIME = "speaks to the reference's own runtime, which there is none of here"
_OF_CHECKOUT = (
    "is a function of the reference's repository, and no folder above the test has its simpler_setup/goldens with it: "
    "run the test in its checkout, or copy simpler_setup/goldens beside it"
)


class Absent:
    """A name of the reference's: it can be imported, passed on and asked for attributes, but not called."""

    def __init__(self, name: str, why: str = _OF_RUNTIME):
        self._name, self._why = name, why

    def __getattr__(self, part: str) -> "Absent":
        if part.startswith("__"):
            raise AttributeError(part)
        return Absent(f"{self._name}.{part}", self._why)

    def _part(self, *_: object) -> "Absent":
        """Sizes of the runtime's own memory are computed from each other, and not used here."""
        return Absent(f"a number made of {self._name}")

    __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = _part

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Refuse."""
        raise NotImplementedError(f"{self._name} {self._why}")


class _AbsentModule(ModuleType):
    """A module of which no names, or not all names, are provided."""

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        is_golden = f"{self.__name__}.".startswith(f"{_GOLDENS}.")
        return Absent(f"{self.__name__}.{name}", _OF_CHECKOUT if is_golden else _OF_RUNTIME)


class _Finder(MetaPathFinder, Loader):
    """Finds every module of the reference that no other finder has found."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in _OFFERED:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """The module is empty."""


def _module(name: str, path: list[str], **content: object) -> ModuleType:
    made = _AbsentModule(name)
    made.__path__ = path
    made.__dict__.update(content)
    return made


def _modules(root: Path | None) -> dict[str, ModuleType]:
    """The modules by name; `root` is the folder with the golden functions."""
    described = (
        "ArgDirection", "TensorArg", "Scalar", "TaskArgsBuilder", "SceneTestCase", "scene_test", "scene_level",
        "SceneTestLevel",
    )  # fmt: skip
    offered_names = {name: getattr(names, name) for name in described}
    folder = [] if root is None else [str(root / "simpler_setup")]
    setup = _module("simpler_setup", folder, **offered_names)
    scene = _module(
        "simpler_setup.scene_test",
        [],
        **offered_names,
        _compare_outputs=names.compare_outputs,
        _build_l3_task_args=host_program.task_args,
        _rehosted_ref=host_program.named_tensor,
    )
    of_programs = ("TaskArgs", "TensorArgType", "DataType", "CallConfig", "scalar_to_uint64")
    offered_to_programs = {name: getattr(host_program, name) for name in of_programs}
    interface = _module("simpler.task_interface", [], ArgDirection=names.ArgDirection, **offered_to_programs)
    made = (setup, scene, _module("simpler", []), interface)
    return {module.__name__: module for module in made}


def _root(file: Path) -> Path | None:
    """The closest parent folder of a file with golden functions in it."""
    return next((p for p in file.parents if (p / "simpler_setup" / "goldens").is_dir()), None)


@contextmanager
def offered(file: Path) -> Iterator[None]:
    """Inside this context the modules that `file` imports are installed."""
    root = _root(file)
    own = (*_OFFERED, *(_FOLDERS if root is not None else ()))

    def ours() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] in own]

    kept = {name: sys.modules.pop(name) for name in ours()}
    sys.modules.update(_modules(root))
    finder, path = _Finder(), [] if root is None else [str(root)]
    sys.meta_path.append(finder)
    sys.path[:0] = path
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for one in path:
            sys.path.remove(one)
        for name in ours():
            del sys.modules[name]
        sys.modules.update(kept)


def load(file: Path) -> ModuleType:
    """The module of a file; call it inside `offered(file)`. Files beside it, or beside a parent folder in the
    same checkout, can be imported relatively.
    """
    top = _root(file) or file.parent
    parent = f"{_PARENT}{abs(hash(top))}"
    _package(parent, top)
    for part in file.parent.relative_to(top).parts:
        top = top / part
        parent = f"{parent}.{part}"
        _package(parent, top)
    spec = importlib.util.spec_from_file_location(f"{parent}.{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def why_not(error: ImportError) -> str:
    """What a file lacks that could not be loaded, and the remedy."""
    lacks = re.sub(rf"{_PARENT}\d+\.", "", str(error))
    if error.name == "torch":
        return f"{lacks}; such tests make their inputs with torch: pip install torch"
    of_files = (error.name or "").partition(".")[0] in _FOLDERS or (error.name or "").startswith(_PARENT)
    if of_files or "relative import" in lacks:
        return (
            f"{lacks}: it imports files of its repository; run it in its checkout, which is known by its folder "
            "simpler_setup/goldens"
        )
    return lacks


def _package(name: str, folder: Path) -> None:
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
