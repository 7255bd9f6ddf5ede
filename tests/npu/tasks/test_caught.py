"""What an operation or the runtime refuses is a finding, also where the kernel or the orchestration catches it."""

import contextlib

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of, run_kernel

from kernbench import npu

X = np.ones((8, 8), np.float32)
ZERO = np.zeros((8, 8), np.float32)


def attempts(core):
    tile, other = core.alloc("UB", (8, 8), name="tile"), core.alloc("UB", (8, 16), name="other")
    return {
        "shape": lambda: core.tadd(tile, tile, other),
        "dtype": lambda: core.tadd(tile, tile, core.alloc("UB", (8, 8), "f16")),
        "bounds": lambda: core.get(tile, 9, 9),
        "mode": lambda: core.tcvt(tile, tile, "sideways"),
        "number": lambda: core.tadds(tile, tile, "a lot"),
        "view": lambda: tile.view((64, 64)),
        "rows": lambda: tile.rows(7, 3),
        "memory": lambda: core.tile("L1", (8, 8)),
        "pipe": lambda: core.set_flag("MTE2", "FIX", 0),
        "no tile": lambda: core.texp(tile, 3.0),
        "no tensor": lambda: core.tload(tile, tile),
        "slice": lambda: core.tload(tile, 4.0),
    }


@pytest.mark.parametrize(
    "name",
    ["shape", "dtype", "bounds", "mode", "number", "view", "rows", "memory", "pipe", "no tile", "no tensor", "slice"],
)
def test_what_a_kernel_catches_is_found(name):
    def kernel(core, a, out):
        tile = core.alloc("UB", (8, 8))
        core.tload(tile, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, tile)
        with contextlib.suppress(Exception):
            attempts(core)[name]()
        core.pipe_sync()

    run = run_kernel(kernel, X, out=ZERO)
    assert run.status == "finished"
    caught = [f for f in run.findings if "(the kernel caught the error and went on)" in f.message]
    assert len(caught) == 1
    assert caught[0].where.file == __file__
    assert (run.outputs["out"] == 1).all()


def test_what_is_not_caught_is_told_once():
    def kernel(core, a, out):
        try:
            core.get(core.alloc("UB", (8, 8)), 9, 9)
        finally:
            core.alloc("UB", (8, 8))

    run = run_kernel(kernel, X, out=ZERO)
    assert run.status == "failed"
    (finding,) = run.findings
    assert "caught" not in finding.message


def test_what_was_caught_before_the_kernel_failed_is_told_too():
    def kernel(core, a, out):
        try:
            core.get(core.alloc("UB", (8, 8)), 9, 9)
        except npu_error():
            raise ValueError("given up") from None

    run = run_kernel(kernel, X, out=ZERO)
    assert kinds(run) == ["kernel-error", "out-of-bounds"]


def npu_error():
    from kernbench.common.errors import KernelError

    return KernelError


def test_a_kernels_own_error_that_it_catches_is_its_own():
    def kernel(core, a, out):
        with contextlib.suppress(KeyError):
            {}["missing"]
        tile = core.alloc("UB", (8, 8))
        core.tload(tile, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, tile)
        core.pipe_sync()

    assert run_kernel(kernel, X, out=ZERO).findings == []


@pytest.mark.parametrize(
    "attempt",
    [
        lambda rt, out: rt.submit(args=[]),
        lambda rt, out: rt.read(out, 1),
        lambda rt, out: out[9],
        lambda rt, out: rt.fifo("f", "sideways", (8, 8)),
        lambda rt, out: rt.tensor((-1,)),
        lambda rt, out: rt.submit(aiv0=flag, predicate=out),
    ],
)
def test_what_the_orchestration_catches_is_found(attempt):
    def orchestrate(rt, out):
        with contextlib.suppress(Exception):
            attempt(rt, out)

    run = npu.Chip("a2a3").launch(orchestrate, ZERO)
    assert run.status == "finished"
    (finding,) = run.findings
    assert "(the orchestration caught the error and went on)" in finding.message
    assert finding.where.file == __file__


def test_a_scope_that_is_refused_and_caught_is_found():
    def orchestrate(rt, out):
        with rt.scope(manual=True), contextlib.suppress(Exception), rt.scope():
            pass

    (finding,) = npu.Chip("a2a3").launch(orchestrate, ZERO).findings
    assert finding.where.line == line_of(orchestrate, "rt.scope():")


