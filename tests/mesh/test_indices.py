"""What kernels do with the index of `tl.range` is what they would do with a plain number."""

import json
import operator
import pickle
import sys
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pytest
from tests.mesh.both_ways import found, same_commands

from kernbench import mesh
from kernbench.benches.gqa_attention.attention_cycle_kv import attention_cycle_kv_kernel
from kernbench.triton_emu.repeating.affine import Affine, Watched
from kernbench.triton_emu.repeating.asking import function_asks_for_types

X = np.random.default_rng(5).standard_normal((64, 8)).astype(np.float32)
# as many iterations as are compared, and fewer
COUNTS = (9, 24)
THIS = sys.modules[__name__]


def launched(use, count, folds, shapes_only):
    def kernel(x_ptr, o_ptr, *, tl):
        total = tl.load(x_ptr, (4, 8))
        for j in tl.range(count):
            tile = tl.load(x_ptr + 32 * j, (4, 8))
            total = total + use(tl, j, tile)
        tl.store(o_ptr, total)

    host = mesh.Host("reference", ranks=1)
    host.folds = folds
    return host.launch(kernel, host.shard(X), host.empty((4, 8), "f32"), shapes_only=shapes_only)


@pytest.mark.parametrize(
    "use",
    [
        lambda tl, j, tile: tile * (0.5 * j),
        lambda tl, j, tile: tile * (j * 0.5),
        lambda tl, j, tile: tile * (j + 0.5),
        lambda tl, j, tile: tile * (0.5 + j),
        lambda tl, j, tile: tile * (j - 0.5),
        lambda tl, j, tile: tile * (0.5 - j),
        lambda tl, j, tile: tile * (j / 0.5),
        lambda tl, j, tile: tile * (j % 1.5),
        lambda tl, j, tile: tile * (7.5 % (j + 1)),
        lambda tl, j, tile: tile * 2.0**-j,
        lambda tl, j, tile: tile * divmod(7.5, j + 1)[1],
        lambda tl, j, tile: tile * (j == 2.0),
        lambda tl, j, tile: tile * (j < 2.5),
        lambda tl, j, tile: tile * (j >= 2.5),
        lambda tl, j, tile: tile * sum([j, j, 0.5]),
        lambda tl, j, tile: tile * abs(j * 1j),
        lambda tl, j, tile: tile * float(np.float32(0.5) * j),
        lambda tl, j, tile: tile * float(j * np.float32(0.5)),
        lambda tl, j, tile: tile * float((np.ones(2) * j)[0]),
        lambda tl, j, tile: tile * float((j - np.ones(2))[0]),
        lambda tl, j, tile: tile * float(np.exp(-j)),
        lambda tl, j, tile: tile * float(np.minimum(j, 3)),
        lambda tl, j, tile: tile * float(np.exp(-np.array([j, 1]))[0]),
        lambda tl, j, tile: tile * float(np.maximum.outer([j], [2, 3])[0, 0]),
        lambda tl, j, tile: tile * pow(2, j, 5),
        lambda tl, j, tile: tile * float(json.dumps(j)),
        lambda tl, j, tile: tile * pickle.loads(pickle.dumps(j)),
        lambda tl, j, tile: tile * float(np.random.default_rng(j).random()),
        lambda tl, j, tile: tl.where(tile > 0.01 * j, tile, 0),
        lambda tl, j, tile: tl.full((4, 8), 0.25 * j),
        lambda tl, j, tile: tl.maximum(tile, j),
        lambda tl, j, tile: j / (tl.abs(tile) + 1),
        lambda tl, j, tile: tl.where(j < tile, tile, j),
    ],
)
@pytest.mark.parametrize("shapes_only", [False, True])
def test_an_index_is_a_number_to_whoever_uses_it(use, shapes_only):
    for count in COUNTS:
        folded, full = (launched(use, count, folds, shapes_only) for folds in (True, False))
        assert full.status == "finished"
        assert (folded.status, found(folded), folded.metrics) == (full.status, [], full.metrics)
        same_commands(folded.recording, full.recording)
        for name in full.outputs:
            assert folded.outputs[name].tobytes() == full.outputs[name].tobytes()


def test_a_kernel_may_ask_for_the_type_of_its_index():
    def kernel(o_ptr, *, tl):
        for j in tl.range(24):
            tl.store(o_ptr + 4 * j, tl.full((1,), 1.0 if type(j) is int else 2.0))

    host = mesh.Host("reference", ranks=1)
    run = host.launch(kernel, host.empty((24,), "f32"))
    assert (run.outputs["o"] == 1).all()


def told(number):
    return 1.0 if type(number) is int else 2.0


class Told:
    @staticmethod
    def of(number):
        return told(number)

    def again(self, number):
        return self.of(number)


SOME = Told()


def made_of(function):
    def call(number):
        return function(number)

    return call


@pytest.mark.parametrize(
    "use",
    [
        told,
        made_of(told),
        Told.of,
        lambda number: Told.of(number),
        lambda number: THIS.told(number),
        SOME.again,
        lambda number: SOME.again(number),
        lambda number, function=told: function(number),
    ],
    ids=[
        "a function",
        "a closure",
        "a method",
        "a class",
        "a module",
        "a method of an object",
        "an object",
        "a default",
    ],
)
def test_a_function_that_a_kernel_calls_may_ask_for_the_type_of_its_index(use):
    def kernel(o_ptr, *, tl):
        for j in tl.range(24):
            tl.store(o_ptr + 4 * j, tl.full((1,), use(j)))

    host = mesh.Host("reference", ranks=1)
    run = host.launch(kernel, host.empty((24,), "f32"))
    assert (run.outputs["o"] == 1).all()


