"""A folder of npu kernels with their orchestration, and a golden file of its own, as one bench.

kernel_config.py of the folder may list its parts; sources are Python, or C++ (.cpp), which is compiled for the chip:

ORCHESTRATION = {"source": "orchestration/attention.py", "function_name": "orchestrate"}
KERNELS = [{"func_id": 0, "name": "qk", "source": "aic/qk.py", "core_type": "aic"}]    # rt.submit(aic=0, ...)
RUNTIME_CONFIG = {"block_dim": 24, "aicpu_thread_num": 4}

Without it the only file that defines `orchestrate` is the orchestration, and imports its kernels itself.
"""

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from kernbench.bench.discovery.modules import load_module
from kernbench.common.errors import BenchError, unknown

CONFIG, ORCHESTRATE, ENTRY = "kernel_config.py", "orchestrate", "kernel_entry"
CPP_ORCHESTRATE = "aicpu_orchestration_entry"
CORE_TYPES = ("aic", "aiv")
RUNTIME = "tensormap_and_ringbuffer"
_KERNEL_KEYS = ("func_id", "name", "source", "function_name", "core_type")
_ORCHESTRATION_KEYS = ("source", "function_name")
_RUNTIME_KEYS = ("runtime", "block_dim", "aicpu_thread_num", "orch_thread_num")
_CONFIG_NAMES = ("ORCHESTRATION", "KERNELS", "RUNTIME_CONFIG")
CPP = (".cpp", ".cc", ".cce")
SOURCES = "sources are Python functions over a core, or C++ files (.cpp) as the reference has them"


class CppSource:
    """A kernel (`core` is "aic" or "aiv") or an orchestration in C++, compiled once its chip is known."""

    def __init__(self, file: Path, core: str, name: str, symbol: str):
        self.file, self.core, self.symbol = file, core, symbol
        self.__name__ = name

    def __call__(self, *_: object) -> NoReturn:
        """Refuse: it has not been compiled."""
        raise BenchError(f"{self.file} was not compiled")

    def built(self, chip: str, names: Sequence[str] = ()) -> Callable[..., object]:
        """The callable for "a2a3" or "a5"; `names` are those of an orchestration's arguments."""
        # greenlet is needed to launch, not to look at a folder
        from kernbench.npu.cpp.compiler import build_kernel
        from kernbench.npu.cpp.kernel import CppKernel
        from kernbench.npu.cpp.orchestration import CppOrchestration

        library = build_kernel(self.file, self.core, chip)
        if self.core:
            return CppKernel(library, self.file, self.__name__, self.symbol)
        return CppOrchestration(library, self.file, self.symbol, names)


@dataclass(frozen=True)
class KernelFolder:
    """An orchestration, the kernels it submits by number, and the folder's settings of the chip."""

    path: Path
    orchestrate: Callable[..., object]
    kernels: Mapping[int, tuple[Callable[..., object], str]] = field(default_factory=dict)
    changes: Mapping[str, object] = field(default_factory=dict)

    def built(self, chip: str, names: Sequence[str] = ()) -> "KernelFolder":
        """The folder with its C++ sources compiled for a chip ("a2a3" or "a5") and inputs of these names."""
        orchestrate = self.orchestrate
        if isinstance(orchestrate, CppSource):
            orchestrate = orchestrate.built(chip, names)
        kernels = {n: (k.built(chip) if isinstance(k, CppSource) else k, core) for n, (k, core) in self.kernels.items()}
        return replace(self, orchestrate=orchestrate, kernels=kernels)

    def arguments(self, given: Mapping[str, object], case: Mapping[str, object]) -> dict[str, object]:
        """The arguments of the orchestration: inputs by name if it has all their names, else in order; missing ones
        come from the case. One in C++ takes the inputs in their order.
        """
        wanted = self._parameters()
        names = [p.name for p in wanted]
        if set(given) <= set(names):
            found = dict(given)
        elif len(given) > len(names):
            raise BenchError(f"{self._call()}: {len(given)} inputs ({', '.join(given)}) for {len(names)} parameters")
        else:
            found = dict(zip(names, given.values(), strict=False))
        found |= {name: case[name] for name in names if name not in found and name in case}
        missing = [p.name for p in wanted if p.name not in found and p.default is p.empty]
        if missing:
            raise BenchError(
                f"{self._call()}: nothing is given for {', '.join(missing)}; generate_inputs gives "
                f"{', '.join(given) or 'nothing'}, the case {', '.join(case) or 'nothing'}"
            )
        return found

    def input_names(self, given: Mapping[str, object]) -> dict[str, str]:
        """The input behind each parameter of the orchestration that has one."""
        names = [p.name for p in self._parameters()]
        return {name: name for name in given} if set(given) <= set(names) else dict(zip(names, given, strict=False))

    def _parameters(self) -> list[inspect.Parameter]:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return [p for p in inspect.signature(self.orchestrate).parameters.values() if p.kind in kinds][1:]

    def _call(self) -> str:
        names = ", ".join(p.name for p in self._parameters())
        return f"{self.orchestrate.__name__}(rt, {names}) of {self.path}"


