"""From recordings to graphs: how large they may become."""

import numpy as np
import pytest

from kernbench.common.errors import KernbenchError
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.time.lower import Lowered, _number, join
from kernbench.npu.time.reclaim import Waits


def test_a_recording_of_more_nodes_than_numbers_of_the_graph_is_refused():
    assert _number(NpuRecording(), 2**31 - 1, 0, 0).total == 2**31 - 1
    with pytest.raises(KernbenchError, match=r"2,147,483,649 nodes of its graph are too many.* 2,147,483,647"):
        _number(NpuRecording(), 2**31 - 2, 1, 0)


def test_more_edges_than_numbers_of_the_graph_are_refused():
    nodes = _number(NpuRecording(), 2, 0, 0)
    none = np.empty(0, np.int64)
    lowered = Lowered(NpuRecording(), nodes, none, none, (none, none, none), (none, none, none), Waits())
    # as many as there cannot be, which take no memory
    many = tuple(np.broadcast_to(np.int8(0), 2**31 - 1) for _ in range(3))
    one = tuple(np.zeros(1, np.int8) for _ in range(3))
    with pytest.raises(KernbenchError, match=r"2,147,483,648 edges of its graph are too many"):
        join(lowered, many, one)
    few = tuple(np.array(column) for column in ([0], [1], [3]))
    assert join(lowered, few).targets.tolist() == [1]
