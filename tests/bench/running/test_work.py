"""Orders of the programs that give the same outputs by other work: what they share in Python shows in what they do."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.bench.running.test_orders import mesh_file

from kernbench import npu
from kernbench.bench import Bench, Expected, load_file, param, run_bench
from kernbench.bench.discovery.new import filled_in
from kernbench.npu import IN, INOUT, MTE2, MTE3, OUT, UB, V

# what the first rank alone does, without a trace in what it stores: the line it stands in, and what the message says
EXTRA = {
    "a command more": (
        "    if SEEN.setdefault('first', tl.program_id(0)) == tl.program_id(0): tl.exp(o)",
        "exp of 4x8 f32",
    ),
    "another size": ("    tl.load(q_ptr, shape=(1 if SEEN else 2, 8)); SEEN[0] = 1", "load of 2x8 f32"),
    "another address": (
        "    tl.load(q_ptr + (16 if SEEN else 0), shape=(1, 8)); SEEN[0] = 1",
        "load of 1x8 f32 at 0x10000000010",
    ),
    "another operand": ("    tl.exp(l if SEEN else m); SEEN[0] = 1", "exp of"),
}


def extra(folder, line):
    """A file of the mesh in which a line more stands before the last store."""
    file = mesh_file(folder, "SEEN = {}")
    file.write_text(file.read_text().replace("    pass\n    tl.store(o_ptr", f"{line}\n    tl.store(o_ptr", 1))
    return file


@pytest.mark.parametrize("what", EXTRA)
def test_other_work_of_a_rank_is_found_though_outputs_are_the_same(tmp_path, what):
    line, said = EXTRA[what]
    assert run_bench(load_file(extra(tmp_path, line))).ok, "one order alone shows nothing"
    run = run_bench(load_file(tmp_path / "mine.py"), second_order="cheap", timed=True)
    (finding,) = run.findings
    assert finding.kind == "order-dependent"
    assert "of rank 0" in finding.message
    assert said in finding.message
    assert "though the outputs are the same" in finding.message
    assert "a variable of the module" in finding.hint
    assert finding.where.text == line.strip()
    assert "time_ps" not in run.metrics


HARMLESS = {
    "a cache of Python values": "    SEEN.setdefault('scale', 2.0)",
    "a view that nobody uses": "    tl.trans(o) if SEEN else None; SEEN[0] = 1",
    "a count of calls": "    SEEN['calls'] = SEEN.get('calls', 0) + 1",
}


@pytest.mark.parametrize("what", HARMLESS)
def test_state_that_changes_no_work_is_no_finding(tmp_path, what):
    run = run_bench(load_file(extra(tmp_path, HARMLESS[what])), second_order="always")
    assert run.ok
    assert run.views["orders"] == {"schedules": ["canonical", "reversed", 4], "outcome": "same"}


SYMMETRIC = {
    "in what is stored": ("pass", "1e-7 * (tl.program_id(0) == 1) * SEEN.index(1)"),
    "in what is done": ("tl.program_id(0) == 1 and SEEN.index(1) != 1 and tl.exp(o)", "0"),
}


@pytest.mark.parametrize("where", SYMMETRIC)
def test_state_that_is_the_same_from_either_end_shows_in_a_third_order(tmp_path, where):
    """The middle one of three ranks is the second to begin in both orders."""
    inside, added = SYMMETRIC[where]
    file = mesh_file(tmp_path, "SEEN = []", inside, added)
    begin = "    q = tl.load("
    file.write_text(file.read_text().replace(begin, f"    SEEN.append(tl.program_id(0))\n{begin}", 1))
    assert run_bench(load_file(file), second_order="cheap").ok
    (finding,) = run_bench(load_file(file), second_order="always").findings
    assert "with schedule canonical and" in finding.message
    assert "with schedule 4" in finding.message


def test_a_launch_that_is_large_gets_no_third_order(tmp_path, monkeypatch):
    monkeypatch.setattr("kernbench.bench.running.orders._CHEAP", {"commands": 1})
    run = run_bench(load_file(mesh_file(tmp_path)), second_order="always")
    assert run.views["orders"]["schedules"] == ["canonical", "reversed"]
    assert "order-dependent" in run.checked


def test_blocks_of_the_npu_that_do_other_work(tmp_path):
    text = filled_in("npu", "mine").replace("param(8,", "param(2,")
    text = text.replace("def softmax(core, s, p, scale):", "SEEN = []\n\n\ndef softmax(core, s, p, scale):")
    line = "    SEEN or core.trowmax(stat, s_ub) or core.pipe_barrier(V); SEEN.append(1)\n"
    (tmp_path / "mine.py").write_text(text.replace("    core.trowmax(", f"{line}    core.trowmax(", 1))
    (finding,) = run_bench(load_file(tmp_path / "mine.py"), second_order="cheap").findings
    assert finding.kind == "order-dependent"
    assert "command 8 of aiv0 in block 0 of task 1 (softmax)" in finding.message
    assert "trowmax of 8x1 f32 in UB" in finding.message
    assert finding.where.text == line.strip()


@dataclass(frozen=True)
class Parameters:
    """None but the machine."""

    chip: str = param("a2a3", "bundled chip or TOML path")


def npu_bench(orchestrate, inputs, expected, allowed=None):
    """A bench with one output o; `orchestrate` is made anew for each launch."""

    def launch(p, x, *, torch):
        run = torch.launch(orchestrate(), *x.values(), np.zeros_like(expected))
        return replace(run, outputs={"o": run.outputs["o"]})

    return Bench(
        "small",
        "an orchestration",
        Parameters,
        lambda p, rng: dict(inputs),
        lambda p, x: {"o": Expected(expected, allowed=allowed)},
        lambda p, chip: npu.Chip(chip),
        launch,
    )


def adding(column, more=lambda core, tile, seen: None):
    """Blocks that add a row each, of which they share nothing but what `more` keeps in `seen`."""

    def orchestration():
        seen = []

        def add(core, x, o):
            tile = core.alloc(UB, (1, 16), "f32")
            core.tload(tile, x[core.block_idx : core.block_idx + 1])
            core.set_flag(MTE2, MTE3, 0)
            core.wait_flag(MTE2, MTE3, 0)
            core.tstore_add(o, tile)
            more(core, tile, seen)
            core.pipe_sync()

        return lambda rt, x, o: rt.submit(aiv0=add, args=[IN(x), INOUT(o)], block_num=len(column))

    x = np.zeros((len(column), 16), np.float32)
    x[:, 0] = column
    return npu_bench(orchestration, {"x": x}, x.sum(axis=0, keepdims=True), (0.0, 2.0))


def test_sums_of_floats_round_in_the_order_they_come_in_and_the_golden_judges():
    bench = adding([2.0**24, 1, -(2.0**24), 1])
    one, other = (run_bench(bench, schedule=s).outputs["o"] for s in ("canonical", "reversed"))
    assert (one != other).any(), "the example must show what it is about"
    run = run_bench(bench, second_order="always")
    assert run.ok
    assert "tstore_add" in run.views["order_note"]
    assert run.views["orders"]["outcome"] == "both right"


def test_sums_do_not_excuse_other_work():
    """Nobody reads what the sums give: they cannot be why a block does something else."""

    def more(core, tile, seen):
        if not seen:
            core.set_flag(MTE3, V, 0)
            core.wait_flag(MTE3, V, 0)
            core.texp(tile, tile)
        seen.append(core.block_idx)

    (finding,) = run_bench(adding([1, 2, 3, 4], more), second_order="cheap").findings
    assert finding.kind == "order-dependent"
    assert "aiv0 in block 0" in finding.message
    assert finding.where.text == "core.set_flag(MTE3, V, 0)"


def looking(core, flag, o):
    """The first block notifies; the others look once, and do more where they see it."""
    tile = core.alloc(UB, (1, 16), "f32")
    core.texpands(tile, 1.0)
    if core.block_idx == 0:
        core.tnotify(flag[0:1], 1)
    elif core.poll(flag[0:1]):
        core.pipe_barrier(V)
        core.texpands(tile, 1.0)
    core.set_flag(V, MTE3, 0)
    core.wait_flag(V, MTE3, 0)
    core.tstore(o[core.block_idx : core.block_idx + 1], tile)
    core.pipe_sync()


def test_who_looks_at_a_signal_may_do_other_work():
    def orchestrate(rt, flag, o):
        rt.submit(aiv0=looking, args=[INOUT(flag), OUT(o)], block_num=3)

    bench = npu_bench(lambda: orchestrate, {"flag": np.zeros(16, np.int32)}, np.ones((3, 16), np.float32))
    one, other = (run_bench(bench, schedule=s).metrics["operations"] for s in ("canonical", "reversed"))
    assert one["texpands"] != other["texpands"], "the example must show what it is about"
    run = run_bench(bench, second_order="always")
    assert run.ok, run.findings
    assert "poll" in run.views["order_note"]
    assert run.views["orders"]["outcome"] == "both right"
