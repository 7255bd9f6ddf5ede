"""Graphs from lists of edges: in one go, or the edges of some nodes after those of the nodes before them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.timing.graph import (
    Edges,
    GraphBuilder,
    Unlagged,
    graph_of,
    make_graph,
    no_edges,
    with_other_edges,
)


def edges_of(rows):
    columns = np.array(rows, np.int64).reshape(-1, 4)
    kinds = (np.int32, np.int32, np.int32, np.int8)
    return Edges(*(columns[:, i].astype(kind) for i, kind in enumerate(kinds)), np.array([len(rows)]))


def plain(nodes, rows):
    """(target, lag, kind) of each node's edges, in the order in which they are listed."""
    return [[row[1:] for row in rows if row[0] == node] for node in range(nodes)]


def found(graph):
    edges = list(zip(graph.targets.tolist(), graph.lags.tolist(), graph.kinds.tolist(), strict=True))
    return [edges[a:b] for a, b in zip(graph.offsets[:-1].tolist(), graph.offsets[1:].tolist(), strict=True)]


def test_edges_of_a_node_keep_the_order_they_were_put_in():
    sources, targets = np.array([2, 0, 2, 0], np.int32), np.array([3, 1, 1, 3], np.int32)
    graph = make_graph(4, sources, targets, np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int8))
    assert graph.offsets.tolist() == [0, 2, 2, 4, 4]
    assert graph.targets.tolist() == [1, 3, 3, 1]
    assert graph.lags.tolist() == [1, 3, 0, 2]
    assert graph.indegree.tolist() == [0, 2, 0, 2]


def test_a_graph_without_edges():
    empty = np.empty(0, np.int32)
    graph = make_graph(2, empty, empty, empty, empty.astype(np.int8))
    assert (graph.nodes, graph.edges, graph.indegree.tolist()) == (2, 0, [0, 0])


def test_a_list_that_grows_keeps_what_it_has():
    edges = no_edges(2)
    for column, values in zip(edges[:4], ([1, 2], [3, 4], [5, 6], [7, 8]), strict=True):
        column[:] = values
    edges.filled[0] = 2
    grown = edges.grown()
    assert len(grown.sources) == 4
    assert [column[:2].tolist() for column in grown[:4]] == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert grown.filled[0] == 2


@settings(max_examples=sampled.examples(30, 60))
@given(st.data())
def test_a_graph_put_together_group_by_group_is_the_one_of_the_whole_list(data):
    """Each group has a node of its own besides, which comes after all groups, as the start of a program does."""
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    nodes = sum(sizes) + len(sizes)
    builder, later, rows = GraphBuilder(nodes, data.draw(st.integers(0, 3))), [], []
    first = 0
    for group, size in enumerate(sizes):
        edge = st.tuples(st.integers(0, size), st.integers(0, nodes - 1), st.integers(-3, 9), st.integers(0, 8))
        listed = data.draw(st.lists(edge, max_size=8))
        later.append(builder.add(size, edges_of(listed)))
        of_all = sum(sizes) + group
        rows += [(first + source if source < size else of_all, *rest) for source, *rest in listed]
        first += size
    for edges in later:
        builder.add(1, edges)
    graph = builder.graph()
    assert found(graph) == plain(nodes, rows)
    assert graph.indegree.tolist() == [sum(row[1] == node for row in rows) for node in range(nodes)]
    whole = make_graph(nodes, *edges_of(rows)[:4])
    assert found(whole) == found(graph)


def unlagged(rows):
    columns = np.array(rows, np.int64).reshape(-1, 3)
    return Unlagged(*(columns[:, i].astype(kind) for i, kind in enumerate((np.int32, np.int32, np.int8))))


def last_first(works):
    for work in reversed(list(works)):
        work()


@settings(max_examples=60)
@given(st.data())
def test_a_graph_of_several_lists_is_that_of_one_and_may_be_given_other_edges_at_its_end(data):
    """Lists that are apart have nodes of their own."""
    size, groups = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 3))
    nodes = size * groups + data.draw(st.integers(1, 4))
    apart = []
    for group in range(groups):
        own = st.integers(group * size, group * size + size - 1)
        apart.append(data.draw(st.lists(st.tuples(own, own, st.integers(0, 9)), max_size=6)))
    everywhere = st.integers(0, nodes - 1)
    others = [data.draw(st.lists(st.tuples(everywhere, everywhere, st.integers(0, 9)), max_size=6)) for _ in range(2)]
    graph = graph_of(nodes, list(map(unlagged, apart)), list(map(unlagged, others)), last_first)
    rows = [(source, target, 0, kind) for part in (*apart, *others) for source, target, kind in part]
    assert found(graph) == plain(nodes, rows)
    assert graph.indegree.tolist() == [sum(row[1] == node for row in rows) for node in range(nodes)]
    first = data.draw(everywhere)
    behind = st.tuples(st.integers(first, nodes - 1), everywhere, st.integers(0, 9))
    new = [data.draw(st.lists(behind, max_size=6)) for _ in range(2)]
    changed = with_other_edges(graph, first, list(map(unlagged, new)))
    rows = [row for row in rows if row[0] < first]
    rows += [(source, target, 0, kind) for part in new for source, target, kind in part]
    assert found(changed) == plain(nodes, rows)
    assert changed.indegree.tolist() == [sum(row[1] == node for row in rows) for node in range(nodes)]
