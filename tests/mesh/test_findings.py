"""What all findings of the mesh share: a clean kernel has none, equal ones fold, shapes alone suffice for some."""

import numpy as np
import pytest
from tests.mesh.planted import D, S, clean, launch, only

from kernbench import mesh
from kernbench.result import Status


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
@pytest.mark.parametrize("schedule", ["canonical", "reversed", 0, 1])
def test_clean_kernel_is_silent(ranks, schedule):
    run = launch(clean, ranks, schedule=schedule)
    assert run.findings == []
    assert run.status is Status.FINISHED
    assert run.safe is True
    assert run.right is None
    assert run.ok
    x = np.arange(ranks * S * D, dtype=np.float32).reshape(ranks, S, D)
    neighbours = np.zeros_like(x)
    neighbours[1:] += x[:-1]
    neighbours[:-1] += x[1:]
    np.testing.assert_array_equal(run.outputs["o"], (x + neighbours).reshape(-1, D))


def test_findings_fold_by_kind_and_place():
    def many(q_ptr, o_ptr, *, tl):
        for i in range(10):
            tl.load(q_ptr + i * 1000, shape=(S, D))
        tl.store(o_ptr, tl.load(q_ptr, shape=(S, D)))

    finding = only(launch(many, 4), "out-of-bounds")
    assert finding.count == 36
    assert finding.ranks == (0, 1, 2, 3)


def test_shapes_only_checks_what_needs_no_data():
    run = launch(clean, 4, shapes_only=True)
    assert run.safe
    assert run.outputs == {}
    assert "deadlock" in run.checked
    assert "uninitialised-read" not in run.checked


def test_shapes_only_records_the_same_commands():
    with_data, without = launch(clean, 4), launch(clean, 4, shapes_only=True)
    for a, b in zip(with_data.recording.streams, without.recording.streams, strict=True):
        np.testing.assert_array_equal(a.rows.columns(), b.rows.columns())


def test_one_launch_may_be_shapes_only():
    host = mesh.Host("small", ranks=2)
    q, o = host.shard(np.ones((2 * S, D), np.float32)), host.empty((2 * S, D), "f32", axis=0)
    run = host.launch(clean, q, o, shapes_only=True)
    assert run.safe
    assert run.outputs == {}
    assert np.isnan(host.gather(o)).all()
    assert not np.isnan(host.launch(clean, q, o).outputs["o"]).any()


class MuteError(Exception):
    """Raises when it is asked what it says."""

    def __str__(self):
        return str(1 // 0)


def test_an_error_that_cannot_say_what_it_is():
    def mute(q_ptr, o_ptr, *, tl):
        raise MuteError

    finding = only(launch(mute, 2), "kernel-error")
    assert finding.message == "MuteError, which cannot say why: its __str__ raises ZeroDivisionError"


@pytest.mark.parametrize(
    "grow",
    [
        lambda tl, q: tl.zeros((1 << 16, 1 << 16)),
        lambda tl, q: tl.arange(0, 1 << 30),
        lambda tl, q: tl.load(q, (1 << 20, 1 << 13)),
        lambda tl, q: tl.load(q, (1 << 20, 1 << 13), strides=(0, 0)),
        lambda tl, q: tl.load(tl.make_block_ptr(q, (1, 1), (1, 1), (0, 0), (1 << 20, 1 << 13)), boundary_check=(0, 1)),
        lambda tl, q: wide(tl, q) + 1,
        lambda tl, q: tl.exp(wide(tl, q)),
        lambda tl, q: tl.where(wide(tl, q) > 0, 1, 2),
        lambda tl, q: tl.cumsum(wide(tl, q), 0),
        lambda tl, q: tl.sort(wide(tl, q)),
        lambda tl, q: tl.softmax(wide(tl, q)),
        lambda tl, q: tl.cat([wide(tl, q), wide(tl, q)]),
        lambda tl, q: tl.dot(wide(tl, q), wide(tl, q).T),
        lambda tl, q: tl.dot(wide(tl, q).T, tl.broadcast_to(wide(tl, q)[:, :4], (1 << 20, 4))),
        lambda tl, q: tl.randn(0, wide(tl, q).to("i32", bitcast=True)),
        lambda tl, q: tl.histogram(tl.arange(0, 4), 1 << 40),
        lambda tl, q: tl.send("E", wide(tl, q)),
        lambda tl, q: tl.send_async("E", wide(tl, q)),
    ],
)
def test_a_value_far_too_large_is_not_computed(grow, monkeypatch):
    def kernel(q_ptr, o_ptr, *, tl):
        grow(tl, q_ptr)

    host = mesh.Host("reference", ranks=2)
    q, o = host.shard(np.zeros((2, 1), np.float32), axis=0), host.workspace((2, 1))
    run = host.launch(kernel, q, o)
    assert run.status is Status.FAILED
    assert "scratch-overflow" in {finding.kind for finding in run.findings}
    assert "kernel-error" not in {finding.kind for finding in run.findings}


def wide(tl, q_ptr):
    """A view of one number as 32 GiB: no command, and no memory."""
    return tl.broadcast_to(tl.load(q_ptr, (1, 1)), (1 << 20, 1 << 13))
