"""Loop nesting in a control-flow graph: cycles within cycles, whether or not they have a single entry."""

from collections.abc import Sequence


def loop_depths(following: Sequence[Sequence[int]]) -> list[int]:
    """For each node the number of loops around it; negative successors are exits of the graph."""
    depths = [0] * len(following)
    pending: list[tuple[set[int], int]] = [(set(range(len(following))), 0)]
    while pending:
        inside, depth = pending.pop()
        for component in _cycles(following, inside):
            for node in component:
                depths[node] = depth + 1
            # what is still a cycle without the entry node is an inner loop
            pending.append((set(component) - {_entered(following, component, inside)}, depth + 1))
    return depths


def loops(following: Sequence[Sequence[int]]) -> list[list[int]]:
    """For each loop the nodes that are in no inner loop, in order; inner loops come after those around them."""
    found: list[list[int]] = []
    pending: list[set[int]] = [set(range(len(following)))]
    while pending:
        inside = pending.pop()
        for component in _cycles(following, inside):
            within = set(component) - {_entered(following, component, inside)}
            deeper = {node for inner in _cycles(following, within) for node in inner}
            found.append(sorted(set(component) - deeper))
            pending.append(within)
    return found


def _cycles(following: Sequence[Sequence[int]], inside: set[int]) -> list[list[int]]:
    """Strongly connected components that are loops: more than one node, or a node with an edge to itself."""
    return [one for one in _components(following, inside) if len(one) > 1 or one[0] in following[one[0]]]


def _entered(following: Sequence[Sequence[int]], component: list[int], inside: set[int]) -> int:
    """The entry node of a loop: the lowest one with an edge from outside, else the lowest one."""
    members = set(component)
    outside = (there for node in inside - members for there in following[node] if there in members)
    return min(outside, default=min(component))


def _components(following: Sequence[Sequence[int]], inside: set[int]) -> list[list[int]]:
    """Strongly connected components of the subgraph `inside` (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in sorted(inside):
        if root in index:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            node, edge = work.pop()
            if edge == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            ways = following[node]
            if edge > 0 and ways[edge - 1] in on_stack:
                low[node] = min(low[node], low[ways[edge - 1]])
            while edge < len(ways) and (ways[edge] not in inside or ways[edge] in index):
                if ways[edge] in on_stack:
                    low[node] = min(low[node], index[ways[edge]])
                edge += 1
            if edge < len(ways):
                work.append((node, edge + 1))
                work.append((ways[edge], 0))
            elif low[node] == index[node]:
                found.append(_popped(stack, on_stack, node))
    return found


def _popped(stack: list[int], on_stack: set[int], root: int) -> list[int]:
    component = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.append(node)
        if node == root:
            return component