@pytest.mark.parametrize("use", [told, json.dumps], ids=["its type", "a plain number"])
def test_a_routine_may_ask_for_what_only_a_plain_number_has(use):
    def kernel(o_ptr, *, tl):
        def part(tl, at):
            for k in range(20):
                tl.store(at + 4 * k, tl.full((1,), 1.0))
            if use(at) == 2.0:
                tl.store(at, tl.full((1,), 2.0))

        for n in range(8):
            tl.routine(part, tl, at=(o_ptr + 80 * n,))

    def launched(folds):
        host = mesh.Host("reference", ranks=1)
        host.folds = folds
        return host.launch(kernel, host.empty((160,), "f32"), shapes_only=True)

    folded, full = launched(True), launched(False)
    assert full.status == "finished"
    assert (folded.status, found(folded), folded.metrics) == (full.status, [], full.metrics)


@dataclass(frozen=True)
class Frozen:
    number: int


def test_kernels_that_ask_for_no_types_are_still_folded():
    def kernel(o_ptr, *, tl):
        for j in tl.range(24):
            tl.store(o_ptr + 4 * j, tl.full((1,), float(Frozen(3).number)))

    assert not function_asks_for_types(kernel)
    assert not function_asks_for_types(attention_cycle_kv_kernel)


def test_code_that_calls_itself_is_looked_at_once():
    def even(number):
        return number == 0 or odd(number - 1)

    def odd(number):
        return number != 0 and even(number - 1)

    class Own:
        def asked(self, number):
            return super().__hash__() is not None and Own is not number

    class Other(Own):
        def asked(self, number):
            return super().asked(number)

    def kernel(o_ptr, *, tl):
        for j in tl.range(24):
            assert Other().asked(j)
            tl.store(o_ptr + 4 * j, tl.full((1,), float(even(j))))

    host = mesh.Host("reference", ranks=1)
    run = host.launch(kernel, host.empty((24,), "f32"))
    assert run.outputs["o"].reshape(12, 2).sum(axis=0).tolist() == [12, 0]


def test_an_error_that_is_the_kernels_own_is_still_reported():
    def use(tl, j, tile):
        return tile * ("text" + j)

    for shapes_only in (False, True):
        (finding,) = launched(use, 24, True, shapes_only).findings
        assert finding.kind == "kernel-error"
        assert finding.message == 'TypeError: can only concatenate str (not "int") to str'


@pytest.mark.parametrize("count", COUNTS)
def test_an_address_in_a_narrow_number_of_numpy_is_refused_with_a_remedy(count):
    def kernel(x_ptr, o_ptr, *, tl):
        for j in tl.range(count):
            tl.store(o_ptr + 32 * j, tl.load(x_ptr + np.int32(32) * j, (8,)))

    host = mesh.Host("reference", ranks=1)
    (finding,) = host.launch(kernel, host.shard(X), host.empty((count, 8), "f32")).findings
    assert finding.kind == "kernel-error"
    assert "OverflowError" in finding.message
    assert "make a plain number of it with int()" in finding.hint


class Size(IntEnum):
    ROWS = 3


class Own(int):
    """A number that computes in its own way."""

    def __rmul__(self, other):
        return int(other) + 100

    def __add__(self, other):
        return int(other) + 1000


@pytest.mark.parametrize(
    "use",
    [
        lambda j: j * np.int8(11),
        lambda j: np.int8(11) * j,
        lambda j: j + np.int8(120),
        lambda j: np.uint8(3) - j,
        lambda j: j * np.int16(3001),
        lambda j: np.multiply(j, np.int16(3001)),
        lambda j: np.add(np.uint8(250), j),
        lambda j: np.array(100, np.int8) + j,
        lambda j: -(np.uint16(1) * j),
        lambda j: j * Own(3),
        lambda j: Own(3) + j,
    ],
)
@pytest.mark.parametrize("shapes_only", [False, True])
@pytest.mark.filterwarnings("ignore:overflow")
def test_numbers_that_wrap_around_do_so_in_every_iteration(use, shapes_only):
    """NumPy's narrow numbers are not those of a device: a kernel computes addresses as Python does, loop or none."""

    def kernel(x_ptr, o_ptr, *, tl):
        for j in tl.range(20, 44):
            tile = tl.make_block_ptr(x_ptr, (64, 8), (8, 1), (use(j), 0), (1, 8))
            tl.store(o_ptr + 32 * (j - 20), tl.load(tile, boundary_check=(0,)) + use(j))

    def launched(folds):
        host = mesh.Host("reference", ranks=1)
        host.folds = folds
        return host.launch(kernel, host.shard(X), host.empty((24, 8), "f32"), shapes_only=shapes_only)

    folded, full = launched(True), launched(False)
    assert (folded.status, found(folded)) == (full.status, found(full)) == ("finished", [])
    same_commands(folded.recording, full.recording)
    assert all(folded.outputs[name].tobytes() == full.outputs[name].tobytes() for name in full.outputs)


@pytest.mark.parametrize("number", [np.int64(3), Size.ROWS, True, 3])
@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul])
def test_sums_and_products_with_whole_numbers_are_indices(operation, number):
    loop = Watched()
    index = Affine(7, ((loop, 2),))
    for made, value in (
        (operation(index, number), operation(7, int(number))),
        (operation(number, index), operation(int(number), 7)),
    ):
        assert type(made) is Affine
        assert made.now == value
    assert not loop.was_seen
