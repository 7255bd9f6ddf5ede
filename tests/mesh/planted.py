"""How a planted bug is launched, and what is asked of its finding."""

import inspect

import numpy as np

from kernbench import machine, mesh

S, D = 4, 8


def launch(kernel, ranks=2, *, rank_axis=0, install="line", overrides=None, out_axis=0, shapes_only=False, **options):
    """Run `kernel(q_ptr, o_ptr, tl=)` over a sharded input and an output of the same shape."""
    described = machine.load("reference").override(overrides or {})
    host = mesh.Host(described, ranks=ranks, rank_axis=rank_axis, install=install, shapes_only=shapes_only)
    q = host.shard(np.arange(ranks * S * D, dtype=np.float32).reshape(ranks * S, D))
    o = host.empty((ranks * S, D) if out_axis == 0 else (S, D), "f32", axis=out_axis)
    return host.launch(kernel, q, o, **options)


def only(run, kind):
    """The one finding of the run, which must be of this kind."""
    assert [f.kind for f in run.findings] == [kind], "\n".join(map(str, run.findings))
    return run.findings[0]


def line_of(kernel, text):
    """The line number of the one line of `kernel` that contains `text`."""
    lines, first = inspect.getsourcelines(kernel)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return first + offset


def at(finding, kernel, text):
    """The finding is told at the one line of `kernel` that contains `text`."""
    assert finding.where.file == inspect.getsourcefile(kernel)
    assert finding.where.line == line_of(kernel, text)


def clean(q_ptr, o_ptr, *, tl):
    rank, n = tl.program_id(0), tl.num_programs(0)
    x = tl.load(q_ptr, shape=(S, D))
    total = x + 0.0
    if rank + 1 < n:
        tl.send(dir="E", src=x)
    if rank > 0:
        tl.send(dir="W", src=x)
        total = total + tl.recv(dir="W", shape=(S, D), dtype="f32")
    if rank + 1 < n:
        total = total + tl.recv(dir="E", shape=(S, D), dtype="f32")
    tl.store(o_ptr, total)
