"""The task runtime: dependences, directions, scopes, rings, values read back, and orders of execution."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds

from kernbench import npu
from kernbench.common.errors import MisuseError

X = np.arange(64, dtype=np.float32).reshape(8, 8)
ZERO = np.zeros((8, 8), np.float32)


def fill(value):
    def kernel(core, out):
        tile = core.alloc("UB", (8, 8))
        core.texpands(tile, value)
        flag(core, "V", "MTE3")
        core.tstore(out, tile)
        core.pipe_sync()

    kernel.__name__ = f"fill_{value}"
    return kernel


def add_one(core, source, target):
    tile = core.alloc("UB", (8, 8))
    core.tload(tile, source)
    flag(core, "MTE2", "V")
    core.tadds(tile, tile, 1.0)
    flag(core, "V", "MTE3")
    core.tstore(target, tile)
    core.pipe_sync()


def copy(core, source, target):
    tile = core.alloc("UB", (8, 8))
    core.tload(tile, source)
    flag(core, "MTE2", "MTE3")
    core.tstore(target, tile)
    core.pipe_sync()


def launch(orchestrate, *arrays, chip="a2a3", changes=None, **options):
    return npu.Chip(chip, changes).launch(orchestrate, *(arrays or (ZERO,)), **options)


SCHEDULES = ["canonical", "reversed", 1, 2, 3]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_tensor_map_orders_readers_after_writers(schedule):
    def orchestrate(rt, out):
        with rt.scope():
            (a,) = rt.submit(aiv0=fill(5.0), args=[npu.CREATE((8, 8), "f32", "a")]).outputs
            rt.submit(aiv0=lambda core, t: add_one(core, t, t), args=[npu.INOUT(a)])
            rt.submit(aiv0=lambda core, t: add_one(core, t, t), args=[npu.INOUT(a)])
            rt.submit(aiv0=copy, args=[npu.IN(a), npu.OUT(out)])

    run = launch(orchestrate, schedule=schedule)
    assert run.findings == []
    assert (run.outputs["out"] == 7).all()
    dependences = [t.dependences for t in run.recording.tasks]
    # an INOUT replaces what it covers: the third waits for the second only
    assert dependences == [{}, {0: "reads a"}, {1: "reads a"}, {2: "reads a"}]


def test_parts_that_do_not_overlap_are_independent():
    def orchestrate(rt, x, out):
        rt.submit(aiv0=copy_rows, args=[npu.IN(x[:4]), npu.OUT(out[:4])])
        rt.submit(aiv0=copy_rows, args=[npu.IN(x[4:]), npu.OUT(out[4:])])
        rt.submit(aiv0=copy_columns, args=[npu.IN(out[:, 0:4]), npu.INOUT(out[:, 4:8])])

    def copy_rows(core, source, target):
        tile = core.alloc("UB", (4, 8))
        core.tload(tile, source)
        flag(core, "MTE2", "MTE3")
        core.tstore(target, tile)
        core.pipe_sync()

    def copy_columns(core, source, target):
        tile = core.alloc("UB", (8, 8), valid=(8, 4))
        core.tload(tile, source)
        flag(core, "MTE2", "MTE3")
        core.tstore(target, tile)
        core.pipe_sync()

    run = launch(orchestrate, X, ZERO)
    assert run.findings == []
    assert [sorted(t.dependences) for t in run.recording.tasks] == [[], [], [0, 1]]
    assert np.array_equal(run.outputs["out"][:, 4:], X[:, :4])


def test_a_manual_scope_asks_nobody():
    def orchestrate(rt, out):
        a = rt.tensor((8, 8), "f32", "a")
        with rt.scope(manual=True):
            first = rt.submit(aiv0=fill(2.0), args=[npu.OUT(a)])
            rt.submit(aiv0=copy, args=[npu.IN(a), npu.OUT(out)], deps=[first] if given else [])

    for given in (True, False):
        run = launch(orchestrate)
        assert kinds(run) == ([] if given else ["missing-dependence"])
        if not given:
            (finding,) = run.findings
            assert "task 2 (copy) reads elements of 'a' (8x8 f32) that task 1 (fill_2.0) wrote" in finding.message
            assert [o.role for o in finding.others] == [
                "task 1 (fill_2.0) wrote it",
                "task 1 (fill_2.0) submitted",
                "submitted",
            ]
    assert {"uninitialised-read", "write-after-read"} == set(kinds(launch(orchestrate, schedule="reversed")))


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
def test_write_after_read_is_reported_or_tracked(schedule):
    def orchestrate(rt, x, out):
        a = rt.tensor((8, 8), "f32", "a")
        rt.submit(aiv0=fill(1.0), args=[npu.OUT(a)])
        rt.submit(aiv0=copy, args=[npu.IN(a), npu.OUT(out)])
        rt.submit(aiv0=fill(2.0), args=[npu.OUT(a)])

    run = launch(orchestrate, X, ZERO, schedule=schedule)
    assert ("write-after-read" if schedule == "canonical" else "missing-dependence") in kinds(run)
    tracked = launch(orchestrate, X, ZERO, schedule=schedule, track_war=True)
    assert tracked.findings == []
    assert (tracked.outputs["out"] == 1).all()
    assert tracked.recording.tasks[3].dependences == {1: "overwrites a", 2: "overwrites a"}


def test_a_second_writer_that_nothing_orders():
    def orchestrate(rt, out):
        rt.submit(aiv0=fill(1.0), args=[npu.OUT(out)])
        rt.submit(aiv0=fill(2.0), args=[npu.OUT(out)])

    assert kinds(launch(orchestrate)) == ["missing-dependence"]


def test_directions_are_held():
    def inout_as_in(rt, out):
        (a,) = rt.submit(aiv0=fill(1.0), args=[npu.CREATE((8, 8), "f32", "a")]).outputs
        rt.submit(aiv0=lambda core, t: add_one(core, t, t), args=[npu.IN(a)], name="update")
        rt.submit(aiv0=copy, args=[npu.IN(a), npu.OUT(out)])

    run = launch(inout_as_in)
    assert set(kinds(run)) == {"argument-direction", "missing-dependence"}
    assert "argument 0 ('a' (8x8 f32)) is declared IN, and the kernel writes it" in run.findings[0].message

    def in_as_out(rt, out):
        (a,) = rt.submit(aiv0=fill(1.0), args=[npu.CREATE((8, 8), "f32", "a")]).outputs
        rt.submit(aiv0=copy, args=[npu.OUT(a), npu.OUT(out)])

    found = launch(in_as_out)
    # it still waits for the task that made the tensor
    assert set(kinds(found)) == {"argument-direction"}
    assert any("is declared OUT, and the kernel reads it" in f.message for f in found.findings)

    def in_as_inout(rt, out):
        (a,) = rt.submit(aiv0=fill(1.0), args=[npu.CREATE((8, 8), "f32", "a")]).outputs
        rt.submit(aiv0=copy, args=[npu.INOUT(a), npu.OUT(out)])

    (finding,) = launch(in_as_inout).findings
    assert "is declared INOUT, and no block ever writes it" in finding.message


def test_a_tensor_the_kernel_closes_over_is_not_declared():
    def orchestrate(rt, x, out):
        rt.submit(aiv0=lambda core, target: copy(core, x, target), args=[npu.OUT(out)])

    run = launch(orchestrate, X, ZERO)
    assert kinds(run) == ["undeclared-access"]
    assert np.array_equal(run.outputs["out"], X)


def test_scopes_by_hand():
    def never_opened(rt, out):
        rt.scope()
        rt.submit(aiv0=fill(1.0), args=[npu.OUT(out)])

    def never_closed(rt, out):
        kept.append(rt.scope())
        kept[-1].__enter__()
        rt.submit(aiv0=fill(1.0), args=[npu.OUT(out)])

    def closed_twice(rt, out):
        with rt.scope() as _:
            rt.submit(aiv0=fill(1.0), args=[npu.OUT(out)])
        scope = rt.scope()
        with scope:
            pass
        scope.__exit__(None, None, None)

    def crossed(rt, out):
        outer = rt.scope()
        with outer:
            rt.scope().__enter__()

    def opened_twice(rt, out):
        scope = rt.scope()
        with scope, scope:
            pass

    kept = []
    says = {
        never_opened: "nothing opened it",
        never_closed: "was never closed",
        closed_twice: "is closed a second time",
        crossed: "is closed before one that was opened inside it",
        opened_twice: "is opened a second time",
    }
    for orchestrate, words in says.items():
        (finding,) = launch(orchestrate).findings
        assert finding.kind == "misuse"
        assert words in finding.message
        assert finding.where.file == __file__
        assert "with rt.scope()" in finding.hint


def test_a_tensor_used_after_its_scope():
    def orchestrate(rt, out):
        with rt.scope():
            (a,) = rt.submit(aiv0=fill(1.0), args=[npu.CREATE((8, 8), "f32", "a")]).outputs
            if inside:
                rt.submit(aiv0=copy, args=[npu.IN(a), npu.OUT(out)])
        if not inside:
            rt.submit(aiv0=copy, args=[npu.IN(a), npu.OUT(out)])

    for inside in (True, False):
        assert kinds(launch(orchestrate)) == ([] if inside else ["use-after-free"])


def test_tensors_nobody_wrote_and_outputs_not_all_written():
    def uninitialised(rt, out):
        a = rt.tensor((8, 8), "f32", "a")
        rt.submit(aiv0=copy, args=[npu.IN(a), npu.OUT(out)])

    assert kinds(launch(uninitialised)) == ["uninitialised-read"]

    def half(core, out):
        tile = core.alloc("UB", (4, 8))
        core.texpands(tile, 1.0)
        flag(core, "V", "MTE3")
        core.tstore(out[:4], tile)
        core.pipe_sync()

    run = launch(lambda rt, out: rt.submit(aiv0=half, args=[npu.OUT(out)]) and None)
    assert kinds(run) == ["output-unwritten"]
    assert "32 of 64 elements of output 'out'" in run.findings[0].message


def spread(core, x, out):
    tile = core.alloc("UB", (1, 8))
    row = 0 if clash else core.block_idx
    core.tload(tile, x[core.block_idx : core.block_idx + 1])
    flag(core, "MTE2", "MTE3")
    core.tstore(out[row : row + 1], tile)
    core.pipe_sync()


clash = False


def test_blocks_have_their_own_parts():
    global clash
    for clash in (False, True):
        run = launch(
            lambda rt, x, out: rt.submit(aiv0=spread, args=[npu.IN(x), npu.OUT(out)], block_num=8) and None, X, ZERO
        )
        assert ("race" in kinds(run)) is clash
        if clash:
            assert (
                "block 1 writes elements of 'out' (8x8 f32) that block 0 of the same task wrote"
                in run.findings[0].message
            )
        else:
            assert np.array_equal(run.outputs["out"], X)
    clash = False


def add_rows(core, x, out):
    tile = core.alloc("UB", (1, 8))
    core.tload(tile, x[core.block_idx : core.block_idx + 1])
    flag(core, "MTE2", "MTE3")
    store = core.tstore if plain else core.tstore_add
    store(out[:1], tile)
    core.pipe_sync()


plain = False


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_may_all_add_to_the_same_elements(schedule):
    global plain
    for plain in (False, True):
        run = launch(
            lambda rt, x, out: rt.submit(aiv0=add_rows, args=[npu.IN(x), npu.INOUT(out)], block_num=8) and None,
            X,
            ZERO,
            schedule=schedule,
        )
        assert kinds(run) == (["race"] if plain else [])
    plain = False
    assert np.array_equal(launch(adding, X, ZERO).outputs["out"][0], X.sum(axis=0))
    assert "argument-direction" in kinds(launch(adding_to_an_output, X, ZERO))


def adding(rt, x, out):
    rt.submit(aiv0=add_rows, args=[npu.IN(x), npu.INOUT(out)], block_num=8)


def adding_to_an_output(rt, x, out):
    rt.submit(aiv0=add_rows, args=[npu.IN(x), npu.OUT(out)], block_num=8)


@pytest.mark.parametrize("apart", [True, False])
def test_two_vector_lanes_that_write_the_same_rows(apart):
    def kernel(core, out):
        tile = core.alloc("UB", (4, 8))
        core.texpands(tile, 1.0)
        flag(core, "V", "MTE3")
        first = 4 * core.sub_block_id if apart else 3 * core.sub_block_id
        core.tstore(out[first : first + 4], tile)
        core.pipe_sync()

    run = launch(lambda rt, out: rt.submit(aiv=kernel, args=[npu.OUT(out)]) and None)
    assert kinds(run) == ([] if apart else ["output-unwritten", "race"])


def test_values_read_back_order_what_is_submitted_later():
    def orchestrate(rt, out):
        a = rt.tensor((8, 8), "f32", "a")
        rt.submit(aiv0=fill(3.0), args=[npu.OUT(a)])
        assert rt.read(a, 1, 1) == 3.0
        with rt.scope(manual=True):
            # the orchestrator has seen the first task's result, so this one cannot come before it
            rt.submit(aiv0=copy, args=[npu.IN(a), npu.OUT(out)])

    run = launch(orchestrate)
    assert run.findings == []
    assert (run.outputs["out"] == 3).all()


def test_predicates_skip_tasks():
    def orchestrate(rt, choice, out):
        rt.submit(aiv0=fill(1.0), args=[npu.INOUT(out)], predicate=choice[0])
        rt.submit(aiv0=fill(2.0), args=[npu.INOUT(out)], predicate=choice[1])

    run = launch(orchestrate, np.array([1, 0], np.int32), ZERO)
    assert run.findings == []
    assert (run.outputs["out"] == 1).all()


def many(rt, out, count, scoped):
    for i in range(count):
        if scoped:
            with rt.scope():
                rt.submit(aiv0=fill(float(i)), args=[npu.INOUT(out)])
        else:
            rt.submit(aiv0=fill(float(i)), args=[npu.INOUT(out)])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_full_ring_waits_and_is_no_finding(schedule):
    run = launch(lambda rt, out: many(rt, out, 20, True), changes={"tasks.window": 4}, schedule=schedule)
    assert run.findings == []
    assert run.metrics["rings"][0]["stalls"] > 0
    assert (run.outputs["out"] == 19).all()


def test_a_ring_that_cannot_drain_is_proved_with_the_sizes_that_work():
    def orchestrate(rt, out):
        with rt.scope():
            many(rt, out, 20, False)

    run = launch(orchestrate, changes={"tasks.window": 4})
    assert run.status == "deadlocked"
    (finding,) = run.findings
    assert finding.kind == "ring-deadlock"
    assert "ring 1, which is full (4 of 4 task slots)" in finding.message
    assert "the oldest, task 0 (fill_0.0), belongs to the scope opened at" in finding.message
    assert "the smallest sizes that work are tasks.window = 20" in finding.hint
    assert launch(orchestrate, changes={"tasks.window": 20}).findings == []
    assert launch(orchestrate, changes={"tasks.window": 19}).status == "deadlocked"


def test_heap_and_dependence_pool_are_rings_too():
    def orchestrate(rt, out):
        for i in range(10):
            rt.submit(aiv0=fill(float(i)), args=[npu.CREATE((8, 8), "f32", f"a{i}")])

    run = launch(orchestrate, changes={"tasks.heap": 4096})
    assert "tasks.heap = 10240" in run.findings[0].hint
    assert launch(orchestrate, changes={"tasks.heap": 10240}).findings == []

    def chained(rt, out):
        many(rt, out, 10, False)

    run = launch(chained, changes={"tasks.dependences": 5})
    assert "tasks.dependences = 9" in run.findings[0].hint
    assert launch(chained, changes={"tasks.dependences": 9}).findings == []


@pytest.mark.parametrize(
    ("submit", "told"),
    [
        (lambda rt, t: rt.submit(args=[]), "a task needs a kernel"),
        (lambda rt, t: rt.submit(aiv0=copy, args=[t]), "needs a direction: IN(t), OUT(t) or INOUT(t)"),
        (lambda rt, t: npu.IN(np.zeros((64, 64))), "Arrays become tensors as arguments of the launch"),
        (lambda rt, t: rt.submit(aiv0=copy, args=[npu.IN(t)] * 33), "a task takes at most 32 and 16"),
        (lambda rt, t: rt.submit(aiv0=copy, args=[1] * 17), "a task takes at most 32 and 16"),
        (lambda rt, t: rt.submit(aiv0=copy, block_num=49, sync_start=True), "the chip has 48 AIVs"),
        (lambda rt, t: rt.submit(aiv=copy, block_num=25, sync_start=True), "the chip has 24 clusters"),
        (lambda rt, t: rt.submit(aic=copy, block_num=25, sync_start=True), "the chip has 24 clusters"),
        (lambda rt, t: rt.submit(aiv0=copy, block_num=0), "a task has at least one block"),
        (lambda rt, t: rt.submit(aiv0=copy, block_num=1 << 40), "1 lanes has at most 32,767 blocks"),
        (lambda rt, t: rt.submit(aic=copy, aiv=copy, block_num=10923), "3 lanes has at most 10,922 blocks"),
        (lambda rt, t: rt.submit(aic=copy, aiv=copy, block_num=np.int16(30000)), "3 lanes has at most 10,922 blocks"),
        (lambda rt, t: rt.submit(aiv0=copy, args=[npu.CREATE((-1, 8))]), "a sequence of whole numbers from 0 on"),
        (lambda rt, t: rt.submit(aiv0=copy, predicate=t), "one element of a tensor is wanted"),
        (
            lambda rt, t: rt.submit(aic=copy, aiv=copy, args=[rt.fifo("f", "to_aiv", (3, 8))]),
            "cannot share 3 rows evenly",
        ),
        (lambda rt, t: rt.submit(aiv0=lambda core: rt.submit(aiv0=copy)), "a kernel cannot speak to the runtime"),
        (lambda rt, t: rt.submit(aiv0=3), "unknown kernel number 3; known: none"),
        (lambda rt, t: t[9], "index 9 of axis 0 of 'out' (8x8 f32), which has 8 there"),
    ],
)
def test_submits_without_meaning(submit, told):
    run = launch(lambda rt, out: submit(rt, out) and None)
    assert run.status == "failed"
    assert told in run.findings[0].message
    assert run.findings[0].where.file == __file__


def test_as_many_blocks_as_there_may_be():
    def nothing(core):
        pass

    run = launch(lambda rt, out: rt.submit(aiv0=nothing, block_num=32767) and None)
    assert [finding.kind for finding in run.findings] == []


def test_sync_start_that_fits():
    run = launch(
        lambda rt, x, out: (
            rt.submit(aiv0=spread, args=[npu.IN(x), npu.OUT(out)], block_num=8, sync_start=True) and None
        ),
        X,
        ZERO,
    )
    assert run.safe


def test_sub_block_ids():
    def kernel(core, out):
        tile = core.alloc("UB", (4, 8))
        core.texpands(tile, float(core.sub_block_id))
        flag(core, "V", "MTE3")
        first = 4 * core.sub_block_id
        core.tstore(out[first : first + 4], tile)
        core.pipe_sync()

    run = launch(lambda rt, out: rt.submit(aiv=kernel, args=[npu.OUT(out)]) and None)
    assert run.findings == []
    assert run.outputs["out"][:, 0].tolist() == [0] * 4 + [1] * 4


def test_arrays_of_other_types_are_refused_by_name():
    with pytest.raises(MisuseError, match="argument out: unknown element type 'float64'"):
        launch(lambda rt, out: None, np.zeros(3))


def test_launch_takes_only_what_fits():
    from kernbench.common.errors import MachineError, MisuseError

    with pytest.raises(MisuseError, match="schedule 'sideways'"):
        launch(lambda rt, out: None, schedule="sideways")
    with pytest.raises(MisuseError, match="2 arguments"):
        launch(lambda rt, out: None, X, X)
    with pytest.raises(MachineError, match="unknown chip 'a6'"):
        npu.Chip("a6")
    with pytest.raises(MachineError, match="unknown chip key"):
        npu.Chip("a5", {"tasks.windows": 3})


def test_a_chip_file_extends_another(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "a5"\nname = "mine"\n[tasks]\nwindow = 7\n')
    chip = npu.Chip(file)
    assert chip.machine.tasks.window == 7
    assert chip.machine.clusters.count == 36
    file.write_text('extends = "a5"\n')
    assert npu.load(file).name == "mine"
    assert npu.load(file).hash == npu.load("a5").hash
    file.write_text(npu.load("a2a3").to_toml())
    assert npu.load(file) == npu.load("a2a3")


def test_a_chip_file_that_is_not_there_or_not_whole(tmp_path):
    from kernbench.common.errors import MachineError

    for missing in (tmp_path / "none.toml", str(tmp_path / "none.toml")):
        with pytest.raises(MachineError, match=r"cannot be read \(No such.*the name of a bundled chip: a2a3, a5"):
            npu.Chip(missing)
    with pytest.raises(MachineError, match="is a directory"):
        npu.Chip(tmp_path)
    with pytest.raises(MachineError, match="unknown chip ''"):
        npu.Chip("")
    part = tmp_path / "part.toml"
    part.write_text('extends = "part.toml"\n')
    assert not npu.is_chip(part)
    with pytest.raises(MachineError, match="goes round in a circle"):
        npu.Chip(part)
    part.write_text('kind = "npu"\n')
    assert npu.is_chip(part)
    with pytest.raises(MachineError, match='begin the file with extends = "a2a3"'):
        npu.Chip(part)


def test_a_tensor_that_no_computer_has_room_for_is_told_with_its_size():
    def kernel(core, x, big):
        core.read(x, 0)

    def orchestrate(rt, x):
        rt.submit(aiv0=kernel, args=[npu.IN(x), npu.CREATE((2**40, 2**40), "f32", "big")])

    run = npu.Chip("a2a3").launch(orchestrate, np.ones(8, np.int32))
    (found,) = (f for f in run.findings if f.kind == "misuse")
    assert "tensor 'big' (1099511627776x1099511627776 f32) has 4,835,703,278,458,516,698,824,704 bytes" in found.message
    assert "heap on chip a2a3 has 268,435,456" in found.message
    assert "make it smaller" in found.hint
    assert found.where.file == __file__


def test_a_tile_before_the_memory_is_told_by_its_beginning():
    def kernel(core, x):
        core.tile("UB", (8, 64), "f32", offset=-64, name="early")

    def orchestrate(rt, x):
        rt.submit(aiv0=kernel, args=[npu.IN(x)])

    run = npu.Chip("a2a3").launch(orchestrate, np.ones(8, np.int32))
    (found,) = run.findings
    assert found.kind == "tile-bounds"
    assert "begins 64 bytes before UB, whose first byte is 0" in found.message


def test_names_that_the_runtime_does_not_have_list_those_it_has():
    (finding,) = npu.Chip("a2a3").launch(lambda rt, out: rt.create((8, 8)), out=ZERO).findings
    assert finding.kind == "misuse"
    assert "unknown name of the runtime 'create'; known: submit, submit_dummy, tensor, fifo, scope" in finding.message
    (finding,) = npu.Chip("a2a3").launch(lambda rt, out: rt.submit(vec=fill(1), args=[npu.OUT(out)]), out=ZERO).findings
    assert "unknown argument of rt.submit 'vec'; known: aic, aiv, aiv0" in finding.message
    (finding,) = npu.Chip("a2a3").launch(lambda rt, out: out.nothing, out=ZERO).findings
    assert finding.kind == "kernel-error"


def test_a_kernel_of_both_vector_cores_that_does_not_share_the_work():
    run = npu.Chip("a2a3").launch(lambda rt, out: rt.submit(aiv=fill(1), args=[npu.OUT(out)]), out=ZERO)
    (finding,) = run.findings
    assert finding.kind == "race"
    assert "core.sub_block_id" in finding.hint
    assert "set_flag" not in finding.hint
