"""Calls through `tl.routine` in launches without data are recorded row for row as if each had run."""

from types import CellType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.mesh.both_ways import launched, same, same_commands

from kernbench import mesh
from kernbench.machine import load
from kernbench.safety.budget import Budget
from kernbench.triton_emu.repeating import folding, routines

SHAPES = ((16, 16), (8, 32), (16, 1), (48, 16))
ROW = 768 * 4


@pytest.fixture(autouse=True, scope="module")
def short_ones_too():
    """Loops of five iterations fold and short calls repeat, so that small kernels show what long ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernbench.triton_emu.repeating.loops.FEWEST", 5)
        patch.setattr("kernbench.triton_emu.repeating.routines.FEWEST_COMMANDS", 1)
        yield


def scaled(tl, factor, x, y):
    tile = tl.load(x, shape=(16, 16))
    tl.store(y + 64 * factor, tl.exp(tile * factor) + tile[:8, :].sum())


class Annotated:
    """With all that any Python from 3.11 to 3.14 keeps for the annotations of a class."""

    factor: float = 2.0


for _name, _held in {"__annotate_func__": lambda form: {}, "__classdictcell__": CellType({"factor": 2.0})}.items():
    if _name not in vars(Annotated):
        setattr(Annotated, _name, _held)


def annotated(tl, kind, x, y):
    tl.store(y, tl.load(x, shape=(16, 16)) * kind.factor)


def summed(tl, count, x):
    total = tl.zeros((16, 16))
    for j in tl.range(count):
        total = total + tl.load(x + j * 1024, shape=(16, 16))
    return total, tl.max(total, axis=1)


def test_what_python_keeps_for_annotations_is_no_state(repeats):
    def kernel(x, y, tl):
        for i in range(12):
            tl.routine(annotated, tl, Annotated, at=(x + i * ROW, y + i * ROW))
            tl.routine(annotated, tl, Annotated(), at=(x + i * ROW, y + i * ROW))

    same(kernel)
    assert len(repeats) > 24


def test_calls_that_differ_in_addresses_are_recorded_without_running(repeats):
    def kernel(x, y, tl):
        for i in range(12):
            tl.routine(scaled, tl, 1 + i % 2, at=(x + i * ROW, y + i * ROW))

    same(kernel)
    # two ranks share what they know: of 24 calls two are recorded in a memory without free blocks, two in one with them
    assert len(repeats) > 12


def test_results_are_handles_like_those_of_a_call(repeats):
    def kernel(x, y, tl):
        before = tl.zeros((16, 16))
        for i in range(10):
            total, largest = tl.routine(summed, tl, 12, at=(x + i * ROW,))
            before = before * largest + total
            tl.store(y + i * ROW, before)

    same(kernel)
    assert repeats


def test_a_view_of_what_was_made_is_a_result(repeats):
    def part(tl, x):
        return tl.load(x, shape=(16, 16))[4:12]

    def kernel(x, y, tl):
        for i in range(10):
            tl.store(y + i * ROW, tl.routine(part, tl, at=(x + i * ROW,)) * 2.0)

    same(kernel)
    assert repeats


def test_with_data_a_routine_is_a_call():
    def doubled(tl, factor, x, y):
        tl.store(y, tl.load(x, shape=(16, 16)) * factor)

    def kernel(x, y, tl):
        for i in range(4):
            tl.routine(doubled, tl, 2.0, at=(x + i * 1024, y + i * 1024))

    host = mesh.Host(load("reference"), ranks=1)
    values = np.arange(1024, dtype=np.float32)
    run = host.launch(kernel, host.replicate(values), host.empty((1024,), "f32"))
    assert not run.findings
    assert np.array_equal(run.outputs["y"], 2 * values)


def masked(tl, rows, x, y, position, first):
    """Hides what lies after a position, as attention with a causal mask does."""
    sees = tl.arange(position, position + rows)[:, None] >= tl.arange(first, first + 16)[None, :]
    tl.store(y, tl.where(sees, tl.load(x, shape=(rows, 16)), 0.0))


def test_positions_are_numbers_that_routines_are_given(repeats):
    def kernel(x, y, tl):
        for i in range(12):
            tl.routine(masked, tl, 16, at=(x + i * ROW, y + i * ROW, 16 * i, 5 * i))

    same(kernel)
    # of 24 calls of two ranks a few run, until the memory has free blocks
    assert len(repeats) > 18


def test_with_data_positions_are_what_they_are():
    def kernel(x, y, tl):
        for i in range(4):
            tl.routine(masked, tl, 16, at=(x + i * 1024, y + i * 1024, 4 * i, 3 * i))

    host = mesh.Host(load("reference"), ranks=1)
    values = np.ones((4, 16, 16), np.float32)
    run = host.launch(kernel, host.replicate(values), host.empty((4, 16, 16), "f32"))
    wanted = [np.tril(np.ones((16, 16)), 4 * i - 3 * i) for i in range(4)]
    assert not run.findings
    assert np.array_equal(run.outputs["y"], wanted)


@pytest.mark.parametrize("further", [1 << 28, -(1 << 28)], ids=["beyond", "before"])
def test_positions_that_no_longer_fit_are_refused_as_if_each_call_had_run(further, repeats):
    def kernel(x, y, tl):
        for i in range(14):
            tl.routine(masked, tl, 16, at=(x + i * ROW, y + i * ROW, i * further, i * further))

    run = same(kernel)
    assert repeats
    assert {finding.kind for finding in run.findings} == {"dtype"}


def test_a_length_that_is_given_is_looked_at(repeats):
    def kernel(x, y, tl):
        for i in range(12):
            tl.routine(longer, tl, at=(y + i * ROW, 4 + i % 3))

    same(kernel)
    assert not repeats


def longer(tl, y, count):
    tl.store(y, tl.arange(count, 2 * count).to("f32"))


class Counter:
    """State that a routine may hide."""

    number = 0


TALLY = Counter()
SEEN = []


def looks_at_its_address(tl, x, y):
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tile if x % (2 * ROW) else tl.exp(tile))


def counts_in_an_object(tl, x, y):
    TALLY.number += 1
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tile if TALLY.number % 3 else tl.exp(tile))


def grows_a_list(tl, x, y):
    SEEN.append(1)
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tile if len(SEEN) % 3 else tl.exp(tile))


def keeps_in_a_default(tl, x, y, kept=[0]):  # noqa: B006
    kept[0] += 1
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tile if kept[0] % 3 else tl.exp(tile))


def keeps_in_an_attribute(tl, x, y):
    keeps_in_an_attribute.calls = getattr(keeps_in_an_attribute, "calls", 0) + 1
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tile if keeps_in_an_attribute.calls % 3 else tl.exp(tile))


def keeps_in_its_context(tl, x, y):
    tl.calls = getattr(tl, "calls", 0) + 1
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tile if tl.calls % 3 else tl.exp(tile))


def looks_where_values_lie(tl, x, y):
    tile = tl.load(x, shape=(16, 16))
    more = tl.exp(tile)
    tl.store(y, more if more.addr % 2048 else tile)


def builds_a_handle(tl, x, y):
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tl.tensor(id="mine", addr=0, shape=(4, 4), dtype="f32") + tile[:4, :4])


def asks_how_far_it_is(tl, x, y):
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tile if len(tl.commands) % 3 else tl.exp(tile))


def asks_who_it_is(tl, x, y):
    tile = tl.load(x, shape=(16, 16))
    tl.store(y, tile if tl.program_id(0) else tl.exp(tile))


def sends(tl, x, y):
    tile = tl.load(x, shape=(16, 16))
    if tl.program_id(0) == 0:
        tl.send(dir="E", src=tile)
    else:
        tile = tl.recv(dir="W", shape=(16, 16), dtype="f32")
    tl.store(y, tile)


def goes_too_far(tl, x, y):
    tl.store(y, tl.load(x, shape=(300, 768)))


def two_of_a_form(tl, x, y):
    first, second = tl.load(x, shape=(16, 16)), tl.load(y, shape=(16, 16))
    tl.store(x, first + second)


@pytest.mark.parametrize("at", [(1, 600), (600, 1), (600, 600), (-1, 1), (1, -1)])
def test_of_accesses_of_one_form_each_is_looked_at(at, repeats):
    """Several in a row lie in one tensor, and are looked up once: one that leaves it is found all the same."""

    def kernel(x, y, tl):
        for i in range(1, 5):
            tl.routine(two_of_a_form, tl, at=(x + i * ROW, x + (i + 5) * ROW))
        tl.routine(two_of_a_form, tl, at=tuple(x + row * ROW for row in at))

    run = same(kernel)
    assert len(repeats) == 6
    assert {finding.kind for finding in run.findings} == {"out-of-bounds"}


def test_accesses_of_one_form_may_go_to_several_tensors(repeats):
    def kernel(x, y, tl):
        for i in range(4):
            tl.routine(two_of_a_form, tl, at=(x + i * ROW, y + i * ROW))
        tl.routine(two_of_a_form, tl, at=(y, x))
        tl.routine(two_of_a_form, tl, at=(y + 2, x))

    run = same(kernel)
    assert {finding.kind for finding in run.findings} == {"misaligned"}
    assert len(repeats) == 8


def loads_at_a_fixed_address(tl, x, y):
    tl.store(y, tl.load((1 << 40) + 64, shape=(16, 16)) + tl.load(x, shape=(16, 16)))


HOSTILE = (
    looks_at_its_address,
    counts_in_an_object,
    grows_a_list,
    keeps_in_a_default,
    keeps_in_an_attribute,
    keeps_in_its_context,
    looks_where_values_lie,
    builds_a_handle,
    asks_how_far_it_is,
    asks_who_it_is,
    sends,
    goes_too_far,
    loads_at_a_fixed_address,
)


def forget():
    TALLY.number = 0
    SEEN.clear()
    keeps_in_a_default.__defaults__[0][0] = 0
    vars(keeps_in_an_attribute).clear()


@pytest.mark.parametrize("function", HOSTILE, ids=lambda function: function.__name__)
def test_a_function_that_knows_more_than_its_arguments_runs(function):
    def kernel(x, y, tl):
        for i in range(14):
            tl.routine(function, tl, at=(x + i * ROW, y + i * ROW))

    recorded = []
    for folds in (True, False):
        forget()
        recorded.append(launched(kernel, folds=folds, rows=310))
    folded, full = recorded
    same_commands(folded.recording, full.recording)
    assert [(f.kind, f.count) for f in folded.findings] == [(f.kind, f.count) for f in full.findings]


def test_arguments_that_differ_in_type_only_are_different():
    def typed(tl, number, x, y):
        tile = tl.load(x, shape=(16, 16))
        tl.store(y, tl.exp(tile) if type(number[0]) is bool else tile)

    def kernel(x, y, tl):
        for i in range(12):
            tl.routine(typed, tl, (True,) if i % 2 else (1,), at=(x + i * ROW, y + i * ROW))

    same(kernel)


def test_a_wrong_prediction_ends_it(monkeypatch, repeats):
    monkeypatch.setattr("kernbench.triton_emu.repeating.template.Predicted.came_true", lambda *_: False)

    def kernel(x, y, tl):
        for i in range(12):
            tl.routine(scaled, tl, 1, at=(x + i * ROW, y + i * ROW))

    same(kernel)
    assert not repeats


def test_the_budget_counts_repeated_commands():
    def kernel(x, y, tl):
        for i in range(100):
            tl.routine(scaled, tl, 1, at=(x + i * ROW, y + i * ROW))

    same(kernel, budget=Budget(steps=150))


def test_templates_are_not_kept_without_end(monkeypatch, repeats):
    monkeypatch.setattr(routines, "MOST_KINDS", 2)

    def kernel(x, y, tl):
        for i in range(40):
            tl.routine(scaled, tl, 1 + i // 8, at=(x + i * ROW, y + i * ROW))

    same(kernel)
    assert repeats


def named(tl, way, x, y):
    tile = tl.load(x, shape=(16, 16))
    for _ in range(3 if way != "short" else 1):
        tile = tile * 2.0 if way == "double" else tl.exp(tile)
    tl.store(y, tile)


def of_a_list(tl, ways, x, y):
    named(tl, ways[0], x, y)


def of_an_option(tl, options, x, y):
    named(tl, options["way"], x, y)


def times(tl, factor, x, y):
    tl.store(y, tl.load(x, shape=(16, 16)) * factor)


CALLS, OF_A_KIND = 24, 2
IN_TURN = {
    "text": (named, ("double", "exp")),
    "texts in a tuple": (of_a_list, (("double", 1), ("exp", 1))),
    "lists": (of_a_list, (["double"], ["exp"])),
    "dictionaries": (of_an_option, ({"way": "double"}, {"way": "exp"})),
    "numbers": (scaled, (1, 2)),
    "floats": (times, (0.5, 2.5)),
    "numbers of several types": (times, (2, 2.0, True)),
    "as many as are kept": (named, tuple(f"way {number}" for number in range(routines.MOST_ALIKE))),
}


@pytest.mark.parametrize("which", IN_TURN)
def test_calls_of_several_kinds_in_turn_repeat(which, repeats):
    """Whatever tells the kinds apart. Of two programs that do the same one watches a kind, and the function is checked
    once: all other calls repeat.
    """
    function, kinds = IN_TURN[which]

    def kernel(x, y, tl):
        for i in range(CALLS):
            tl.routine(function, tl, kinds[i % len(kinds)], at=(x + i * ROW, y + i * ROW))

    assert same(kernel).safe
    assert len(repeats) >= 2 * CALLS - OF_A_KIND * len(kinds)


def test_more_kinds_than_are_kept_run_each_time(repeats):
    """And those that are kept are not more than there may be."""
    kinds = [f"way {number}" for number in range(routines.MOST_ALIKE + 1)]

    def kernel(x, y, tl):
        if tl.program_id(0) == 0:
            for i in range(4 * len(kinds)):
                tl.routine(named, tl, kinds[i % len(kinds)], at=(x + i * ROW, y + i * ROW))

    assert same(kernel).safe
    assert not repeats


def test_a_kind_takes_the_place_of_the_same_one_and_of_the_oldest():
    known = routines.Known()
    for number in (0, 1, 0, *range(2, 20)):
        known.keep((1,), routines.Kind([number], None))
    assert [kind.marks for kind in known.kinds[1,]] == [[number] for number in range(20 - routines.MOST_ALIKE, 20)]
    known.keep((1,), routines.Kind([15], None))
    assert [kind.marks[0] for kind in known.kinds[1,]] == [12, 13, 14, 16, 17, 18, 19, 15]
    assert known.find([(2,), (1,)], [16]) == routines.Kind([16], None)
    assert known.find([(2,), (1,)], [3]) is None


def test_how_many_kinds_there_are_is_counted(monkeypatch):
    monkeypatch.setattr(routines, "MOST_KINDS", 20)
    known = routines.Known()
    for number in range(1000):
        known.keep((number * number % 7,), routines.Kind([number % 11], None))
        assert sum(map(len, known.kinds.values())) <= 20
        assert known.find([(number * number % 7,)], [number % 11])


def test_short_calls_of_one_kind_leave_long_ones_of_another(monkeypatch, repeats):
    monkeypatch.setattr(routines, "FEWEST_COMMANDS", 5)

    def kernel(x, y, tl):
        for i in range(CALLS):
            tl.routine(named, tl, "short" if i % 2 else "long", at=(x + i * ROW, y + i * ROW))

    assert same(kernel).safe
    assert set(repeats) == {5}
    assert len(repeats) >= CALLS - OF_A_KIND


# a step of a random routine: its kind, which values it takes, and a shape
steps = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3), st.sampled_from(SHAPES)), min_size=1, max_size=6)


def body(tl, plan, count, x, y, position, other):
    """What a random plan says; the values it still has."""
    held = [tl.load(x, shape=(16, 16))]
    for kind, which, shape in plan:
        value = held[which % len(held)]
        if kind == 0:
            held.append(tl.load(x + 512 * which, shape=shape))
        elif kind == 1:
            held.append(tl.exp(value))
        elif kind == 2:
            held.append(value[: max(1, value.shape[0] // 2)])
        elif kind == 3 and len(held) > 1:
            held.pop(which % len(held))
        elif kind == 4:
            total = tl.zeros(shape)
            for j in tl.range(count):
                total = total * 2.0 + tl.load(x + j * 3072, shape=shape)
            held.append(total)
        elif kind == 5:
            tl.store(y + 1024 * which, value)
        elif kind == 7:
            # ends that move together, by more than one of the given numbers, or not at all
            first = (position, 2 * position + which, position + other, 5)[which]
            held.append(tl.arange(first, first + shape[0]) >= tl.arange(other, other + 16)[:1])
        elif kind == 8:
            # a length that depends on what is given
            held.append(tl.arange(position, position + 4 + other - 3 * (other // 3)))
        else:
            tl.mul(held[-1], 3.0, out=held[-1]) if held[-1].strides is None and kind == 6 else None
    tl.store(y, held[-1])
    return tuple(held[-1:])


def in_turn(x, y, plans, order, count, tl):
    kept = None
    for i, which in enumerate(order):
        at = x + i * ROW, y + 2 * i * 1024, 64 * i - 100, 7 * which
        (kept,) = tl.routine(body, tl, tuple(plans[which % len(plans)]), count, at=at)
        if which % 3 == 0:
            tl.store(y + i * ROW, tl.exp(tl.load(x, shape=SHAPES[which % 4])))
    del kept


@settings(max_examples=sampled.examples(10, 25), deadline=None, derandomize=True)
@given(
    st.lists(steps, min_size=1, max_size=2),
    st.lists(st.integers(0, 5), min_size=4, max_size=16),
    st.integers(1, 9),
    st.sampled_from(("4 MiB", "24 KiB", "12 KiB")),
)
def test_random_routines_are_recorded_as_if_each_had_run(plans, order, count, scratch):
    same(in_turn, plans, order, count, scratch=scratch)


def test_calls_of_few_commands_run_without_being_watched(monkeypatch, repeats):
    """Of each kind the first is watched; what costs less to run than to compare is only run from then on."""
    monkeypatch.setattr(routines, "FEWEST_COMMANDS", 16)
    watched = []
    recorded = routines.Routines._recorded

    def counted(self, key, *rest):
        watched.append(key)
        return recorded(self, key, *rest)

    monkeypatch.setattr(routines.Routines, "_recorded", counted)

    def kernel(x, y, *, tl):
        for i in range(12):
            tl.routine(scaled, tl, i % 2, at=(x + i * 1024, y + i * 1024))

    same(kernel)
    assert not repeats
    assert len(watched) == len(set(watched)) == 2


def test_a_loop_looks_at_its_own_accesses_only(monkeypatch):
    """A call with many loops: none goes through what the loops before it have loaded."""
    looked = []
    plan = folding.Fold._plan

    def counted(self):
        looked.append(len(self._accesses))
        plan(self)

    monkeypatch.setattr(folding.Fold, "_plan", counted)

    def many(tl, x):
        for n in range(6):
            summed(tl, 8, x + n * 64)

    same(lambda x, y, *, tl: tl.routine(many, tl, at=(x,)))
    assert len(looked) >= 6
    assert set(looked) == {1}
