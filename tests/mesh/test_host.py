"""The host: tensors over ranks, launches, wirings, and what it says when asked for something that cannot be."""

import ml_dtypes
import numpy as np
import pytest
from greenlet import GreenletExit

from kernbench import machine, mesh
from kernbench.common.errors import KernbenchError, MachineError, MisuseError
from kernbench.machine.grid import Grid
from kernbench.mesh.programs.tensors import DisagreementError
from kernbench.mesh.wiring import install
from kernbench.result import Status


def copy(q_ptr, o_ptr, rows, columns, *, tl):
    if rows:
        tl.store(o_ptr, tl.load(q_ptr, shape=(rows, columns)))


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int32, np.int8]
)
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_round_trip(dtype, axis):
    x = np.arange(64).reshape(8, 8).astype(dtype)
    host = mesh.Host("small", ranks=4)
    q = host.replicate(x) if axis is None else host.shard(x, axis=axis)
    o = host.empty((8, 8), x.dtype, axis=axis)
    shape = (8, 8) if axis is None else q.part_shape(0)
    run = host.launch(copy, q, o, *shape)
    assert run.safe, run.findings
    np.testing.assert_array_equal(host.gather(o), x)
    np.testing.assert_array_equal(run.outputs["o"], x)


def test_a_rank_may_have_any_rows():
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    rows = [[6, 0], [3], [], [5, 1, 2, 4]]
    host = mesh.Host("reference", ranks=4)
    q, o = host.shard(x, rows=rows), host.empty(x.shape, "f32", axis=0, rows=rows)

    def double(q_ptr, o_ptr, *, tl):
        count = len(rows[tl.program_id(0)])
        if count:
            tl.store(o_ptr, tl.load(q_ptr, shape=(count, 2)) * 2)

    run = host.launch(double, q, o)
    assert run.safe, run.findings
    np.testing.assert_array_equal(run.outputs["o"], 2 * x)
    np.testing.assert_array_equal(host.gather(o), 2 * x)
    np.testing.assert_array_equal(host.gather(q), x)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0, 1]], "gives 1 ranks their indices; there are 2"),
        ([[0], [0]], "every index from 0 to 1 to exactly one rank"),
        ([[0], [2]], "every index"),
        (5, r"as \[\[0, 7\], \[1, 6\], ...\]; got 5"),
        ([["a"], [1]], "rows gives each rank its indices, as"),
        ([[0.5], [1]], "rows gives each rank its indices, as"),
    ],
)
def test_rows_that_are_no_split_are_refused(rows, words):
    with pytest.raises(MisuseError, match=words):
        mesh.Host("reference", ranks=2).shard(np.zeros(2, np.float32), rows=rows)
    with pytest.raises(MisuseError, match="give the axis too"):
        mesh.Host("reference", ranks=2).empty((2,), rows=[[0], [1]])


@pytest.mark.parametrize(
    ("array", "words"),
    [
        ([[1.0], [2.0, 3.0]], "list is no array: .* inhomogeneous"),
        (np.broadcast_to(np.float32(1), (1 << 40, 4)), "larger than any memory"),
    ],
)
def test_arrays_that_cannot_be_taken_are_refused(array, words):
    for take in ("shard", "replicate"):
        with pytest.raises(MisuseError, match=words):
            getattr(mesh.Host("reference", ranks=2), take)(array)


