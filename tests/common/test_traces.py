"""Lines of tracebacks: of a variable without a value, too, of which Python 3.11 names the line before it or its own."""

from pathlib import Path

import numpy as np

from kernbench import mesh, npu
from kernbench.common.errors import traced


def adds_to_nothing(tl, address):
    for _ in range(3):
        part = tl.load(address, (4,))
        total = total + part  # noqa: F821 # here
    return total


def outer(function, *given):
    return function(*given)


class Loads:
    def load(self, address, shape):
        return address


def line_of(function, word):
    code = function.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    return next(n for n in range(code.co_firstlineno, len(lines)) if word in lines[n - 1])


def lines_of(function, *given):
    try:
        outer(function, *given)
    except Exception as error:
        return [line for _, line in traced(error)]
    return []


def test_the_line_does_not_depend_on_how_often_the_code_has_run():
    found = {tuple(lines_of(adds_to_nothing, Loads(), 7)) for _ in range(200)}
    ((_, call, line),) = found
    assert line == line_of(adds_to_nothing, "# here")
    assert call == line_of(outer, "return function")


def test_other_errors_keep_their_lines():
    def deletes():
        size = 3
        del size
        return size  # noqa: F821

    def names():
        return unknown_name  # noqa: F821

    for function, word in ((deletes, "return size"), (names, "return unknown")):
        assert {lines_of(function)[-1] for _ in range(100)} == {line_of(function, word)}


def test_every_launch_of_a_mesh_kernel_names_the_line():
    def kernel(x_ptr, *, tl):
        adds_to_nothing(tl, x_ptr)

    locations = set()
    for _ in range(40):
        host = mesh.Host("small", ranks=2)
        locations |= {finding.where for finding in host.launch(kernel, host.shard(np.ones(8, np.float32))).findings}
    assert {location.line for location in locations} == {line_of(adds_to_nothing, "# here")}


def test_every_launch_of_an_npu_kernel_names_the_line():
    def kernel(core, x):
        tile = core.tile("UB", (8, 8), "f32", 0)
        for _ in range(3):
            other = tile
            total = total + other  # noqa: F821, F841 # here

    def orchestrate(rt, x):
        rt.submit(aiv0=kernel, args=[npu.IN(x)])

    chip = npu.Chip("a2a3")
    runs = [chip.launch(orchestrate, np.ones((8, 8), np.float32)) for _ in range(40)]
    assert {finding.where.line for run in runs for finding in run.findings} == {line_of(kernel, "# here")}
