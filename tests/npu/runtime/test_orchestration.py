"""What the runtime offers beside submits: scopes and their limits, dummy tasks, values written by the orchestrator,
initial values, dependences by hand, predicates."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of

from kernbench import npu

ZERO = np.zeros((8, 8), np.float32)
SCHEDULES = ["canonical", "reversed", 1, 2]


def fill(core, out, value):
    tile = core.alloc("UB", (8, 8))
    core.texpands(tile, value)
    flag(core, "V", "MTE3")
    core.tstore(out, tile)
    core.pipe_sync()


def add(core, source, target, value):
    tile = core.alloc("UB", (8, 8))
    core.tload(tile, source)
    flag(core, "MTE2", "V")
    core.tadds(tile, tile, value)
    flag(core, "V", "MTE3")
    core.tstore(target, tile)
    core.pipe_sync()


def add_to(core, target, value):
    add(core, target, target, value)


def launch(orchestrate, *arrays, chip="a2a3", changes=None, **options):
    return npu.Chip(chip, changes).launch(orchestrate, *(arrays or (ZERO,)), **options)


def timed(run, chip="a2a3", **changes):
    return npu.Chip(chip).retime(run, changes).metrics["time_ps"]


def rows_of(core, out):
    tile = core.alloc("UB", (1, 8))
    core.texpands(tile, float(core.block_idx))
    flag(core, "V", "MTE3")
    core.tstore(out[core.block_idx : core.block_idx + 1], tile)
    core.pipe_sync()


@pytest.mark.parametrize(("chip", "aivs"), [("a2a3", 48), ("a5", 72)])
def test_blocks_of_one_vector_lane_start_together_on_all_aivs(chip, aivs):
    def orchestrate(rt, out):
        assert rt.aivs == aivs == 2 * rt.clusters
        rt.submit(aiv0=rows_of, args=[npu.OUT(out)], block_num=rt.aivs, sync_start=True)

    run = launch(orchestrate, np.zeros((aivs, 8), np.float32), chip=chip)
    assert run.findings == []
    assert (run.outputs["out"][:, 0] == np.arange(aivs)).all()
    # all of them at once: the last starts when the first does
    begun = npu.Chip(chip).retime(run, {"tasks.schedulers": 64}).timeline
    stores = [i for i, name in enumerate(begun.name) if begun.names[name] == "tstore"]
    assert len({int(begun.start[i]) for i in stores}) == 1


def test_an_automatic_scope_inside_a_manual_one_is_refused():
    def orchestrate(rt, out):
        with rt.scope(manual=True), rt.scope(manual=True):
            rt.submit(aiv0=fill, args=[npu.OUT(out), 1.0])
            with rt.scope():
                rt.submit(aiv0=fill, args=[npu.OUT(out), 2.0])

    run = launch(orchestrate)
    assert run.status == "failed"
    (finding,) = run.findings
    assert finding.kind == "misuse"
    assert "an automatic scope inside the manual one opened at" in finding.message
    assert finding.where.line == line_of(orchestrate, "with rt.scope():")


@pytest.mark.parametrize(("count", "fits"), [(63, True), (64, False)])
def test_scopes_nest_64_deep_with_the_outermost(count, fits):
    def nest(rt, left):
        if left:
            with rt.scope():
                nest(rt, left - 1)

    run = launch(lambda rt, out: nest(rt, count))
    assert (run.findings == []) is fits
    assert fits or "scopes nest at most 64 deep" in run.findings[0].message


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_dummy_joins_and_forwards_dependences(schedule):
    def orchestrate(rt, a, b, out):
        with rt.scope(manual=True):
            writers = [rt.submit(aiv0=fill, args=[npu.OUT(t), v]) for t, v in ((a, 1.0), (b, 2.0))]
            gate = rt.submit_dummy(deps=writers, name="gate")
            for part, source in ((out[:8], a), (out[8:], b)):
                rt.submit(aiv0=add, args=[npu.IN(source), npu.OUT(part), 10.0], deps=[gate.task_id])

    run = launch(orchestrate, ZERO, ZERO, np.zeros((16, 8), np.float32), schedule=schedule)
    assert run.findings == []
    assert (run.outputs["out"][:8] == 11).all()
    assert (run.outputs["out"][8:] == 12).all()
    assert run.metrics["tasks"] == 4
    # it costs its submit and no core
    assert timed(run) > 5 * 10**6


def test_a_dummy_with_arguments_stands_in_the_tensor_map():
    def orchestrate(rt, a, out):
        rt.submit(aiv0=fill, args=[npu.INOUT(a), 1.0])
        rt.submit_dummy(args=[npu.INOUT(a)], name="barrier")
        rt.submit(aiv0=add, args=[npu.IN(a), npu.OUT(out), 1.0])

    run = launch(orchestrate, ZERO, ZERO)
    assert run.findings == []
    assert [t.dependences for t in run.recording.tasks] == [{}, {0: "reads a"}, {1: "reads a"}]
    assert (run.outputs["out"] == 2).all()


def test_a_dummy_left_out_of_deps_is_found():
    def orchestrate(rt, a, out):
        with rt.scope(manual=True):
            writer = rt.submit(aiv0=fill, args=[npu.OUT(a), 1.0])
            rt.submit_dummy(deps=[writer])
            rt.submit(aiv0=add, args=[npu.IN(a), npu.OUT(out), 1.0])

    assert kinds(launch(orchestrate, ZERO, ZERO)) == ["missing-dependence"]


def read_and_store(core, source, out):
    tile = core.alloc("UB", (8, 8))
    core.texpands(tile, core.read(source, 0))
    flag(core, "V", "MTE3")
    core.tstore(out, tile)
    core.pipe_sync()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_orchestrator_writes_what_later_tasks_read(schedule):
    def orchestrate(rt, x, out):
        rt.submit(aiv0=add_to, args=[npu.INOUT(x), 1.0], name="before")
        rt.write(x, 2, 3, value=100.0)
        rt.submit(aiv0=add, args=[npu.IN(x), npu.OUT(out), 0.0], name="after")

    run = launch(orchestrate, ZERO, ZERO, schedule=schedule)
    assert run.findings == []
    wanted = np.ones((8, 8), np.float32)
    wanted[2, 3] = 100
    assert (run.outputs["out"] == wanted).all()
    assert (run.outputs["x"] == wanted).all()
    # the orchestrator stood still until the first task was done
    starts = {t["name"]: t for t in npu.Chip().retime(run).views["tasks"]}
    assert starts["after"]["ready_ps"] >= starts["before"]["finish_ps"] + 10**6


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_orchestrator_does_not_see_who_only_reads_a_tensor_of_the_host(schedule):
    def orchestrate(rt, x, out):
        rt.submit(aiv0=add, args=[npu.IN(x), npu.OUT(out), 0.0], name="reader")
        rt.write(x, 0, 0, value=1.0)

    run = launch(orchestrate, ZERO, ZERO, schedule=schedule)
    (finding,) = run.findings
    assert finding.kind == "write-after-read"
    assert "the orchestrator writes an element of 'x' (8x8 f32) that task 0 (reader) reads" in finding.message
    assert finding.where.line == line_of(orchestrate, "rt.write")


def test_the_orchestrator_waits_for_readers_of_what_the_runtime_made():
    def orchestrate(rt, out):
        (a,) = rt.submit(aiv0=fill, args=[npu.CREATE((8, 8), name="a"), 1.0]).outputs
        rt.submit(aiv0=add, args=[npu.IN(a), npu.OUT(out), 1.0])
        rt.write(a, 0, 0, value=9.0)

    run = launch(orchestrate)
    assert run.findings == []
    assert (run.outputs["out"] == 2).all()


@pytest.mark.parametrize(
    ("value", "dtype", "told"),
    [(1.5, "i32", "is no value of a tensor of i32"), (2**40, "i32", "is no value"), ("a", "f32", "is no number")],
)
def test_values_that_a_tensor_cannot_hold_are_refused(value, dtype, told):
    run = launch(lambda rt, out: rt.write(rt.tensor((4,), dtype), 0, value=value))
    assert told in run.findings[0].message


def test_initial_values_are_there_before_any_task_and_cost_the_orchestrator():
    def orchestrate(rt, out):
        sums = rt.tensor((8, 8), "f32", "sums", initial_value=5.0)
        (seed,) = rt.submit(aiv0=lambda core, t: None, args=[npu.CREATE((8, 8), initial_value=2)]).outputs
        rt.submit(aiv0=add, args=[npu.IN(sums), npu.OUT(out), rt.read(seed, 0, 0)])

    run = launch(orchestrate)
    assert run.findings == []
    assert (run.outputs["out"] == 7).all()
    slow = timed(run, **{"tasks.fill": "1 MB/s"})
    assert slow - timed(run) == pytest.approx(2 * 256 * 10**6, rel=0.01)


def test_without_an_initial_value_nothing_is_there():
    def orchestrate(rt, out):
        rt.submit(aiv0=add, args=[npu.IN(rt.tensor((8, 8), "f32", "sums")), npu.OUT(out), 0.0])

    assert kinds(launch(orchestrate)) == ["uninitialised-read"]


def test_a_kernel_may_read_an_output_that_has_an_initial_value():
    def kernel(core, made, out):
        add(core, made, out, 1.0)

    def orchestrate(rt, out):
        rt.submit(aiv0=kernel, args=[npu.CREATE((8, 8), initial_value=3.0), npu.OUT(out)])

    run = launch(orchestrate)
    assert run.findings == []
    assert (run.outputs["out"] == 4).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ordered", [True, False])
def test_arguments_without_dependences_are_ordered_by_hand(ordered, schedule):
    def orchestrate(rt, a, out):
        first = rt.submit(aiv0=fill, args=[npu.NO_DEP(a), 1.0])
        second = rt.submit(aiv0=add, args=[npu.NO_DEP(a), npu.OUT(out), 1.0], deps=[first] if ordered else [])
        assert second.record.dependences == ({0: "given as deps"} if ordered else {})

    run = launch(orchestrate, ZERO, ZERO, schedule=schedule)
    if ordered:
        assert run.findings == []
        assert (run.outputs["out"] == 2).all()
    else:
        assert run.findings
        assert set(kinds(run)) <= {"missing-dependence", "write-after-read"}


def test_the_tensor_map_does_not_follow_a_tensor_of_manual_dependences():
    def orchestrate(rt, out):
        made = rt.submit(aiv0=fill, args=[npu.CREATE((8, 8), name="a", manual_dep=True), 1.0])
        (a,) = made.outputs
        second = rt.submit(aiv0=add_to, args=[npu.INOUT(a), 1.0])
        # the maker is waited for; who changed it since is not
        third = rt.submit(aiv0=add, args=[npu.IN(a), npu.OUT(out), 1.0], deps=[second])
        assert second.record.dependences == {0: "made a"}
        assert third.record.dependences == {0: "made a", 1: "given as deps"}

    run = launch(orchestrate)
    assert run.findings == []
    assert (run.outputs["out"] == 3).all()


@pytest.mark.parametrize(("deps", "told"), [([7], "deps: 7 is no task"), (["a"], "deps: 'a' is no task")])
def test_dependences_name_tasks(deps, told):
    run = launch(lambda rt, out: rt.submit(aiv0=fill, args=[npu.OUT(out), 1.0], deps=deps) and None)
    assert told in run.findings[0].message


@pytest.mark.parametrize(
    ("op", "target", "passes"),
    [("eq", 3, 1), ("eq", 4, 0), ("ne", 3, 0), ("ne", 4, 1), ("gt", 3, 0), ("gt", -4, 1), ("lt", 4, 1), ("lt", 3, 0),
     ("ge", 3, 1), ("ge", 4, 0), ("le", 3, 1), ("le", 2, 0)],
)  # fmt: skip
def test_predicates_compare(op, target, passes):
    def orchestrate(rt, gate, out):
        rt.submit(aiv0=fill, args=[npu.INOUT(out), 1.0], predicate=npu.PREDICATE(gate[1], op, target))

    run = launch(orchestrate, np.array([0, 3], np.int32), ZERO)
    assert run.findings == []
    assert (run.outputs["out"] == passes).all()
    assert run.recording.tasks[0].skipped is (not passes)


def write_gate(core, gate):
    tile = core.alloc("UB", (1, 8), "i32")
    core.texpands(tile, 5)
    flag(core, "V", "MTE3")
    core.tstore(gate, tile)
    core.pipe_sync()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_predicate_makes_no_dependence(ordered, schedule):
    def orchestrate(rt, out):
        gate = rt.tensor((1, 8), "i32", "gate", initial_value=0)
        writer = rt.submit(aiv0=write_gate, args=[npu.INOUT(gate)])
        rt.submit(
            aiv0=fill,
            args=[npu.OUT(out), 1.0],
            deps=[writer] if ordered else [],
            predicate=npu.PREDICATE(gate[0, 0], "gt", 4),
        )

    run = launch(orchestrate, schedule=schedule)
    if ordered:
        assert run.findings == []
        assert (run.outputs["out"] == 1).all()
    else:
        assert "missing-dependence" in kinds(run)
        found = next(f for f in run.findings if f.kind == "missing-dependence")
        assert "the predicate of task 2 (fill) looks at an element of 'gate'" in found.message


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda t: npu.PREDICATE(t[0, 0], "gt", 1), "compares an element's bits as a whole number"),
        (lambda t: npu.PREDICATE(t[0], "gt", 1), "one element of a tensor is wanted"),
        (lambda t: npu.PREDICATE(t[0, 0], "above", 1), "unknown comparison of a predicate 'above'"),
        (lambda t: npu.PREDICATE(t[0, 0], "eq", 2**63), "a whole number of 64 bits"),
    ],
)
def test_predicates_without_meaning(make, told):
    run = launch(lambda rt, out: rt.submit(aiv0=fill, args=[npu.OUT(out), 1.0], predicate=make(out)) and None)
    assert run.status == "failed"
    assert told in run.findings[0].message


def test_an_orchestration_that_is_a_generator_is_called_one():
    def orchestrate(rt, x):
        yield rt

    (finding,) = npu.Chip("a2a3").launch(orchestrate, np.zeros((4, 16), np.float32)).findings
    assert finding.message.startswith("the orchestration has a yield in it, so that calling it ran none of its lines")