PYTHONS = {
    "tensor + 1": "is no number to compute with",
    "2 * tensor": "is no number to compute with",
    "-tensor": "is no number to compute with",
    "tensor[0, 0] > 3": "is no number to compare",
    "1 if tensor[0, 0] else 2": "cannot be true or false",
    "0.5 in tensor": "cannot be searched",
    "tensor.__setitem__(0, 1)": "cannot be written into by index",
    "np.array(tensor)": "is no array of NumPy",
    "tensor[4 / 2]": "2.0 is no index of a tensor",
    "tensor['a']": "'a' is no index of a tensor",
    "tensor[:1.5]": "1.5 is no index of a tensor",
    "len(tensor[0, 0])": "has no axis to count along",
    "tensor == 3": "is no number to compare",
    "tensor[0, 0] != 3": "is no number to compare",
    "3.0 == tensor[0, 0]": "is no number to compare",
    "tensor[0, 0] == tensor[0, 1]": "is no number to compare",
    "tensor[0, 0] in (1, 2)": "is no number to compare",
    "np.float32(1) == tensor[0, 0]": "is no number to compare",
    "tensor[0] == np.ones(8)": "is no number to compare",
    "int(tensor[0, 0])": "is no number to convert",
    "range(tensor[0, 0])": "is no number to convert",
    "[1, 2][tensor[0, 0]]": "is no number to convert",
    "float(tensor[0, 0])": "is no number to convert",
    "round(tensor[0, 0])": "is no number to convert",
    "f'{tensor[0, 0]:.2f}'": "is no number to be formatted as '.2f'",
    "tile == 1": "is no number to compare",
    "tile != tensor[0, 0]": "is no number to compare",
    "len(tile)": "has no length",
    "float(tile)": "is no number to convert",
    "tile + tile": "is no number to compute with",
    "tile < 1": "is no number to compare",
    "tile[0]": "cannot be indexed",
    "list(tile)": "cannot be looped over or unpacked",
}


@pytest.mark.parametrize("where", ["kernel", "orchestration"])
@pytest.mark.parametrize("text", PYTHONS)
def test_pythons_own_operations_say_what_to_write(text, where):
    def kernel(core, tensor, out):
        if where == "kernel":
            eval(text, {"tensor": tensor, "tile": core.alloc("UB", (8, 8)), "np": np})

    def orchestrate(rt, tensor, out):
        if where == "orchestration":
            eval(text, {"tensor": tensor, "np": np})
        rt.submit(aiv0=kernel, args=[npu.IN(tensor), npu.OUT(out)])

    if "tile" in text and where == "orchestration":
        return
    run = npu.Chip("a2a3").launch(orchestrate, X, ZERO)
    assert run.status == "failed"
    (finding,) = (one for one in run.findings if one.kind == "misuse")
    assert PYTHONS[text] in finding.message
    assert finding.hint


def test_tensors_are_looped_over_unpacked_and_asked_for():
    seen = []

    def kernel(core, tensor, out, missing, tile=None):
        seen.append([(row.shape, row.offset) for row in tensor])
        first, second = tensor[2:4]
        seen.append(
            (len(tensor), first.offset, second.offset, bool(tensor), bool(missing), bool(core.alloc("UB", (8, 8))))
        )

    def orchestrate(rt, tensor, out):
        seen.append([row.shape for row in tensor])
        rt.submit(aiv0=kernel, args=[npu.IN(tensor), npu.OUT(out), None])

    run = npu.Chip("a2a3").launch(orchestrate, X, ZERO)
    assert seen == [[(8,)] * 8, [((8,), 8 * n) for n in range(8)], (8, 16, 24, True, False, True)]
    assert "out-of-bounds" not in kinds(run)


def test_tiles_and_tensors_are_kept_in_lists_sets_and_dictionaries_by_identity():
    seen = []

    def kernel(core, tensor, out):
        first, second = core.alloc("UB", (8, 8)), core.alloc("UB", (8, 8))
        seen.append(((first, second).index(second), second in [first], second in {first: 1, second: 2}))
        seen.append((first == second, first != second, first == None, tensor == out, tensor != tensor))  # noqa: E711
        seen.append((len({tensor, out, first}), f"{first}" == str(first), tensor == "tensor"))

    def orchestrate(rt, tensor, out):
        rt.submit(aiv0=kernel, args=[npu.IN(tensor), npu.OUT(out)])

    npu.Chip("a2a3").launch(orchestrate, X, ZERO)
    assert seen == [(1, False, True), (False, True, False, False, False), (3, True, False)]
