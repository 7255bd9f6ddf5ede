"""What breaks the rules and changes no result on hardware that exists is formal: apart from faults, with the reason."""

import json

import numpy as np
import pytest

from kernbench.report import run_text
from kernbench.report.text.plain import plain_text
from kernbench.result.finding import FAULT, FORMAL, Finding
from kernbench.result.load import load_runs

BEHIND = "  st.global.u32 [%rd1], 1;\n"
WARP_ALONE = """
  mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd1, %rd20;
  setp.ge.u32 %p1, %r0, 32;
  @%p1 bra DONE;
  bar.sync 0;
DONE:
"""


def formal(lab, body, block=64):
    run = lab.launch(body, np.zeros(64, "u4"), block=block)
    assert run.findings == []
    return run


LANES_ALONE = """
  mul.wide.u32 %rd1, %r0, 4; add.u64 %rd1, %rd1, %rd20;
  setp.ge.u32 %p1, %r0, 2;
  @%p1 bra DONE;
  {}
DONE:
  st.global.u32 [%rd1], 1;
"""


def test_lanes_that_go_past_a_barrier_of_their_warp_and_end_are_formal(lab):
    run = formal(lab, LANES_ALONE.format("bar.warp.sync 0xffffffff;"), 32)
    (found,) = run.formal
    assert (found.kind, found.severity) == ("warp-mask", FORMAL)
    assert "names lanes 2-31; thread (2, 0, 0) of block (0, 0, 0) ended" in found.message
    assert "every GPU so far lets __syncwarp go on" in found.message
    # what they were to exchange is not there
    exchange = LANES_ALONE.format("shfl.sync.bfly.b32 %r5, %r0, 4, 31, 0xffffffff;")
    assert "warp-mask" in lab.kinds(exchange, np.zeros(64, "u4"))
    # and a lane that waits elsewhere has not ended
    waits = LANES_ALONE.format("bar.warp.sync 0xffffffff;").replace("DONE:", "DONE:\n  bar.warp.sync 0x3;")
    assert lab.kinds(waits, np.zeros(64, "u4")) != []


def test_warps_that_go_round_a_barrier_are_formal(lab):
    run = formal(lab, WARP_ALONE + BEHIND)
    (found,) = run.formal
    assert run.safe
    assert (found.kind, found.severity, found.where.text) == ("divergent-barrier", FORMAL, "bar.sync 0;")
    assert "1 of its warps went round it, such as that of thread (32, 0, 0) of block (0, 0, 0)" in found.message
    assert "every GPU so far lets a barrier go on" in found.message


def test_of_three_warps_two_go_round(lab):
    body = WARP_ALONE.replace("  @%p1 bra DONE;\n  bar", "  @!%p1 bra DONE;\n  bar")
    (found,) = lab.launch(body + BEHIND, np.zeros(96, "u4"), block=96).formal
    assert "1 of its warps went round it, such as that of thread (0, 0, 0)" in found.message


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_an_early_return_is_none(lab, schedule):
    body = WARP_ALONE.replace("bra DONE", "ret").replace("DONE:\n", "") + BEHIND
    run = lab.launch(body, np.zeros(64, "u4"), block=64, schedule=schedule)
    assert (run.findings, run.formal) == ([], [])


def test_a_barrier_with_a_count_is_for_those_who_come(lab):
    assert formal(lab, WARP_ALONE.replace("bar.sync 0;", "bar.sync 1, 32;") + BEHIND).formal == []


def test_all_come(lab):
    assert formal(lab, WARP_ALONE.replace("  @%p1 bra DONE;\n", "") + BEHIND).formal == []


# a block comes to the barrier once more often than the one before it; all of its warps do
ROUNDS = """
  mul.wide.u32 %rd1, %r3, 4; add.u64 %rd1, %rd1, %rd20;
  mov.u32 %r1, %ctaid.x;
AGAIN:
  bar.sync 0;
  setp.ne.u32 %p1, %r1, 0;
  sub.u32 %r1, %r1, 1;
  @%p1 bra AGAIN;
"""


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_other_blocks_that_ended_have_not_gone_round(lab, schedule):
    run = lab.launch(ROUNDS + BEHIND, np.zeros(192, "u4"), grid=3, block=64, schedule=schedule)
    assert (run.findings, run.formal) == ([], [])


def test_strict_makes_it_count(lab):
    run = formal(lab, WARP_ALONE + BEHIND).strict()
    assert not run.safe
    assert [found.kind for found in run.findings] == ["divergent-barrier"]
    assert run.formal == []


def test_one_note_says_what_is_formal(lab):
    text = plain_text(run_text("k", formal(lab, WARP_ALONE + BEHIND)))
    assert "safe: yes" in text
    assert text.count("formal: breaks the rules, and changes no result") == 1
    assert "next: let every thread of the block run the barrier" in text


def test_it_is_saved_and_loaded(lab, tmp_path):
    run = formal(lab, WARP_ALONE + BEHIND)
    run.save(tmp_path / "run.json")
    (loaded,) = load_runs(tmp_path / "run.json").runs
    assert [f.to_dict() for f in loaded.formal] == [f.to_dict() for f in run.formal]
    assert loaded.safe


def test_older_files_have_faults(lab, tmp_path):
    run = formal(lab, WARP_ALONE + BEHIND).strict()
    run.save(tmp_path / "run.json")
    data = json.loads((tmp_path / "run.json").read_text())
    del data["formal"]
    for found in data["findings"]:
        del found["severity"]
    (tmp_path / "run.json").write_text(json.dumps(data))
    (loaded,) = load_runs(tmp_path / "run.json").runs
    assert [f.severity for f in loaded.findings] == [FAULT]
    assert loaded.formal == []


def test_there_are_two():
    with pytest.raises(ValueError, match="severity"):
        Finding("race", "", severity="small")