@pytest.mark.parametrize("rows", [1, 5, 7, 8, 9])
def test_ragged_shards_are_shorter_at_the_end(rows):
    host = mesh.Host("reference", ranks=4)
    q = host.shard(np.zeros((rows, 2), np.float32))
    parts = [q.part_shape(r)[0] for r in range(4)]
    assert sum(parts) == rows
    assert parts == sorted(parts, reverse=True)
    assert parts[0] == -(-rows // 4)


def test_the_callers_array_stays_the_callers():
    def double(q_ptr, *, tl):
        tl.store(q_ptr, tl.load(q_ptr, shape=(4, 4)) * 2.0)

    x = np.ones((8, 4), np.float32)
    host = mesh.Host("small", ranks=2)
    q = host.shard(x)
    x[:] = 5
    for expected in (2, 4):
        assert host.launch(double, q).safe
        np.testing.assert_array_equal(host.gather(q), np.full((8, 4), expected))


def test_replicas_are_the_ranks_own():
    def mark(q_ptr, *, tl):
        tl.store(q_ptr, tl.full((2,), float(tl.program_id(0))))

    host = mesh.Host("small", ranks=3)
    w = host.replicate(np.zeros(2, np.float32))
    assert [f.kind for f in host.launch(mark, w).findings] == ["output-disagreement"]
    with pytest.raises(DisagreementError, match="copies of 'q' differ between rank 0 and rank 1: 2 elements"):
        host.gather(w)


def test_results_carry_over_between_launches():
    def write(t_ptr, *, tl):
        tl.store(t_ptr, tl.full((4,), 3.0))

    def read(t_ptr, o_ptr, *, tl):
        tl.store(o_ptr, tl.load(t_ptr, shape=(4,)))

    host = mesh.Host("small", ranks=1)
    t, o = host.workspace((4,), "f32"), host.empty((4,), "f32")
    assert [f.kind for f in host.launch(read, t, o).findings] == ["uninitialised-read"]
    assert host.launch(write, t).outputs == {}
    assert host.launch(read, t, o).safe
    np.testing.assert_array_equal(host.gather(o), [3, 3, 3, 3])


def test_a_relaunch_into_the_same_output_is_judged_by_itself():
    def lazy(q_ptr, o_ptr, rows, columns, *, tl):
        if tl.program_id(0) == 0:
            tl.store(o_ptr, tl.load(q_ptr, shape=(rows, columns)))

    host = mesh.Host("small", ranks=2)
    q, o = host.shard(np.ones((4, 4), np.float32)), host.empty((4, 4), "f32", axis=0)
    assert host.launch(copy, q, o, 2, 4).safe
    (finding,) = host.launch(lazy, q, o, 2, 4).findings
    assert finding.kind == "output-unwritten"
    assert finding.ranks == (1,)


def test_scratch_of_the_ranks_may_differ():
    def spill(t_ptr, *, tl):
        tl.store(t_ptr, tl.full((2,), float(tl.program_id(0))))

    host = mesh.Host("small", ranks=3)
    assert host.launch(spill, host.workspace((2,), "f32")).safe


@pytest.mark.parametrize("leave", [SystemExit(0), BaseException("x"), StopIteration(), GeneratorExit()])
def test_whatever_a_kernel_raises_is_a_finding(leave):
    def kernel(o_ptr, *, tl):
        raise leave

    host = mesh.Host("small", ranks=2)
    run = host.launch(kernel, host.empty((4, 4), "f32"))
    assert [f.kind for f in run.findings] == ["kernel-error"]


def test_a_handle_of_another_pe_or_launch_cannot_be_used():
    kept = {}

    def leaks(q_ptr, o_ptr, rows, columns, *, tl):
        value = kept.setdefault("value", tl.load(q_ptr, shape=(rows, columns)))
        tl.store(o_ptr, value)

    host = mesh.Host("small", ranks=2)
    q, o = host.shard(np.ones((4, 4), np.float32)), host.empty((4, 4), "f32", axis=0)
    for ranks in ((1,), (0, 1)):
        (finding,) = host.launch(leaks, q, o, 2, 4).findings
        assert finding.kind == "uninitialised-read"
        assert finding.ranks == ranks
        assert "a value of another PE" in finding.message


def test_reprs_are_short():
    host = mesh.Host("small", ranks=2)
    q, o = host.shard(np.ones((400, 4), np.float32)), host.empty((400, 4), "f32", axis=0)
    run = host.launch(copy, q, o, 200, 4)
    for thing in (host, q, run, run.recording, run.recording.streams[0]):
        assert len(repr(thing)) < 200


def test_dlpack_arrays():
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    host = mesh.Host("small", ranks=2)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(host.gather(host.shard(Foreign(x))), x)


def test_rank_axis_one_runs_every_pe_and_pe_zero_leads():
    def who(o_ptr, *, tl):
        assert tl.num_programs(0) == 8
        assert tl.num_programs(1) == 3
        mine = tl.program_id(0) if tell_apart else 0
        tl.store(o_ptr, tl.full((1,), float(tl.program_id(1) * 100 + mine)))

    tell_apart = False
    host = mesh.Host("reference", ranks=3, rank_axis=1)
    o = host.empty((3,), "f32", axis=0)
    run = host.launch(who, o)
    assert run.safe, run.findings
    assert len(run.recording.streams) == 24
    np.testing.assert_array_equal(host.gather(o), [0, 100, 200])
    tell_apart = True
    (finding,) = host.launch(who, o).findings
    assert finding.kind == "output-disagreement"
    assert "PE 1 of cube 0 stored other values to 'o' than PE 0" in finding.message
    assert finding.count == 21


def test_rank_axis_is_passed_in_either_form_or_filled_in():
    def kernel(o_ptr, rank_axis=0, *, tl):
        tl.store(o_ptr, tl.full((1,), float(rank_axis)))

    host = mesh.Host("reference", ranks=2, rank_axis=1)
    for args, kwargs in (((1,), {}), ((), {"rank_axis": 1}), ((), {})):
        o = host.empty((2,), "f32", axis=0)
        assert host.launch(kernel, o, *args, **kwargs).safe
        np.testing.assert_array_equal(host.gather(o), [1, 1])


def test_run_says_where_it_came_from():
    host = mesh.Host("small", ranks=2)
    q, o = host.shard(np.zeros((4, 4), np.float32)), host.empty((4, 4), "f32", axis=0)
    run = host.launch(copy, q, o, 2, 4, schedule=5)
    assert run.origin["kernel"] == "copy"
    assert run.origin["arguments"] == {"q_ptr": "4x4 f32", "o_ptr": "4x4 f32", "rows": 2, "columns": 4}
    assert run.origin["schedule"] == 5
    assert run.metrics["load_bytes"] == run.metrics["store_bytes"] == 64
    assert run.metrics["commands_by_engine"]["dma"] == 4
    assert run.to_dict()["safe"] is True


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"machine": "refrence"}, "reference"),
        ({"ranks": 9}, "it has 8 PEs in a cube; choose 1 to 8"),
        ({"ranks": 0}, "choose 1 to 8"),
        ({"ranks": True}, "choose 1 to 8"),
        ({"ranks": 17, "rank_axis": 1}, "it has 16 cubes"),
        ({"rank_axis": 2}, "rank_axis 2"),
        ({"install": "torus"}, "known: line, ring, grid"),
        ({"ranks": 2, "install": {0: {"E": 1}}}, "rank 0 must lie W of rank 1"),
        ({"ranks": 2, "install": {0: {"X": 1}}}, "directions"),
        ({"ranks": 2, "install": {5: {"E": 1}}}, "5 is no rank"),
        ({"ranks": 2, "install": None}, "install None"),
        ({"ranks": 2, "install": {0: None}}, "install"),
    ],
)
def test_impossible_hosts(options, words):
    with pytest.raises((MisuseError, MachineError), match=words):
        mesh.Host(**options)


