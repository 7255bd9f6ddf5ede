"""A golden file: cases, inputs, reference and tolerance of an operation, independent of any kernel.

ALL_CASES = {"short": {"context": 33}, "long": {"context": 128}}     # or PARAMS_LIST, or neither: one case
DEFAULT_CASE = "short"                                               # what runs unless asked; without it all do
RTOL, ATOL = 1e-2, 1e-2
__outputs__ = ["out"]                                                # without it those whose names begin with out

def generate_inputs(case): ...        # name -> array or number (or pairs of them), outputs included, in order
def compute_golden(tensors, case): ...  # fills the outputs in place, or returns name -> array
"""

import copy
import ctypes
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np

from kernbench.bench.discovery.modules import error_text, load_module
from kernbench.common.dtypes import as_array, dtype_name
from kernbench.common.errors import BenchError, MisuseError, unknown
from kernbench.result.reading import Data

FUNCTIONS = ("generate_inputs", "compute_golden")
TOLERANCE = 1e-5
OUTPUT = "out"


@dataclass(frozen=True)
class GoldenFile:
    """The contents of a golden file; `default` are the cases that run by default."""

    path: Path
    generate: Callable[..., object]
    compute: Callable[..., object]
    cases: Mapping[str, Mapping[str, object]]
    default: tuple[str, ...]
    allowed: tuple[float, float]
    order: tuple[str, ...] = ()
    named_outputs: tuple[str, ...] = field(default=())

    def inputs(self, case: str, seed: int) -> dict[str, object]:
        """All arguments of one case, checked; equal for equal seeds."""
        with _seeded(seed):
            made = self._call(self.generate, dict(self.cases[case]))
        pairs = list(made.items()) if isinstance(made, Mapping) else made
        if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
            raise BenchError(f"{self.path}: generate_inputs gives names with arrays or numbers; got {made!r:.200}")
        found = {str(name): self._value(str(name), value) for name, value in pairs}
        missing = [name for name in self.order if name not in found]
        if missing or len(found) < len(pairs):
            raise BenchError(f"{self.path}: generate_inputs gives {', '.join(found)}; wanted once: {missing or pairs}")
        return {name: found[name] for name in dict.fromkeys((*self.order, *found))}

    def _value(self, name: str, value: object) -> object:
        if isinstance(value, ctypes._SimpleCData):
            held: object = value.value
            return held
        if isinstance(value, (int, float, bool)) or np.isscalar(value):
            return value
        try:
            array = as_array(value)
            dtype_name(array.dtype)
        except (MisuseError, ValueError, TypeError) as error:
            raise BenchError(f"{self.path}: generate_inputs: {name}: {error}") from None
        return value

    def outputs(self, inputs: Mapping[str, object]) -> list[str]:
        """The inputs that are outputs."""
        names = self.named_outputs or tuple(n for n in inputs if n.startswith(OUTPUT))
        for name in names:
            if name not in inputs:
                raise BenchError(f"{self.path}: __outputs__: {unknown('input', name, inputs)}")
        if not names:
            raise BenchError(
                f"{self.path}: which of {', '.join(inputs)} are outputs? Name them: __outputs__ = [...], or {OUTPUT}..."
            )
        return list(names)

    def expected(self, case: str, inputs: Mapping[str, object]) -> Data:
        """The expected value of each output."""
        tensors = copy.deepcopy(dict(inputs))
        given = self._call(self.compute, tensors, dict(self.cases[case]))
        if given is not None and not isinstance(given, Mapping):
            raise BenchError(
                f"{self.path}: compute_golden fills tensors in place or returns a dictionary; got {given!r:.200}"
            )
        found = {}
        for name in self.outputs(inputs):
            value = as_array((given or tensors).get(name, tensors[name]))
            shape = as_array(inputs[name]).shape
            if value.shape != shape:
                raise BenchError(f"{self.path}: compute_golden: {name} has shape {value.shape}, the input {shape}")
            found[name] = value
        return found

    def _call(self, function: Callable[..., object], *arguments: object) -> object:
        try:
            return function(*arguments)
        except Exception as error:
            raise BenchError(f"{self.path}: {function.__name__} failed: {error_text(error, self.path)}") from error


def load_golden_file(path: Path) -> GoldenFile:
    """Read and check a golden file; call it inside `importable` of its folder."""
    if not path.is_file():
        raise BenchError(f"no golden file {path}: it has generate_inputs(case) and compute_golden(tensors, case)")
    module = load_module(path)
    lacking = [name for name in FUNCTIONS if not callable(getattr(module, name, None))]
    if lacking:
        raise BenchError(f"{path} lacks {' and '.join(lacking)}: a golden file has both {' and '.join(FUNCTIONS)}")
    cases = _cases(path, module)
    default = getattr(module, "DEFAULT_CASE", None)
    if default is not None and default not in cases:
        raise BenchError(f"{path}: DEFAULT_CASE: {unknown('case', default, cases)}")
    allowed = (_number(path, module, "RTOL"), _number(path, module, "ATOL"))
    names = (_names(path, module, "TENSOR_ORDER"), _names(path, module, "__outputs__"))
    chosen = tuple(cases) if default is None else (default,)
    return GoldenFile(path, module.generate_inputs, module.compute_golden, cases, chosen, allowed, *names)


def _cases(path: Path, module: ModuleType) -> dict[str, Mapping[str, object]]:
    listed = getattr(module, "ALL_CASES", None)
    if listed is None:
        plain = getattr(module, "PARAMS_LIST", [{}])
        entries = plain if isinstance(plain, (list, tuple)) else [None]
        listed = {str(c.get("name", f"case_{i}")) if isinstance(c, Mapping) else i: c for i, c in enumerate(entries)}
    if not isinstance(listed, Mapping) or not listed or not all(isinstance(c, Mapping) for c in listed.values()):
        raise BenchError(
            f"{path}: ALL_CASES is a dictionary of cases, each a dictionary of its parameters; got {listed!r}"
        )
    return {str(name): case for name, case in listed.items()}


def _number(path: Path, module: ModuleType, name: str) -> float:
    value = getattr(module, name, TOLERANCE)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise BenchError(f"{path}: {name} = {value!r}: a number from 0 on is wanted")
    return float(value)


def _names(path: Path, module: ModuleType, name: str) -> tuple[str, ...]:
    value = getattr(module, name, ())
    if isinstance(value, str) or not all(isinstance(n, str) for n in value):
        raise BenchError(f"{path}: {name} = {value!r}: a list of names is wanted")
    return tuple(value)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the usual global generators; they are restored afterwards."""
    states = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        with _seeded_torch(seed):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


@contextmanager
def _seeded_torch(seed: int) -> Iterator[None]:
    import sys

    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
