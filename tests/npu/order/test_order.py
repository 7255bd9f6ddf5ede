"""Order over pipes: every kind of mistake planted and found with both lines; the same kernel without it is passed."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of, run_kernel

from kernbench import npu

A = np.arange(128, dtype=np.float32).reshape(8, 16) / 64
OUT = np.zeros((8, 16), np.float32)


def found(run, kind):
    return next(f for f in run.findings if f.kind == kind)


def two_tiles(core):
    return core.tile("UB", (8, 16), "f32", 0, name="x"), core.tile("UB", (8, 16), "f32", 0x200, name="y")


def clean(core, a, out):
    x, y = two_tiles(core)
    core.tload(x, a)
    flag(core, "MTE2", "V")
    core.texp(y, x)
    core.pipe_barrier("V")
    core.tadd(y, y, x)
    flag(core, "V", "MTE3")
    core.tstore(out, y)


def test_a_clean_kernel_is_safe():
    run = run_kernel(clean, A, out=OUT)
    assert run.safe
    assert run.findings == []
    assert np.array_equal(run.outputs["out"], np.exp(A) + A)


def test_a_missing_flag_is_a_race_with_both_lines_and_tiles():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        core.texp(y, x)
        flag(core, "V", "MTE3")
        core.tstore(out, y)

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ["race"]
    finding = run.findings[0]
    assert "texp on pipe V of aiv0 reads 'x' (8x16 f32 at UB 0x0)" in finding.message
    assert "tload on pipe MTE2 of aiv0 before it writes it" in finding.message
    assert finding.where.line == line_of(kernel, "texp")
    assert finding.others[0].where.line == line_of(kernel, "tload")
    assert "set_flag(MTE2, V, event)" in finding.hint
    # the numbers are those of program order: only the order shows the mistake
    assert np.array_equal(run.outputs["out"], np.exp(A))


def test_a_flag_between_other_pipes_does_not_help():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.texp(y, x)
        flag(core, "V", "MTE3")
        core.tstore(out, y)

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["race"]


def test_order_through_a_third_pipe_counts():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        flag(core, "MTE3", "V")
        core.texp(y, x)
        flag(core, "V", "MTE3", 1)
        core.tstore(out, y)

    assert run_kernel(kernel, A, out=OUT).safe


def test_dependent_vector_operations_need_a_barrier():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "V")
        core.texp(y, x)
        core.tadd(y, y, x)
        flag(core, "V", "MTE3")
        core.tstore(out, y)

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ["missing-barrier"]
    assert run.findings[0].where.line == line_of(kernel, "tadd")
    assert "pipe_barrier(V)" in run.findings[0].hint


def test_write_after_read_between_vector_operations_needs_a_barrier():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "V")
        core.texp(y, x)
        core.texpands(x, 0.0)
        flag(core, "V", "MTE3")
        core.tstore(out, y)

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["missing-barrier"]


def test_independent_vector_operations_need_none():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.texpands(x, 1.0)
        core.texpands(y, 2.0)
        flag(core, "V", "MTE3")
        core.tstore(out, y)

    assert run_kernel(kernel, A, out=OUT).safe


@pytest.mark.parametrize("back", [True, False])
def test_a_buffer_used_again_needs_a_flag_back(back):
    def kernel(core, a, out):
        x, y = two_tiles(core)
        for round in range(2):
            core.tload(x, a)
            flag(core, "MTE2", "V", round)
            core.texp(y, x)
            flag(core, "V", "MTE3", round)
            core.tstore(out, y)
            if round == 0 and back:
                flag(core, "V", "MTE2", 2)
                flag(core, "MTE3", "V", 2)

    run = run_kernel(kernel, A, out=OUT)
    assert run.safe is back
    assert back or kinds(run) == ["race"]


def test_a_flag_that_is_never_set_is_a_deadlock():
    def kernel(core, a, out):
        x, _ = two_tiles(core)
        core.tload(x, a)
        core.wait_flag("MTE2", "MTE3", 3)
        core.tstore(out, x)

    run = run_kernel(kernel, A, out=OUT)
    assert run.status == "deadlocked"
    finding = found(run, "deadlock")
    assert "pipe MTE3 of aiv0 waits for ever: flag (MTE2 -> MTE3, event 3) is never set" in finding.message
    assert finding.where.line == line_of(kernel, "wait_flag")


def test_a_flag_of_another_event_is_a_deadlock_and_left_over():
    def kernel(core, a, out):
        x, _ = two_tiles(core)
        core.tload(x, a)
        core.set_flag("MTE2", "MTE3", 1)
        core.wait_flag("MTE2", "MTE3", 2)
        core.tstore(out, x)

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["deadlock", "flag-misuse", "race"]


def test_a_flag_nobody_waits_for_is_left_over():
    def kernel(core, a, out):
        x, _ = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)
        core.set_flag("MTE3", "MTE2", 0)

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ["flag-misuse"]
    assert "nobody waits for it" in run.findings[0].message


def test_a_flag_set_twice_before_its_wait():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        core.set_flag("MTE2", "MTE3", 0)
        core.tload(y, a)
        core.set_flag("MTE2", "MTE3", 0)
        core.wait_flag("MTE2", "MTE3", 0)
        core.tstore(out, x)

    run = run_kernel(kernel, A, out=OUT)
    assert "flag-misuse" in kinds(run)
    assert "it was set before and not waited for in between" in found(run, "flag-misuse").message


@pytest.mark.parametrize("back", [True, False])
def test_an_event_used_again_before_its_wait_is_known_to_have_happened(back):
    """In the program the wait comes between the sets; the pipes may still meet set, set, wait."""

    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "V")
        core.tabs(x, x)
        if back:
            flag(core, "V", "MTE2", 1)
        core.tload(y, a)
        flag(core, "MTE2", "V")
        core.tabs(y, y)
        flag(core, "V", "MTE3")
        core.tstore(out, y)

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ([] if back else ["flag-misuse"])
    if not back:
        assert "may not have happened yet" in run.findings[0].message


def test_a_wait_before_its_set_in_the_program():
    def kernel(core, a, out):
        x, _ = two_tiles(core)
        core.tload(x, a)
        core.wait_flag("MTE2", "MTE3", 0)
        core.set_flag("MTE2", "MTE3", 0)
        core.tstore(out, x)

    assert "comes before its set" in found(run_kernel(kernel, A, out=OUT), "flag-misuse").message


def test_barrier_of_all_pipes():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        core.pipe_barrier("ALL")
        core.texp(y, x)
        core.pipe_barrier("ALL")
        core.tstore(out, y)

    assert run_kernel(kernel, A, out=OUT).safe


def test_a_value_read_by_the_program_orders_what_it_issues_later():
    def kernel(core, a, out):
        x, _ = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "S")
        value = core.get(x, 2, 3)
        core.texpands(x, value)
        flag(core, "V", "MTE3")
        core.tstore(out, x)

    run = run_kernel(kernel, A, out=OUT)
    assert run.safe
    assert (run.outputs["out"] == A[2, 3]).all()


def test_tiles_past_the_end_of_their_memory():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 192 * 1024 - 256, name="x")
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ["tile-bounds"]
    assert "ends at byte 0x30100 of UB, which has 0x30000 (192 KiB)" in run.findings[0].message
    assert run_kernel(kernel, A, out=OUT, chip="a5").safe


def test_the_allocator_is_checked():
    def kernel(core, a, out):
        for _ in range(3):
            core.alloc("L0A", (128, 128), "bf16")

    run = run_kernel(kernel, A, out=OUT, lane="aic")
    assert "tile-bounds" in kinds(run)


def test_misaligned_tiles():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 16)
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["misaligned"]


@pytest.mark.parametrize("place", [256, 0])
def test_live_tiles_that_overlap(place):
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        y = core.tile("UB", (8, 16), "f32", place, name="y")
        core.tload(x, a)
        flag(core, "MTE2", "V")
        core.texpands(y, 1.0)
        flag(core, "V", "MTE3")
        core.tstore(out, x)

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ["tile-overlap"]
    assert f"what lies there was written as 'y' (8x16 f32 at UB {place:#x})" in run.findings[0].message


def test_a_tile_placed_again_is_the_same_tile():
    def kernel(core, a, out):
        core.tload(core.tile("UB", (8, 16), "f32", name="x"), a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, core.tile("UB", (8, 16), "f32", name="x"))

    assert run_kernel(kernel, A, out=OUT).safe


def test_each_kernel_has_its_own_names_for_one_place():
    def first(core, a, out):
        x = core.tile("UB", (8, 16), "f32", name="first")
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)

    def second(core, a, out):
        core.tstore(out, core.tile("UB", (8, 16), "f32", name="second"))

    def orchestrate(rt, a, out):
        (b,) = rt.submit(aiv0=first, args=[npu.IN(a), npu.CREATE((8, 16), "f32", "b")]).outputs
        rt.submit(aiv0=second, args=[npu.IN(b), npu.OUT(out)])

    run = npu.Chip("a2a3").launch(orchestrate, A, OUT)
    assert kinds(run) == ["uninitialised-read"]
    assert "reads 'second' (8x16 f32 at UB 0x0)" in run.findings[0].message


def test_dead_tiles_and_views_may_overlap():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        core.tload(x, a)
        flag(core, "MTE2", "V")
        core.texpands(x.rows(4, 4), 1.0)
        core.tmuls(x.rows(0, 4).view(valid=(4, 8)), x.rows(0, 4).view(valid=(4, 8)), 2.0)
        flag(core, "V", "MTE3")
        core.tstore(out, x.reshape(8, 16))
        flag(core, "MTE3", "V", 1)
        other = core.tile("UB", (4, 8), "f32", 0, name="other")
        core.texpands(other, 3.0)

    run = run_kernel(kernel, A, out=OUT)
    assert run.safe
    want = A.copy()
    want[:4, :8] *= 2
    want[4:] = 1
    assert np.array_equal(run.outputs["out"], want)


def test_uninitialised_tiles_by_the_byte():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        core.tload(x.view(valid=(8, 13)), a[:, :13])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:, :width], x.view(valid=(8, width)))

    for width in (13, 14):
        run = run_kernel(kernel, A, out=OUT)
        assert ("uninitialised-read" in kinds(run)) is (width == 14)


def test_memory_is_fresh_in_every_block():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        if core.block_idx == 0:
            core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        if core.block_idx == 1:
            core.tstore(out, x)

    run = run_kernel(kernel, A, out=OUT, blocks=2)
    assert kinds(run) == ["uninitialised-read"]
    assert "block 1" in run.findings[0].message
    assert np.isnan(run.outputs["out"]).all()


@pytest.mark.parametrize("ordered", [True, False])
def test_device_memory_written_and_read_in_one_block(ordered):
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.texpands(x, 2.0)
        flag(core, "V", "MTE3")
        core.tstore(out, x)
        if ordered:
            flag(core, "MTE3", "MTE2")
        core.tload(y, out)
        flag(core, "MTE2", "MTE3")

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ([] if ordered else ["race"])
    if not ordered:
        assert "touch the same elements of 'out'" in run.findings[0].message


def test_device_memory_of_other_elements_is_no_race():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.texpands(x, 2.0)
        flag(core, "V", "MTE3")
        core.tstore(out[:, :8], x.view(valid=(8, 8)))
        core.tload(y.view(valid=(8, 8)), a[:, 8:])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:, 8:], y.view(valid=(8, 8)))

    assert run_kernel(kernel, A, out=OUT).safe


def test_an_index_from_a_table_says_where_it_came_from():
    table = np.array([[0, 9]], np.int32)

    def kernel(core, a, b, out):
        page = core.read(b, 0, 1)
        x = core.tile("UB", (1, 16), "f32", 0)
        core.tload(x, a[page : page + 1])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:1], x)

    run = run_kernel(kernel, A, table, out=OUT)
    finding = found(run, "out-of-bounds")
    assert (
        "index 9:10 of axis 0 of 'a' (8x16 f32), which has 8 there; the index was read from b[0, 1]" in finding.message
    )
    assert finding.where.line == line_of(kernel, "a[page")
    assert np.isnan(run.outputs["out"][0]).all()


def test_findings_fold_over_rounds_and_blocks():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        for _ in range(5):
            core.tload(x, a)
            core.pipe_barrier("ALL")
            core.texp(y, x)
            core.tabs(y, y)
            core.pipe_barrier("ALL")

    run = run_kernel(kernel, A, out=OUT, blocks=3)
    (finding,) = [f for f in run.findings if f.kind == "missing-barrier"]
    assert finding.count == 15


def test_a_kernel_that_does_not_stop_is_stopped():
    from kernbench.safety.budget import Budget

    def kernel(core, a, out):
        while True:
            core.pipe_barrier("V")

    run = run_kernel(kernel, A, out=OUT, budget=Budget(steps=1000, seconds=0.2))
    assert run.status == "over budget"
    assert "without an end in sight in task 0 (kernel)" in run.findings[0].message
    # it is stopped wherever it stands when the time is over
    assert run.findings[0].where.line in (line_of(kernel, "while True"), line_of(kernel, "pipe_barrier"))
    assert npu.Chip("a2a3").launch(lambda rt: None).status == "finished"


def test_a_kernel_that_catches_what_would_stop_it_is_left_where_it_stands():
    from kernbench.safety.budget import Budget

    def kernel(core, a, out):
        while True:
            try:
                rounds = 0
                while True:
                    rounds += 1
            except BaseException:
                pass

    run = run_kernel(kernel, A, out=OUT, budget=Budget(seconds=0.1))
    assert run.status == "over budget"
    # the loop is two lines
    assert line_of(kernel, "rounds += 1") - run.findings[0].where.line in (0, 1)


def test_a_kernel_whose_call_runs_nothing_is_told():
    def kernel(core, a, out):
        core.tload(core.tile("UB", (8, 16), "f32"), a)
        yield

    def orchestrate(rt, a):
        yield rt.submit(aiv0=kernel, args=[npu.IN(a)])

    run = run_kernel(kernel, A, out=OUT)
    assert run.status == "failed"
    assert (run.findings[0].kind, run.findings[0].where.line) == ("misuse", line_of(kernel, "def kernel"))
    assert "has a yield in it" in run.findings[0].message
    assert kinds(npu.Chip("a2a3").launch(orchestrate, A)) == ["misuse"]


def test_errors_of_the_kernel_itself_are_findings():
    def kernel(core, a, out):
        {}["missing"]

    run = run_kernel(kernel, A, out=OUT)
    assert run.status == "failed"
    assert kinds(run) == ["kernel-error"]
    assert run.findings[0].where.line == line_of(kernel, "missing")


def test_a_kernel_that_stops_half_way_is_not_blamed_for_its_flags():
    def kernel(core, a, out):
        core.set_flag("MTE2", "V", 0)
        raise RuntimeError("enough")

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["kernel-error"]


def reduce_nothing(core):
    core.trowmax(core.alloc("UB", (8, 1), layout="col"), core.alloc("UB", (8, 16), valid=(8, 0)))


def gather_outside(core):
    values, indices = core.alloc("UB", (8, 16)), core.alloc("UB", (8, 16), "i32")
    core.texpands(values, 1.0)
    core.texpands(indices, 99)
    core.pipe_barrier("V")
    core.tgather(values, values, indices)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (lambda core, a, out: core.tload(a, core.alloc("UB", (8, 16))), "tload(dst, tensor, pad=None) got <Tensor"),
        (lambda core, a, out: core.tadd(1, 2, 3), "tadd(dst, a, b) got 1 where something else is wanted"),
        (
            lambda core, a, out: core.tmuls(*[core.alloc("UB", (8, 16))] * 2, 1.0, 2.0),
            "it is called tmuls(dst, a, number)",
        ),
        (
            lambda core, a, out: core.tcmps(core.alloc("UB", (8, 32), "i8"), core.alloc("UB", (8, 32)), 1.0),
            "number, mode",
        ),
        (lambda core, a, out: core.alloc("UB", (8, 16), "f99"), "unknown element type 'f99'"),
        (lambda core, a, out: core.alloc("UB", (8.0, 16)), "a tile has two sizes from 1 on, whole numbers"),
        (lambda core, a, out: core.alloc("UB", (10**6, 10**6)), "larger than any memory"),
        (lambda core, a, out: core.nothing, "unknown operation of a core 'nothing'"),
        (lambda core, a, out: core.tlaod(1, 2), "Did you mean 'tload'?"),
        (lambda core, a, out: core.tile("UB", (8, 16), offset=32.0), "at a whole number of bytes; got offset 32.0"),
        (lambda core, a, out: core.texpands(core.alloc("UB", (8, 32), "i8"), 300), "300 is no number for a tile of i8"),
        (lambda core, a, out: core.tmuls(*[core.alloc("UB", (8, 16))] * 2, "x"), "'x' is no number for a tile of f32"),
        (lambda core, a, out: core.tand(*[core.alloc("UB", (8, 16))] * 3), "tand: its tiles hold whole numbers"),
        (lambda core, a, out: core.get(core.alloc("UB", (8, 16)), -1, 0), "get: element (-1, 0) of"),
        (lambda core, a, out: reduce_nothing(core), "trowmax: a row of no elements has no result"),
        (lambda core, a, out: gather_outside(core), "128 of 128 indices lie outside rows of 16 elements, 99 for one"),
        (lambda core, a, out: a[::-1], "goes forward, by steps from 1 on; got -1"),
        (lambda core, a, out: a[::0], "goes forward, by steps from 1 on; got 0"),
        (lambda core, a, out: core.read(a, 0), "an index for each axis"),
    ],
)
def test_calls_without_meaning_are_told_at_their_line(body, told):
    run = run_kernel(body, A, out=OUT)
    assert run.status == "failed"
    assert told in run.findings[0].message
    assert run.findings[0].where.file == __file__


def test_sizes_read_from_a_tensor_are_sizes():
    lengths = np.array([5], np.int32)

    def kernel(core, a, b, out):
        count = core.read(b, 0)
        x = core.alloc("UB", (8, 16), valid=(count, 16))
        core.tload(x, a[:count])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:count], x)

    run = run_kernel(kernel, A, lengths, out=OUT)
    assert kinds(run) == ["output-unwritten"]
    assert np.array_equal(run.outputs["out"][:5], A[:5])


def test_a_mistake_in_a_function_of_the_kernel_says_which_call_it_was():
    def order(core, event):
        core.set_flag("MTE2", "V", event)
        core.wait_flag("MTE2", "V", event)

    def kernel(core, out):
        order(core, 0)
        order(core, 9)

    run = npu.Chip("a2a3").launch(
        lambda rt, out: rt.submit(aiv0=kernel, args=[npu.OUT(out)]), np.zeros((8, 8), np.float32)
    )
    finding = next(f for f in run.findings if f.kind == "misuse")
    assert finding.where.text.strip() == 'core.set_flag("MTE2", "V", event)'
    assert [(other.role, other.where.text.strip()) for other in finding.others] == [("called from", "order(core, 9)")]


@pytest.mark.parametrize("met", [0, 1])
def test_of_stores_in_one_line_the_one_that_meets_counts(met):
    """The columns of the two stores interleave in memory, so that only their elements tell which one a load meets."""

    def kernel(core, a, out):
        x, y = (core.tile("UB", (8, 8), "f32", place, name=name) for name, place in (("x", 0), ("y", 0x200)))
        core.tload(x, a[:, 0:8])
        flag(core, "MTE2", "MTE3")
        for half in range(2):
            core.tstore(out[:, 8 * half : 8 * half + 8], x)
        core.tload(y, out[:, 8 * met : 8 * met + 8])

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["race"]