def test_impossible_tensors_and_launches():
    host, other = mesh.Host("small", ranks=2), mesh.Host("small", ranks=2)
    with pytest.raises(MisuseError, match="float64"):
        host.shard(np.zeros((4, 4)))
    with pytest.raises(MisuseError, match="axis 2"):
        host.shard(np.zeros((4, 4), np.float32), axis=2)
    with pytest.raises(MisuseError, match="sequence of whole numbers"):
        host.empty(None)
    with pytest.raises(MisuseError, match="axis '0'"):
        host.shard(np.zeros((4, 4), np.float32), axis="0")
    with pytest.raises(MisuseError, match="budget 3"):
        host.launch(copy, host.empty((4, 4), "f32"), host.empty((4, 4), "f32"), 4, 4, budget=3)
    with pytest.raises(MisuseError, match="negative"):
        host.empty((-1, 2), "f32")
    with pytest.raises(MisuseError, match="no tensor of this host"):
        host.launch(copy, other.empty((4, 4), "f32"), host.empty((4, 4), "f32"), 4, 4)
    with pytest.raises(MisuseError, match="arguments do not fit copy"):
        host.launch(copy, host.empty((4, 4), "f32"))
    with pytest.raises(MisuseError, match="does not take the language: write def "):
        host.launch(lambda q_ptr: None, host.empty((4, 4), "f32"))
    with pytest.raises(MisuseError, match="argument q_ptr is an array"):
        host.launch(copy, np.zeros((4, 4), np.float32), host.empty((4, 4), "f32"), 4, 4)
    with pytest.raises(MisuseError, match="larger than any memory"):
        host.empty((1 << 40, 1 << 40), "f32")
    with pytest.raises(MisuseError, match="is no kernel"):
        host.launch(3, host.empty((4, 4), "f32"))
    with pytest.raises(MisuseError, match="schedule 'sideways'"):
        host.launch(copy, host.empty((4, 4), "f32"), host.empty((4, 4), "f32"), 4, 4, schedule="sideways")
    shapes = mesh.Host("small", ranks=2, shapes_only=True)
    with pytest.raises(KernbenchError, match="shapes-only"):
        shapes.gather(shapes.empty((4, 4), "f32"))