def load_kernel_folder(path: Path) -> KernelFolder:
    """Read a folder of kernels; call it, and what it returns, inside `importable(path)`."""
    if not path.is_dir():
        raise BenchError(f"{path} is no folder: a folder of kernels is wanted, with its orchestration")
    if not (path / CONFIG).is_file():
        return KernelFolder(path, _function(_find_orchestration(path), ORCHESTRATE))
    config = load_module(path / CONFIG)
    strangers = [n for n in vars(config) if n.isupper() and not n.startswith("_") and n not in _CONFIG_NAMES]
    if strangers:
        raise BenchError(f"{path / CONFIG}: {unknown('name', strangers[0], _CONFIG_NAMES)}")
    table = _table(path, "ORCHESTRATION", getattr(config, "ORCHESTRATION", {}), _ORCHESTRATION_KEYS)
    file = _source(path, "ORCHESTRATION", table["source"]) if "source" in table else _find_orchestration(path)
    if file.suffix in CPP:
        symbol = str(table.get("function_name", CPP_ORCHESTRATE))
        orchestrate: Callable[..., object] = CppSource(file, "", symbol, symbol)
    else:
        orchestrate = _function(file, str(table.get("function_name", ORCHESTRATE)))
    return KernelFolder(path, orchestrate, _kernels(path, config), _changes(path, config))


def _find_orchestration(path: Path) -> Path:
    """The only file that defines `orchestrate`."""
    files = sorted(f for f in path.rglob("*.py") if f.name != CONFIG)
    found = [f for f in files if _defines(f, ORCHESTRATE)]
    if len(found) != 1:
        several = " and ".join(str(f.relative_to(path)) for f in found)
        seen = several or ", ".join(str(f.relative_to(path)) for f in files) or "no Python files"
        if not found and any(f.suffix in CPP for f in path.rglob("*")):
            raise BenchError(_undescribed(path))
        raise BenchError(
            f"{path}: {'several files define' if found else 'no file defines'} {ORCHESTRATE}(rt, ...) ({seen}); one "
            f"must, or {CONFIG} must name it: ORCHESTRATION = {{'source': ..., 'function_name': ...}}"
        )
    return found[0]


def _undescribed(path: Path) -> str:
    """Why a folder of C++ sources alone cannot be run."""
    return (
        f"{path} has C++ sources, and nothing says which is the orchestration and which number each kernel has: "
        f"{CONFIG} does, with ORCHESTRATION = {{'source': ...}} and KERNELS = [{{'func_id': 0, 'source': ..., "
        "'core_type': 'aiv'}], and the golden file's generate_inputs gives the arguments in order. A folder with a "
        "@scene_test class says all of it: kernbench npu test FOLDER"
    )


