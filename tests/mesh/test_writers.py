"""Which line of a kernel stored an element of an output."""

import numpy as np
import pytest

from kernbench import mesh


def kernel(x_ptr, o_ptr, rows, columns, *, tl):
    x = tl.load(x_ptr, shape=(rows, columns))
    tl.store(o_ptr, x)
    tl.store(o_ptr + 0, x[0:1] + x[0:1])


@pytest.mark.parametrize("rows", [None, [[0, 5], [4, 1], [2, 3]]])
@pytest.mark.parametrize("axis", [0, None])
def test_writers(rows, axis):
    host = mesh.Host(ranks=3, install="ring")
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    options = {} if rows is None or axis is None else {"rows": rows}
    given = host.shard(x, axis=0, **options) if axis == 0 else host.replicate(x)
    o = host.empty((6, 4), "f32", axis=axis, **options)
    run = host.launch(kernel, given, o, 2 if axis == 0 else 6, 4)
    assert run.ok, run.findings
    lines = {}
    for index in np.ndindex(6, 4):
        location = host.writer_of(run, "o", index)
        lines.setdefault(location.line, set()).add(index[0])
    firsts = {0} if axis is None else {0, 2, 4} if rows is None else {0, 4, 2}
    first_line = kernel.__code__.co_firstlineno
    assert lines == {first_line + 2: set(range(6)) - firsts, first_line + 3: firsts}
    assert host.writer_of(run, "nothing", (0, 0)) is None
