"""A finding inside a helper names the call that led there, and a kernel's own line names no call."""

import inspect

import numpy as np
from tests.npu.small import flag

from kernbench import npu

CHIP = npu.Chip("a2a3")
X = np.ones((8, 64), np.float32)


def fetch(core, tile, x):
    core.tload(tile, x)


def double(core, tile):
    core.tmuls(tile, tile, 2.0)


def twice(core, tile):
    double(core, tile)
    flag(core, "V", "MTE3")


def keep(core, out, tile):
    core.tstore(out, tile)


def launch(kernel, *arrays, fifos=False, **options):
    def orchestrate(rt, x, out):
        extra = [rt.fifo("f", "to_aiv", (16, 64), "f32")] if fifos else []
        lanes = {"aic": kernel, "aiv": kernel} if fifos else {"aiv0": kernel}
        rt.submit(**lanes, args=[npu.IN(x), npu.OUT(out), *extra])

    return CHIP.launch(orchestrate, *(arrays or (X, X)), **options)


def lines_of(finding):
    """The text of each location of a finding beyond its own, by role."""
    return [(other.role, inspect.cleandoc(other.where.text)) for other in finding.others]


def test_both_calls_of_a_race_between_helpers():
    def kernel(core, x, out):
        tile = core.tile("UB", (8, 64))
        fetch(core, tile, x)
        twice(core, tile)
        keep(core, out, tile)
        core.pipe_sync()

    (race,) = launch(kernel).findings
    assert race.kind == "race"
    assert race.where.text == "core.tmuls(tile, tile, 2.0)"
    earlier = "the earlier operation writes it"
    assert lines_of(race) == [
        (earlier, "core.tload(tile, x)"),
        ("called from", "double(core, tile)"),
        ("called from", "twice(core, tile)"),
        (f"{earlier}: called from", "fetch(core, tile, x)"),
    ]


def test_the_call_that_lacks_the_barrier_is_named_and_not_the_first():
    def kernel(core, x, out):
        tile = core.tile("UB", (8, 64))
        fetch(core, tile, x)
        flag(core, "MTE2", "V")
        double(core, tile)
        core.pipe_barrier("V")
        double(core, tile)
        double(core, tile)  # nothing between
        twice(core, tile) if core.block_idx else flag(core, "V", "MTE3")
        keep(core, out, tile)
        core.pipe_sync()

    (missing,) = launch(kernel).findings
    assert missing.kind == "missing-barrier"
    roles = lines_of(missing)
    assert roles[1] == ("called from", "double(core, tile)  # nothing between")
    assert roles[2][0].endswith(": called from")
    assert missing.others[2].where.line == missing.others[1].where.line - 1


def test_a_line_of_the_kernel_itself_is_called_by_nobody():
    def kernel(core, x, out):
        tile = core.tile("UB", (8, 64))
        core.tload(tile, x)
        [core.tmuls(tile, tile, 2.0) for _ in range(1)]
        flag(core, "V", "MTE3")
        core.tstore(out, tile)
        core.pipe_sync()

    (race,) = launch(kernel).findings
    assert [other.role for other in race.others] == ["the earlier operation writes it"]


def test_findings_made_while_the_kernel_runs():
    def kernel(core, x, out):
        tile = core.tile("UB", (8, 64))
        core.texpands(tile, 0.0)
        flag(core, "V", "MTE3")
        keep(core, x, tile)
        keep(core, out, tile)
        core.pipe_sync()

    (finding,) = launch(kernel).findings
    assert finding.kind == "argument-direction"
    assert lines_of(finding) == [("called from", "keep(core, x, tile)")]


def test_a_lane_that_waits_in_a_helper():
    def take(core, fifo):
        core.tpop(fifo, core.tile("UB", (8, 64)))

    def kernel(core, x, out, fifo):
        if core.lane:
            take(core, fifo)

    finding = next(f for f in launch(kernel, fifos=True).findings if f.kind == "deadlock")
    assert lines_of(finding)[1:] == [(f"aiv{n}: called from", "take(core, fifo)") for n in (0, 1)]


def test_flags_and_values_read_in_helpers():
    def kernel(core, x, out):
        tile = core.tile("UB", (8, 64))
        core.texpands(tile, 0.0)
        flag(core, "V", "MTE3")
        core.tstore(out, tile)
        core.set_flag("MTE3", "V", 3)
        core.wait_flag("MTE3", "V", 3)
        flag_again(core)
        core.pipe_sync()

    def flag_again(core):
        core.set_flag("V", "MTE3", 1)

    (finding,) = launch(kernel).findings
    assert finding.kind == "flag-misuse"
    assert lines_of(finding) == [("called from", "flag_again(core)")]


def test_every_order_names_the_same_calls():
    def kernel(core, x, out):
        tile = core.tile("UB", (8, 64))
        fetch(core, tile, x)
        twice(core, tile)
        keep(core, out, tile)
        core.pipe_sync()

    told = {tuple(lines_of(launch(kernel, schedule=s).findings[0])) for s in ("canonical", "reversed", 3)}
    assert len(told) == 1