def _defines(file: Path, name: str) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise BenchError(f"{file} could not be read: {error}") from None
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def _table(path: Path, name: str, value: object, keys: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise BenchError(f"{path / CONFIG}: {name} = {value!r}: a dictionary with {', '.join(keys)} is wanted")
    for key in value:
        if key not in keys:
            raise BenchError(f"{path / CONFIG}: {name}: {unknown('key', key, keys)}")
    return dict(value)


def _source(path: Path, name: str, source: object) -> Path:
    file = path / str(source)
    if file.suffix != ".py" and file.suffix not in CPP:
        raise BenchError(f"{path / CONFIG}: {name}: source {str(source)!r}: {SOURCES}")
    if not file.is_file():
        raise BenchError(f"{path / CONFIG}: {name}: there is no file {file}")
    return file


def _function(file: Path, name: str) -> Callable[..., object]:
    module = load_module(file)
    function = getattr(module, name, None)
    if not callable(function):
        raise BenchError(f"{file} has no function {name}; it defines {', '.join(_own(module)) or 'none'}")
    found: Callable[..., object] = function
    return found


def _own(module: ModuleType) -> list[str]:
    """The public functions that a module defines itself."""
    functions = inspect.getmembers(module, inspect.isfunction)
    return [n for n, f in functions if f.__module__ == module.__name__ and not n.startswith("_")]


def _kernels(path: Path, config: ModuleType) -> dict[int, tuple[Callable[..., object], str]]:
    listed = getattr(config, "KERNELS", [])
    if not isinstance(listed, (list, tuple)):
        raise BenchError(f"{path / CONFIG}: KERNELS = {listed!r}: a list of dictionaries is wanted")
    found: dict[int, tuple[Callable[..., object], str]] = {}
    for index, value in enumerate(listed):
        entry = _table(path, f"KERNELS[{index}]", value, _KERNEL_KEYS)
        number, kernel, core = _kernel(path, f"KERNELS[{index}]", entry)
        if number in found:
            raise BenchError(f"{path / CONFIG}: KERNELS[{index}]: func_id {number} is taken twice")
        found[number] = (kernel, core)
    return found


def _kernel(path: Path, where: str, entry: dict[str, object]) -> tuple[int, Callable[..., object], str]:
    lacking = [key for key in ("func_id", "source", "core_type") if key not in entry]
    if lacking:
        raise BenchError(f"{path / CONFIG}: {where} lacks {', '.join(lacking)}")
    number, core = entry["func_id"], entry["core_type"]
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise BenchError(f"{path / CONFIG}: {where}: func_id {number!r}: a whole number from 0 on is wanted")
    if core not in CORE_TYPES:
        raise BenchError(f"{path / CONFIG}: {where}: {unknown('core_type', core, CORE_TYPES)}")
    file = _source(path, where, entry["source"])
    if file.suffix in CPP:
        symbol = str(entry.get("function_name", ENTRY))
        return number, CppSource(file, str(core), str(entry.get("name", file.stem)), symbol), str(core)
    module = load_module(file)
    named = [entry.get("function_name"), entry.get("name"), str(entry.get("name", "")).lower(), ENTRY]
    own = _own(module)
    name = next((n for n in named if n in own), own[0] if len(own) == 1 else None)
    if name is None or ("function_name" in entry and name != entry["function_name"]):
        raise BenchError(
            f"{path / CONFIG}: {where}: which function of {entry['source']} is the kernel? It defines "
            f"{', '.join(own) or 'none'}; say so with function_name"
        )
    return number, getattr(module, name), core


def _changes(path: Path, config: ModuleType) -> dict[str, int]:
    """Keys of the chip that the runtime's configuration changes."""
    table = _table(path, "RUNTIME_CONFIG", getattr(config, "RUNTIME_CONFIG", {}), _RUNTIME_KEYS)
    if table.get("runtime", RUNTIME) != RUNTIME:
        raise BenchError(f"{path / CONFIG}: RUNTIME_CONFIG: {unknown('runtime', table['runtime'], (RUNTIME,))}")
    if table.get("orch_thread_num", 1) != 1:
        raise BenchError(f"{path / CONFIG}: RUNTIME_CONFIG: orch_thread_num {table['orch_thread_num']!r}; there is one")
    changes = {}
    for key, least, name, extra in (
        ("block_dim", 1, "clusters.count", 0),
        ("aicpu_thread_num", 2, "tasks.schedulers", 1),
    ):
        number = table.get(key, least)
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise BenchError(
                f"{path / CONFIG}: RUNTIME_CONFIG: {key} {number!r}: a whole number from {least} on is wanted"
            )
        if key in table:
            changes[name] = number - extra
    return changes
