"""Sweeps over chips of the npu: rates are timed again from one recording, shapes run again, unknown keys refused."""

import pytest
from tests.sweep.test_sweep import rows_of

from kernbench import npu
from kernbench.bench import find
from kernbench.common.errors import BenchError, MachineError
from kernbench.sweep import make_plan
from kernbench.sweep.columns import columns
from kernbench.sweep.planning.points import floor_column

BENCH = find("paged_attention")
PANEL = "contexts_33_17"


def plan(over, **settings):
    chosen = {} if "form" in over else {"form": "staged"}
    return make_plan(BENCH, PANEL, {**chosen, **settings}, over)


def test_rates_share_one_recording_and_shapes_do_not(monkeypatch):
    launches = []
    launch = npu.Chip.launch
    monkeypatch.setattr(npu.Chip, "launch", lambda *a, **k: launches.append(1) or launch(*a, **k))
    over = {"chip.tasks.submit": ["1 us", "2 us"], "machine.memory.bandwidth": ["100", "1600"]}
    rows = rows_of(plan(over))
    assert len(launches) == 1
    assert len({row["time_ps"] for row in rows}) >= 2
    for row in rows:
        # the same as a launch on such a chip
        changes = {"tasks.submit": row["chip.tasks.submit"], "memory.bandwidth": row["machine.memory.bandwidth"]}
        assert row["time_ps"] == direct(changes)
    rows = rows_of(plan({"chip.tasks.window": ["4", "16384"], "chip.clusters.issue": ["0", "5"]}))
    assert len(launches) == 1 + 4 + 2
    assert rows[1]["time_ps"] > rows[0]["time_ps"]


def direct(changes):
    p = BENCH.parameters(form="staged", **BENCH.panels[PANEL])
    import numpy as np

    chip = npu.Chip(p.chip, changes)
    run = chip.retime(BENCH.launch(p, BENCH.inputs(p, np.random.default_rng(0)), torch=chip))
    return run.metrics["time_ps"]


def test_rows_say_where_the_time_went():
    for row in rows_of(plan({"form": ["staged", "fused", "grouped"], "chip": ["a2a3", "a5"]})):
        gap = {k: v for k, v in row.items() if k.startswith("gap_")}
        assert set(row) - {"form", "chip"} <= set(columns("npu"))
        assert sum(gap.values()) + row[floor_column(row["bound"])] == row["time_ps"]
        assert row["right"] is True


def test_unknown_keys_are_told():
    with pytest.raises(MachineError, match=r"unknown chip key 'memory.bandwith'.*Did you mean 'memory.bandwidth'"):
        plan({"chip.memory.bandwith": ["1"]})
    with pytest.raises(MachineError, match=r"tasks\.window"):
        plan({"chip.tasks.window": ["0"]})
    with pytest.raises(BenchError, match="are the same key"):
        plan({"chip.tasks.submit": ["1"], "machine.tasks.submit": ["2"]})
    with pytest.raises(BenchError, match=r"has no chip to change: .*; it runs on a machine"):
        make_plan(find("milestone_gqa_llama70b"), "single_user_decode", {}, {"chip.tasks.submit": ["1"]})
