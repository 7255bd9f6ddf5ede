"""Runs a case of a test class: compiles its sources, launches its orchestration, and asks the test whether it is
right."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.npu.chip import Chip
from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.kernel import CppKernel
from kernbench.npu.cpp.memory import stored
from kernbench.npu.cpp.orchestration import CppOrchestration
from kernbench.npu.scene.cases import Case
from kernbench.npu.scene.modules import offered
from kernbench.npu.scene.offered import ArgDirection, Scalar, TaskArgsBuilder, TensorArg, array_of
from kernbench.result.run import Run
from kernbench.safety.budget import Budget

R = TypeVar("R")
_RINGS = {"ring_task_window": "tasks.window", "ring_heap": "tasks.heap", "ring_dep_pool": "tasks.dependences"}


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `wrong` says what is wrong about the result, `refusal` why it did not run."""

    case: Case
    run: Run | None = None
    wrong: str = ""
    refusal: str = ""

    @property
    def is_good(self) -> bool:
        """Right and safe."""
        return self.run is not None and bool(self.run.safe) and not self.wrong

    @property
    def time_ps(self) -> int | None:
        """Predicted time, where it has one."""
        time = None if self.run is None else self.run.metrics.get("time_ps")
        return time if isinstance(time, int) else None


def run_case(case: Case, budget: Budget | None = None) -> Outcome:
    """Run a case; what cannot be run is refused with its reason."""
    if case.refusal:
        return Outcome(case, refusal=case.refusal)
    with offered(case.file):
        try:
            return _run(case, budget)
        except KernbenchError as error:
            return Outcome(case, refusal=str(error))


def _own(case: Case, what: str, function: Callable[..., R], *given: object) -> R:
    """Call a function of the test; what it raises is the test's."""
    try:
        return function(*given)
    except Exception as error:
        message = f"{case.title}: {what} of the test raises {type(error).__name__}: {error}"
        raise BenchError(message) from None


def _run(case: Case, budget: Budget | None) -> Outcome:
    test = case.test()
    given = _own(case, "generate_args", test.generate_args, case.params)
    golden = None
    if not case.skips_golden:
        golden = given.clone()
        _own(case, "compute_golden", test.compute_golden, golden, case.params)
    chip = Chip(case.chip, changes_of(case), kernels=kernels_of(case), budget=budget)
    orchestrate = orchestration_of(case, given)
    run = chip.launch(orchestrate, *(value_of(spec) for spec in given.specs))
    if run.safe:
        run = chip.retime(run)
    _put_back(given, run)
    wrong = ""
    if golden is not None and run.outputs:
        try:
            test.compare_outputs(given, golden, _outputs(case, given), case.params)
        except Exception as error:
            wrong = str(error) or f"the test's own comparison raises {type(error).__name__}"
    return Outcome(case, run, wrong)


def changes_of(case: Case) -> dict[str, float | str]:
    """Keys of the chip that the configuration of the case changes."""
    changes: dict[str, float | str] = {}
    threads = case.config.get("aicpu_thread_num")
    if isinstance(threads, int) and threads > 1:
        changes["tasks.schedulers"] = threads - 1
    rings = case.config.get("runtime_env")
    for key, name in _RINGS.items():
        size = rings.get(key) if isinstance(rings, Mapping) else None
        # sizes of single rings: the smallest holds for all
        size = min(size) if isinstance(size, (list, tuple)) and size else size
        if isinstance(size, int) and size > 0:
            changes[name] = size
    return changes


def _table(case: Case, key: str) -> Mapping[str, object]:
    table = case.test.CALLABLE.get(key)
    if not isinstance(table, Mapping):
        raise BenchError(f"{case.title}: CALLABLE has no {key!r}")
    return cast("Mapping[str, object]", table)


def _source(case: Case, table: Mapping[str, object]) -> Path:
    file = case.file.parent / str(table.get("source", ""))
    if not file.is_file():
        raise BenchError(f"{case.title}: there is no source {file}")
    return file.resolve()


def orchestration_of(case: Case, given: TaskArgsBuilder) -> CppOrchestration:
    """The compiled orchestration for these arguments."""
    names = [spec.name for spec in given.specs]
    elements = [stored(array_of(spec.value))[1] if isinstance(spec, TensorArg) else 0 for spec in given.specs]
    table = _table(case, "orchestration")
    source = _source(case, table)
    symbol = str(table.get("function_name", "aicpu_orchestration_entry"))
    return CppOrchestration(build_kernel(source, "", case.chip), source, symbol, names, elements)


def kernels_of(case: Case) -> dict[int, tuple[CppKernel, str]]:
    """The compiled kernels by number, each with the kind of core it is for."""
    listed = case.test.CALLABLE.get("incores", [])
    found = {}
    for table in listed if isinstance(listed, (list, tuple)) else []:
        source, core = _source(case, table), str(table.get("core_type"))
        if core not in ("aic", "aiv"):
            raise BenchError(f"{case.title}: core_type {core!r} of {source}: it is 'aic' or 'aiv'")
        more = [case.file.parent / str(folder) for folder in table.get("extra_include_dirs") or []]
        library = build_kernel(source, core, case.chip, more)
        found[int(table["func_id"])] = (CppKernel(library, source, str(table.get("name") or source.stem)), core)
    return found


def value_of(spec: TensorArg | Scalar) -> object:
    """An argument as a launch takes it."""
    if isinstance(spec, TensorArg):
        return stored(array_of(spec.value))[0]
    value = getattr(spec.value, "value", spec.value)
    return np.float32(value) if isinstance(value, float) else value


def _outputs(case: Case, given: TaskArgsBuilder) -> list[str]:
    """Names of the tensors that the signature says are written."""
    signature = _table(case, "orchestration").get("signature", [])
    directions = list(signature) if isinstance(signature, (list, tuple)) else []
    written = (ArgDirection.OUT, ArgDirection.INOUT)
    return [name for name, way in zip(given.tensor_names(), directions, strict=False) if way in written]


def _put_back(given: TaskArgsBuilder, run: Run) -> None:
    """The outputs of a run into the tensors of the test."""
    for spec in given.specs:
        if isinstance(spec, TensorArg) and spec.name in run.outputs:
            _copy_into(spec.value, np.asarray(run.outputs[spec.name]))


def _copy_into(tensor: object, array: Array) -> None:
    if isinstance(tensor, np.ndarray):
        tensor[...] = np.ascontiguousarray(array).view(tensor.dtype).reshape(tensor.shape)
        return
    import torch

    assert isinstance(tensor, torch.Tensor)
    bits = np.ascontiguousarray(array).view(f"i{tensor.element_size()}").reshape(tuple(tensor.shape)).copy()
    tensor.copy_(torch.from_numpy(bits).view(tensor.dtype))
