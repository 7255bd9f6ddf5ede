"""PEs of a cube wired to each other while ranks are cubes: who is whose neighbour, what it costs, what goes wrong."""

import numpy as np
import pytest

from kernbench import mesh
from kernbench.common.errors import MisuseError
from kernbench.machine.grid import Grid
from kernbench.mesh.time import retime
from kernbench.mesh.wiring import inside
from kernbench.result import Status


def collect(x_ptr, o_ptr, team, *, tl):
    """Each PE adds its id to the rank's row; PE 0 sums up what comes along the line, then along the cubes."""
    pe, cube, cubes = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    x = tl.load(x_ptr, shape=(1, 8)) + float(pe)
    place = team.index(pe)
    if place < len(team) - 1:
        x = x + tl.recv(dir="S", shape=(1, 8), dtype="f32")
    if place:
        tl.send(dir="N", src=x)
        return
    if cube < cubes - 1:
        x = x + tl.recv(dir="E", shape=(1, 8), dtype="f32")
    if cube:
        tl.send(dir="W", src=x)
    tl.store(o_ptr, x)


def host(**options):
    return mesh.Host("reference", ranks=3, rank_axis=1, inside="line", **options)


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_a_sum_over_all_pes_of_all_cubes(schedule):
    rows = np.arange(24, dtype=np.float32).reshape(3, 8)
    on = host()
    x, o = on.shard(rows), on.empty((3, 8), "f32", axis=0)
    run = on.launch(collect, x, o, on.team, schedule=schedule)
    assert run.safe, run.findings
    of_cube = 8 * rows + sum(range(8))
    np.testing.assert_array_equal(run.outputs["o"], np.cumsum(of_cube[::-1], axis=0)[::-1])


def test_messages_inside_take_the_cubes_own_links():
    on = host(shapes_only=True)
    x, o = on.shard(np.zeros((3, 8), np.float32)), on.empty((3, 8), "f32", axis=0)
    run = on.launch(collect, x, o, on.team)
    links = {(k.sender, k.receiver): (k.hops, k.between_cubes) for k in run.recording.links}
    assert links[(1, 3), (1, 2)] == (1, False)
    assert links[(1, 0), (0, 0)] == (1, True)
    timed = retime(run, on.machine)
    slower = on.machine.override({"link.latency": "1 us"})
    # seven hops along the line
    late = retime(run, slower).metrics["time_ps"] - timed.metrics["time_ps"]
    assert late == 7 * (1_000_000 - on.machine.link.latency_ps)


def test_a_cycle_goes_both_ways_from_pe_0():
    wiring, order = inside("cycle", Grid(2, 4), {})
    assert order == list(range(8))
    assert wiring[0] == {"S": 1, "N": 7}
    wiring, order = inside("cycle", Grid(4, 4), {})
    grid = Grid(4, 4)
    for here, onward in zip(order, order[1:] + order[:1], strict=True):
        assert grid.distance(here, onward) == 1
        assert wiring[here]["S"] == onward
        assert wiring[onward]["N"] == here


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank_axis": 0, "inside": "line"}, "it needs rank_axis=1"),
        ({"rank_axis": 1, "inside": "line", "install": "grid"}, "which the cubes use"),
        ({"rank_axis": 1, "inside": "star"}, "star"),
        ({"rank_axis": 1, "inside": "cycle", "machine": "tall"}, "no closed walk"),
    ],
)
def test_what_cannot_be_wired(options, words):
    if options.get("machine") == "tall":
        options = options | {"machine": mesh.Host("reference").machine.override({"cube.pes": (3, 1)})}
    with pytest.raises(MisuseError, match=words):
        mesh.Host(**options)


def waits_for_its_neighbour(o_ptr, *, tl):
    if tl.program_id(0) < 2:
        tl.recv(dir="S" if tl.program_id(0) == 0 else "N", shape=(1, 1), dtype="f32")


def test_a_deadlock_inside_names_the_pes():
    on = mesh.Host("reference", ranks=1, rank_axis=1, inside="line")
    run = on.launch(waits_for_its_neighbour, on.workspace((1, 1)))
    assert run.status is Status.DEADLOCKED
    message = run.findings[0].message
    assert "wait-for cycle: rank 0 -> PE 1 of cube 0 -> rank 0" in message
    assert "PE 1 of cube 0 could go on if rank 0 sent S" in message
    assert run.findings[0].ranks == (0,)


def never_received(o_ptr, *, tl):
    if tl.program_id(0) == 3:
        tl.send(dir="S", src=tl.zeros((1, 1)))


def test_a_message_inside_that_nobody_takes():
    on = mesh.Host("reference", ranks=1, rank_axis=1, inside="line")
    (finding,) = on.launch(never_received, on.workspace((1, 1))).findings
    assert finding.kind == "message-unreceived"
    assert "sent S by PE 3 of cube 0, was never received by PE 4 of cube 0" in finding.message
