"""A part of a grid: what is run, and what is said of the rest."""

import json

import numpy as np
import pytest
from tests.ptx.corpus import kernel_text
from typer.testing import CliRunner

from kernbench import ptx
from kernbench.bench import find, run_bench
from kernbench.cli import app
from kernbench.common.errors import BenchError, MisuseError
from kernbench.ptx.launching.blocks import blocks_of, clusters_of, read_blocks
from kernbench.report import run_text
from kernbench.report.text.plain import plain_text

# each thread writes its block's number to its own word
OWN = (
    "ld.param.u64 %rd1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x;"
    "mad.lo.u32 %r2, %r1, %r3, %r2; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1;"
)
# all blocks write to the same words
SHARED = (
    "ld.param.u64 %rd1, [p]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4;"
    "add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1;"
)


def launched(body, grid=8, **options):
    device = ptx.EmulatedDevice("sm_100a")
    out = device.empty((8 * 32,), np.uint32, "out")
    return device.launch(ptx.parse(kernel_text(body)), grid, 32, [out], **options)


def kinds(run):
    return [finding.kind for finding in run.findings]


@pytest.mark.parametrize("blocks", ["1-2,5", [1, 2, 5], np.array([1, 2, 5]), (n for n in (1, 2, 5, 1))])
def test_only_these_are_run(blocks):
    run = launched(OWN, blocks=blocks)
    ran = run.outputs["out"].reshape(8, 32)
    assert [set(row) for row in ran[[1, 2, 5]]] == [{1}, {2}, {5}]
    assert (np.delete(ran, [1, 2, 5], axis=0) == 0xFFFF_FFFF).all()
    assert run.views["part"] == {"run": 3, "of": 8}
    assert run.safe
    assert kinds(run) == []
    assert "output-unwritten" not in run.checked
    assert run.metrics["thread_instructions"] * 8 == launched(OWN).metrics["thread_instructions"] * 3


def test_the_verdict_says_so():
    text = plain_text(run_text("k", launched(OWN, blocks="0-2")))
    assert "3 of 8 blocks were run" in text
    assert "taken as not run" in text
    assert "blocks were run" not in plain_text(run_text("k", launched(OWN)))


def test_all_blocks_are_no_part():
    run = launched(OWN, blocks="0-7")
    assert "part" not in run.views
    assert "output-unwritten" in run.checked
    assert run.outputs["out"].tolist() == launched(OWN).outputs["out"].tolist()


def test_races_among_those_that_run_are_found():
    assert kinds(launched(SHARED, blocks="3,6")) == ["race"]
    assert kinds(launched(SHARED, blocks="3")) == []
    assert "race" in kinds(launched(SHARED))


def test_a_cluster_runs_whole():
    run = launched(OWN, cluster=4, blocks=[5])
    assert run.views["part"] == {"run": 4, "of": 8}
    assert clusters_of((0, 9, 17), (4, 4, 2), (2, 2, 1)) == (0, 2, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"blocks": "x"}, "write numbers and ranges"),
        ({"blocks": "5-2"}, "from a smaller number to a larger one"),
        ({"blocks": []}, "0 and up"),
        ({"blocks": [-1]}, "0 and up"),
        ({"blocks": [0.5]}, "give numbers of blocks"),
        ({"blocks": 3}, "give numbers of blocks"),
        ({"blocks": [8, 9]}, "none of the blocks that are asked for"),
        ({"blocks": [0], "record": True}, "leave blocks out"),
    ],
)
def test_misuse(options, words):
    with pytest.raises(MisuseError, match=words):
        launched(OWN, **options)


def test_as_people_write_them():
    assert read_blocks("0-3, 17,2") == (0, 1, 2, 3, 17)
    assert blocks_of(range(3)) == (0, 1, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A kernel whose launch file expects what all blocks write."""
    (tmp_path / "k.ptx").write_text(kernel_text(OWN))
    np.save(tmp_path / "wanted.npy", np.repeat(np.arange(8, dtype=np.uint32), 32))
    (tmp_path / "k.toml").write_text(
        'grid = [8]\nblock = [32]\n[args.p]\ndtype = "u32"\nshape = [256]\nexpect = "wanted.npy"\n'
    )
    monkeypatch.chdir(tmp_path)


def kernbench(*words):
    done = CliRunner().invoke(app, [*words, "--json", "out.json"], env={"COLUMNS": "300"})
    with open("out.json") as file:
        return done, json.load(file)


def test_ptx_run_judges_only_whole_grids(folder):
    done, document = kernbench("ptx", "run", "k.ptx", "-l", "k.toml", "--blocks", "2,4-5")
    assert (done.exit_code, document["right"], document["safe"]) == (0, None, True)
    assert document["views"]["part"] == {"run": 3, "of": 8}
    assert "3 of 8 blocks were run" in done.output
    done, document = kernbench("ptx", "run", "k.ptx", "-l", "k.toml")
    assert (done.exit_code, document["right"], document["safe"]) == (0, True, True)


@pytest.mark.parametrize("words", [["--time"], ["--device", "cuda"]])
def test_ptx_run_refuses_what_needs_a_whole_grid(folder, words):
    done = CliRunner().invoke(app, ["ptx", "run", "k.ptx", "--blocks", "1", *words])
    assert isinstance(done.exception, BenchError)
    assert "--blocks" in str(done.exception)


def test_a_bench_is_not_judged_by_a_part():
    bench = find("batched_incremental_attention")
    run = run_bench(bench, timed=True, blocks="0-1")
    assert run.views["part"]["run"] < run.views["part"]["of"]
    assert (run.right, run.safe) == (None, True)
    assert "part" in run.metrics["no_time"]
    with pytest.raises(BenchError, match="--blocks: target mesh has no blocks"):
        run_bench(find("milestone_gqa_llama70b"), "single_user_decode", blocks="0")
