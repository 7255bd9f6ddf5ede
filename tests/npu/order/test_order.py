"""Order over pipes: every kind of mistake planted and found with both lines; the same kernel without it is passed."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of, run_kernel

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
    core.pipe_sync()


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
        core.pipe_sync()

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
        core.pipe_sync()

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
        core.pipe_sync()

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
        core.pipe_sync()

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
        core.pipe_sync()

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["missing-barrier"]


def test_independent_vector_operations_need_none():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.texpands(x, 1.0)
        core.texpands(y, 2.0)
        flag(core, "V", "MTE3")
        core.tstore(out, y)
        core.pipe_sync()

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
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert run.safe is back
    assert back or kinds(run) == ["race"]


def test_a_flag_that_is_never_set_is_a_deadlock():
    def kernel(core, a, out):
        x, _ = two_tiles(core)
        core.tload(x, a)
        core.wait_flag("MTE2", "MTE3", 3)
        core.tstore(out, x)
        core.pipe_sync()

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
        core.pipe_sync()

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["deadlock", "flag-misuse", "race"]


def test_a_flag_nobody_waits_for_is_left_over():
    def kernel(core, a, out):
        x, _ = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)
        core.set_flag("MTE3", "MTE2", 0)
        core.pipe_sync()

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
        core.pipe_sync()

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
        core.pipe_sync()

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
        core.pipe_sync()

    assert "comes before its set" in found(run_kernel(kernel, A, out=OUT), "flag-misuse").message


def test_barrier_of_all_pipes():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.tload(x, a)
        core.pipe_barrier("ALL")
        core.texp(y, x)
        core.pipe_barrier("ALL")
        core.tstore(out, y)
        core.pipe_sync()

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
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert run.safe
    assert (run.outputs["out"] == A[2, 3]).all()


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
