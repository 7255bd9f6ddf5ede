"""Order between tasks against a slow, obvious check: random tasks on one buffer, conflicts by looking at all pairs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.npu.small import flag, kinds

from kernbench import npu

ROWS = 6
HAZARDS = {"missing-dependence", "write-after-read", "race"}


@st.composite
def task_lists(draw):
    """Tasks (direction, first row, rows, dependences on earlier ones)."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        first = draw(st.integers(0, ROWS - 1))
        direction = draw(st.sampled_from(["IN", "OUT", "INOUT"]))
        deps = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        found.append((direction, first, draw(st.integers(1, ROWS - first)), deps))
    return found


def kernel_of(direction, rows):
    def kernel(core, part):
        tile = core.alloc("UB", (rows, 8))
        if direction == "OUT":
            core.texpands(tile, 1.0)
            flag(core, "V", "MTE3")
        else:
            core.tload(tile, part)
            flag(core, "MTE2", "MTE3")
        if direction != "IN":
            core.tstore(part, tile)
        core.pipe_sync()

    kernel.__name__ = f"{direction}{rows}"
    return kernel


def launch(tasks, manual, **options):
    def orchestrate(rt, x):
        with rt.scope(manual=manual):
            submitted = []
            for direction, first, rows, deps in tasks:
                arg = getattr(npu, direction)(x[first : first + rows])
                given = [submitted[d] for d in deps] if manual else []
                submitted.append(rt.submit(aiv0=kernel_of(direction, rows), args=[arg], deps=given))

    return npu.Chip("a2a3").launch(orchestrate, np.ones((ROWS, 8), np.float32), **options)


def conflicts(tasks, dependences):
    """Whether two tasks touch the same row, one writing, with no way from one to the other."""
    ancestors = []
    for deps in dependences:
        ancestors.append(set(deps).union(*(ancestors[d] for d in deps)))
    for j, (b, first_b, rows_b, _) in enumerate(tasks):
        for i, (a, first_a, rows_a, _) in enumerate(tasks[:j]):
            meet = first_a < first_b + rows_b and first_b < first_a + rows_a
            if meet and (a != "IN" or b != "IN") and i not in ancestors[j]:
                return True
    return False


@settings(max_examples=sampled.examples(50, 150))
@given(task_lists(), st.sampled_from(["canonical", "reversed", 0, 1]))
def test_hazards_of_a_manual_scope_are_all_found(tasks, schedule):
    run = launch(tasks, True, schedule=schedule)
    assert bool(HAZARDS & set(kinds(run))) is conflicts(tasks, [t[3] for t in tasks])


@settings(max_examples=sampled.examples(40, 100))
@given(task_lists(), st.sampled_from(["canonical", "reversed", 0, 1]))
def test_the_tensor_map_leaves_only_what_it_says(tasks, schedule):
    tracked = launch(tasks, False, schedule=schedule, track_war=True)
    assert not HAZARDS & set(kinds(tracked))
    run = launch(tasks, False, schedule=schedule)
    assert bool(HAZARDS & set(kinds(run))) is conflicts(tasks, [t.dependences for t in run.recording.tasks])
    for number, (direction, first, rows, _) in enumerate(tasks):
        # a reader waits for every earlier writer that nobody has overwritten since
        for i, (other, other_first, other_rows, _) in enumerate(tasks[:number]):
            meet = other_first < first + rows and first < other_first + other_rows
            covered = any(
                d == "INOUT" and f <= other_first and other_first + other_rows <= f + r
                for d, f, r, _ in tasks[i + 1 : number]
            )
            waits = i in run.recording.tasks[number].dependences
            assert waits is (direction != "OUT" and other != "IN" and meet and not covered)
