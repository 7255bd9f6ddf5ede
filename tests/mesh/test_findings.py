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