def test_machine_objects_and_files_serve_as_machines(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "reference"\n[ipcq]\ndepth = 7\n')
    assert mesh.Host(str(file)).machine.ipcq.depth == 7
    assert mesh.Host(machine.load("small")).ranks == 4


# Wirings


def test_line_and_ring():
    grid = Grid(2, 4)
    assert install("line", 3, grid) == {0: {"E": 1}, 1: {"W": 0, "E": 2}, 2: {"W": 1}}
    assert install("ring", 3, grid) == {0: {"E": 1, "W": 2}, 1: {"W": 0, "E": 2}, 2: {"W": 1, "E": 0}}
    assert install("line", 1, grid) == {0: {}}
    # the next rank of a ring of one is itself
    assert install("ring", 1, grid) == {0: {"E": 0, "W": 0}}


def test_grid_follows_the_snake():
    wiring = install("grid", 8, Grid(2, 4))
    assert wiring[0] == {"S": 7, "E": 1}
    assert wiring[3] == {"S": 4, "W": 2}
    assert wiring[5] == {"N": 2, "E": 4, "W": 6}
    assert install("grid", 3, Grid(2, 4))[2] == {"W": 1}


def test_a_cycle_closes_over_links_of_the_grid():
    for rows, columns in ((2, 4), (4, 3), (3, 4), (8, 8)):
        grid = Grid(rows, columns)
        wiring = install("cycle", grid.size, grid)
        walk = [0]
        while len(walk) < grid.size:
            walk.append(wiring[walk[-1]]["E"])
        assert sorted(walk) == list(range(grid.size))
        assert all(grid.distance(r, around["E"]) == 1 == grid.distance(r, around["W"]) for r, around in wiring.items())
    host = mesh.Host("reference", ranks=8, install="cycle")
    assert host.cycle == list(range(8))
    assert mesh.Host("reference", ranks=3).cycle is None
    with pytest.raises(MisuseError, match="must fill two or more whole rows"):
        mesh.Host("reference", ranks=6, install="cycle")
    with pytest.raises(MisuseError, match="standard install"):
        host.dist.barrier()


def test_messages_on_a_grid_arrive_from_the_opposite_side():
    def south(q_ptr, o_ptr, *, tl):
        x = tl.load(q_ptr, shape=(1,))
        if tl.program_id(0) < 4:
            tl.send(dir="S", src=x)
        else:
            x = tl.recv(dir="N", shape=(1,), dtype="f32")
        tl.store(o_ptr, x)

    host = mesh.Host("reference", ranks=8, install="grid")
    q, o = host.shard(np.arange(8, dtype=np.float32)), host.empty((8,), "f32", axis=0)
    assert host.launch(south, q, o).safe
    np.testing.assert_array_equal(host.gather(o), [0, 1, 2, 3, 3, 2, 1, 0])


def test_a_failed_launch_leaves_the_host_usable():
    def fails(q_ptr, o_ptr, rows, columns, *, tl):
        raise ValueError("on purpose")

    host = mesh.Host("small", ranks=2)
    q, o = host.shard(np.ones((4, 4), np.float32)), host.empty((4, 4), "f32", axis=0)
    assert host.launch(fails, q, o, 2, 4).status is Status.FAILED
    assert host.launch(copy, q, o, 2, 4).safe


def test_keyboard_interrupt_is_the_users():
    def interrupted(o_ptr, *, tl):
        raise KeyboardInterrupt

    host = mesh.Host("small", ranks=2)
    with pytest.raises(KeyboardInterrupt):
        host.launch(interrupted, host.empty((4, 4), "f32"))


def test_a_program_that_kills_its_own_coroutine_has_failed():
    def kernel(o_ptr, *, tl):
        tl.store(o_ptr, tl.zeros((4,)))
        raise GreenletExit

    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, host.empty((4,), "f32"))
    assert run.status is Status.FAILED
    assert [(f.kind, f.message) for f in run.findings] == [("kernel-error", "GreenletExit")]
    assert not run.ok


def grows(o_ptr, *, tl):
    held = []
    while True:
        held.append(tl.zeros((1 << 18,)))


def calls_itself(o_ptr, *, tl):
    tl.reduce(tl.zeros((4,)), 0, lambda a, b: calls_itself(o_ptr, tl=tl))


def asks_too_much(o_ptr, *, tl):
    np.zeros(1 << 50)


@pytest.mark.parametrize(
    ("kernel", "kind", "says"),
    [
        (grows, "scratch-overflow", "use smaller blocks"),
        (calls_itself, "kernel-error", "calls itself without end"),
        (asks_too_much, "kernel-error", "does not hold the value"),
    ],
)
def test_a_kernel_without_measure_is_stopped_and_told_at_its_line(kernel, kind, says):
    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, host.empty((4,), "f32"))
    (finding,) = {f.kind: f for f in run.findings}.values()
    assert (finding.kind, run.status) == (kind, Status.FAILED)
    assert says in finding.hint
    assert finding.where.file == __file__
