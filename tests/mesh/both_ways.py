"""A launch whose loops and calls are repeated without running them, and one in which each runs: nothing may differ."""

import numpy as np

from kernbench import mesh
from kernbench.machine import load
from kernbench.mesh.time import retime

REFERENCE = load("reference")


def launched(kernel, *args, folds=True, ranks=2, rows=512, further=None, scratch=None, depth=None, **how):
    """`kernel(x, y, *args, tl=)` without data on two tensors of `rows` by 768; a third one before the arguments where
    whole numbers are given as `further`. `how`: schedule and budget.
    """
    changes = {"pe.scratch": scratch, "ipcq.depth": depth}
    machine = REFERENCE.override({key: value for key, value in changes.items() if value is not None})
    host = mesh.Host(machine, ranks=ranks, shapes_only=True)
    host.folds = folds
    tensors = [host.replicate(np.broadcast_to(np.float32(0), (rows, 768))) for _ in range(2)]
    if further is not None:
        tensors.append(host.replicate(further))
    return host.launch(kernel, *tensors, *args, **how)


def same(kernel, *args, **options):
    """Launch it both ways, which must give the same; the run with repeated loops and calls."""
    folded, full = (launched(kernel, *args, folds=folds, **options) for folds in (True, False))
    alike(folded, full)
    return folded


def alike(folded, full):
    """Two runs have the same rows, views, tables, counts, findings and times, and printed the same."""
    same_commands(folded.recording, full.recording)
    assert (folded.metrics, folded.status) == (full.metrics, full.status)
    assert found(folded) == found(full)
    assert folded.views.get("printf") == full.views.get("printf")
    if full.safe:
        timed, reference = (retime(run, REFERENCE) for run in (folded, full))
        assert timed.metrics == reference.metrics
        assert np.array_equal(timed.timeline.start, reference.timeline.start)


def same_commands(one, other):
    """Two recordings have the same rows and views in as many streams, and the same tables of what these name."""
    assert len(one.streams) == len(other.streams)
    for folded, full in zip(one.streams, other.streams, strict=True):
        assert np.array_equal(folded.rows.columns(), full.rows.columns())
        assert np.array_equal(folded.views.columns(), full.views.columns())
    for name in ("types", "sites", "patterns"):
        assert getattr(one.tables, name) == getattr(other.tables, name)


def found(run):
    return [(f.kind, f.where, f.count, f.message, f.ranks) for f in run.findings]
