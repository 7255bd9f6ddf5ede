"""Prepares a test class for a launch: compiled sources, the chip's settings, arguments, outputs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError, said
from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.kernel import CppKernel
from kernbench.npu.cpp.memory import stored
from kernbench.npu.cpp.orchestration import CppOrchestration
from kernbench.npu.scene.cases import Case
from kernbench.npu.scene.offered import Scalar, TensorArg, array_of
from kernbench.npu.scene.room import is_for_want_of_memory, within
from kernbench.result.run import Run

R = TypeVar("R")
_RINGS = {"ring_task_window": "tasks.window", "ring_heap": "tasks.heap", "ring_dep_pool": "tasks.dependences"}


def own(case: Case, what: str, function: Callable[..., R], *given: object) -> R:
    """Call a function of the test; its exceptions are attributed to the test, and its memory is limited."""
    try:
        with within() as room:
            return function(*given)
    except Exception as error:
        if room is not None and is_for_want_of_memory(error):
            sizes = ", ".join(name for name, value in case.params.items() if isinstance(value, int))
            cut = f"cut it: --set NAME=VALUE ({sizes})" if sizes else "the case has no sizes to cut"
            needs = f"needs more memory than this computer has left ({room / 2**30:.1f} GiB)"
            raise BenchError(f"{case.title}: {what} of the test {needs}; {cut}") from None
        message = f"{case.title}: {what} of the test raises {said(error)}"
        raise BenchError(message) from None


def changes_of(case: Case) -> dict[str, float | str]:
    """Keys of the chip that the configuration of the case changes."""
    changes: dict[str, float | str] = {}
    threads = case.config.get("aicpu_thread_num")
    if isinstance(threads, int) and threads > 1:
        changes["tasks.schedulers"] = threads - 1
    rings = case.config.get("runtime_env")
    for key, name in _RINGS.items():
        size = rings.get(key) if isinstance(rings, Mapping) else None
        # sizes for each ring: the smallest is used for all
        size = min(size) if isinstance(size, (list, tuple)) and size else size
        if isinstance(size, int) and size > 0:
            changes[name] = size
    return changes


def table_of(case: Case, key: str, callable_: Mapping[str, object] | None = None) -> Mapping[str, object]:
    """The entry of a test, or of one of its callables, under a key."""
    table = (case.test.CALLABLE if callable_ is None else callable_).get(key)
    if not isinstance(table, Mapping):
        raise BenchError(f"{case.title}: CALLABLE has no {key!r}")
    return cast("Mapping[str, object]", table)


def _source(case: Case, table: Mapping[str, object]) -> Path:
    file = case.file.parent / str(table.get("source", ""))
    if not file.is_file():
        raise BenchError(f"{case.title}: there is no source {file}")
    return file.resolve()


def orchestration_of(
    case: Case, specs: Sequence[TensorArg | Scalar], callable_: Mapping[str, object] | None = None
) -> CppOrchestration:
    """The compiled orchestration for these arguments: the test's, or that of one of its callables."""
    names = [spec.name for spec in specs]
    elements = [stored(array_of(spec.value))[1] if isinstance(spec, TensorArg) else 0 for spec in specs]
    table = table_of(case, "orchestration", callable_)
    source = _source(case, table)
    symbol = str(table.get("function_name", "aicpu_orchestration_entry"))
    return CppOrchestration(build_kernel(source, "", case.chip), source, symbol, names, elements)


def kernels_of(case: Case, callable_: Mapping[str, object] | None = None) -> dict[int, tuple[CppKernel, str]]:
    """The compiled kernels by number, each with the kind of core it is for: the test's, or those of a callable."""
    listed = (case.test.CALLABLE if callable_ is None else callable_).get("incores", [])
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


def put_back(specs: Sequence[TensorArg | Scalar], run: Run) -> None:
    """Copy the outputs of a run into the tensors of the test."""
    for spec in specs:
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
