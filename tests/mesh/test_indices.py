"""What kernels do with the index of `tl.range` is what they would do with a plain number."""

import json
import operator
import pickle

import numpy as np
import pytest
from tests.mesh.both_ways import found, same_commands

from kernbench import mesh
from kernbench.triton_emu.repeating.affine import Affine, Watched

X = np.random.default_rng(5).standard_normal((64, 8)).astype(np.float32)
# as many iterations as are compared, and fewer
COUNTS = (9, 24)


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


def test_an_error_that_is_the_kernels_own_is_still_reported():
    def use(tl, j, tile):
        return tile * ("text" + j)

    for shapes_only in (False, True):
        (finding,) = launched(use, 24, True, shapes_only).findings
        assert finding.kind == "kernel-error"
        assert finding.message == 'TypeError: can only concatenate str (not "int") to str'


@pytest.mark.parametrize("number", [np.int64(3), np.int32(3), np.array(3), True, 3])
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
