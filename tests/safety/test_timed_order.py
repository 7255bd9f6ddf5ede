"""The check of time against the result: planted contradictions are found, and orders that agree are not."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernbench.safety.timed_order import TimedOrder, strided_bytes


def found(*operations):
    order = TimedOrder()
    for number, (kind, touched, begin, end) in enumerate(operations):
        order.operation(f"op {number}", begin, end, **{kind: [("m", np.array(touched))]})
    return [(c.earlier, c.later, c.byte) for c in order.contradictions]


def test_the_second_store_timed_first_is_found():
    assert found(("writes", [4, 5], 1334, 2658), ("writes", [5, 6], 319, 621)) == [("op 0", "op 1", 5)]


def test_a_store_inside_an_earlier_load_is_found():
    assert found(("reads", [1, 2], 0, 10), ("writes", [2], 3, 4)) == [("op 0", "op 1", 2)]


def test_orders_that_agree():
    assert not found(("writes", [1, 2], 0, 10), ("reads", [2], 10, 12), ("writes", [2, 3], 12, 13))
    assert not found(("reads", [1], 0, 10), ("reads", [1], 0, 5), ("writes", [2], 0, 1))


def test_what_adds_has_no_order_but_against_readers_and_writers():
    assert not found(("adds", [1], 5, 10), ("adds", [1], 0, 7))
    assert found(("adds", [1], 5, 10), ("reads", [1], 6, 7)) == [("op 0", "op 1", 1)]
    assert found(("writes", [1], 5, 10), ("adds", [1], 6, 7)) == [("op 0", "op 1", 1)]


def test_memories_are_apart_and_an_operation_may_overwrite_what_it_reads():
    order = TimedOrder()
    order.operation("a", 0, 9, reads=[("m", np.array([1]))], writes=[("m", np.array([1])), ("n", np.array([2]))])
    order.operation("b", 0, 9, writes=[("o", np.array([1]))])
    assert not order.contradictions
    order.operation("c", 3, 9, reads=[("n", np.array([2]))])
    assert [str(c) for c in order.contradictions] == ["c begins at 3, before a ends at 9; both touch byte 2 of n"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["reads", "writes", "adds"]),
            st.lists(st.integers(0, 5), min_size=1, max_size=3),
            st.integers(0, 6),
            st.integers(0, 3),
        ),
        max_size=8,
    )
)
def test_all_pairs_by_sets(drawn):
    operations = [(kind, touched, begin, begin + time) for kind, touched, begin, time in drawn]
    wrong = set()
    for (_, a), (j, b) in combinations(enumerate(operations), 2):
        both = a[0] == b[0] and a[0] != "writes"
        if not both and set(a[1]) & set(b[1]) and a[3] > b[2]:
            wrong.add(j)
    assert {int(later.split()[1]) for _, later, _ in found(*operations)} == wrong


def test_bytes_of_a_strided_tile():
    assert sorted(strided_bytes(8, (2, 2), (16, -4), 2).tolist()) == [4, 5, 8, 9, 20, 21, 24, 25]
