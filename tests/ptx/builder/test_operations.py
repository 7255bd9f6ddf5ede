"""Each operation of the builder resolves in the table, and ptxas takes it."""

from functools import cache

import pytest
import tests.ptx.builder.operations_async  # noqa: F401 (adds to the table)
from tests.ptx.builder.operations import OPERATIONS, TARGETS, bag
from tests.ptx.toolchain import need_ptxas

from kernbench import ptx
from kernbench.ptx.builder import Context, PtxModule


def module_for(target, names):
    module = PtxModule(target=target, lines=False)
    for name in names:
        kernel = module.kernel(name).param("u64", "buffer").param("u32", "count").param("f32", "scale")
        kernel.param("f16", "half").param("b8", "bytes", count=16, align=8).shared_memory(1024).param(
            "tensormap", "map"
        )
        kernel.build(lambda ctx, name=name: OPERATIONS[name](ctx, bag(ctx)))
    return module.build()


@cache
def built(target):
    return module_for(target, [name for name in OPERATIONS if TARGETS[name] == target])


@pytest.mark.parametrize("target", sorted(set(TARGETS.values())))
def test_operations_come_back_from_their_text(target):
    module = built(target)
    ptx.validate(module)
    assert ptx.parse(module.emit()) == module


@pytest.mark.programs
@pytest.mark.parametrize("target", sorted(set(TARGETS.values())))
def test_ptxas_takes_every_operation(target):
    need_ptxas(target, built(target).version)
    assert len(ptx.assemble(built(target), target, ("-O0",)).kernels) == len(built(target).kernels)


def test_no_method_of_the_context_is_left_out(monkeypatch):
    used = set()

    class Watched(Context):
        def __getattribute__(self, name):
            used.add(name)
            return super().__getattribute__(name)

    monkeypatch.setattr("kernbench.ptx.builder.kernel.Context", Watched)
    for target in set(TARGETS.values()):
        module_for(target, [name for name in OPERATIONS if TARGETS[name] == target])
    public = {name for name in dir(Context) if not name.startswith("_")}
    # error is called by refusals, return_ in functions that are built when the operations are imported, and checkpoint
    # adds no instruction
    assert public - used == {"checkpoint", "error", "return_"}
