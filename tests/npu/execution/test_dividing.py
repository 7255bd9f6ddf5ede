"""Launches in several processes: the same outcome to the last bit as in one, whatever blocks have in common."""

import os
import signal

import numpy as np
import pytest
from benchmarks.npu_jobs import everything
from tests import sampled
from tests.npu import random_kernels
from tests.npu.small import flag, kinds

from kernbench import npu
from kernbench.bench import find, run_bench
from kernbench.benches.paged_attention import FORMS
from kernbench.npu.cpp import process
from kernbench.npu.execution import dividing
from kernbench.safety.budget import Budget

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
ROWS = 16
FEW_PANELS = ("context_33", "contexts_33_64_48_15")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Every launch is divided before its first block."""
    monkeypatch.setattr(dividing, "AFTER", -1.0)
    monkeypatch.setenv("KERNBENCH_START_METHOD", "fork")
    # whatever other tests of this process have begun
    monkeypatch.setattr(process, "begun", [0])


def runs_alike(launch, many=(2, 16)):
    """What `launch(chip)` gives with one process, and how it was divided with more, whose outcome must be the same."""
    chip = npu.Chip("a2a3", jobs=1)
    first = launch(chip)
    divisions = []
    for jobs in many:
        other = npu.Chip("a2a3", jobs=jobs)
        assert everything(launch(other)) == everything(first)
        divisions.append(other.division)
    return first, divisions


def scaled(core, x, y):
    rows = slice(ROWS * core.block_idx, ROWS * (core.block_idx + 1))
    tile = core.tile("UB", (ROWS, 64), "f32", 0)
    core.tload(tile, x[rows])
    flag(core, "MTE2", "V")
    core.tmuls(tile, tile, 1.5)
    flag(core, "V", "MTE3")
    core.tstore(y[rows], tile)
    core.pipe_sync()


def chain(rt, x, y, z):
    rt.submit(aiv0=scaled, args=[npu.IN(x), npu.OUT(y)], block_num=8)
    rt.submit(aiv0=scaled, args=[npu.IN(y), npu.OUT(z)], block_num=8)


def arrays():
    x = np.random.default_rng(0).standard_normal((8 * ROWS, 64)).astype(np.float32)
    return x, np.zeros_like(x), np.zeros_like(x)


@pytest.mark.parametrize("shapes_only", [False, True])
def test_blocks_that_keep_apart_are_divided(shapes_only):
    run, divisions = runs_alike(lambda chip: chip.launch(chain, *arrays(), shapes_only=shapes_only))
    assert run.safe
    assert [(d.parts, d.why) for d in divisions] == [(2, ""), (8, "")]


@pytest.mark.parametrize(
    ("more", "blocks", "parts"),
    [(0, 8, (2, 8)), (1, 8, (1, 1)), (0, 1, (1, 1))],
    ids=["large", "a byte too small", "one block"],
)
def test_a_task_whose_blocks_have_much_to_read_is_divided_before_the_first(more, blocks, parts, monkeypatch):
    """Other launches have to take a while first."""
    monkeypatch.setattr(dividing, "AFTER", 1e9)
    x, y, _ = arrays()
    monkeypatch.setattr(dividing, "LARGE", (x.nbytes + y.nbytes) // 8 + more)

    def orchestrate(rt, x, y):
        rt.submit(aiv0=scaled, args=[npu.IN(x), npu.OUT(y)], block_num=blocks)

    run, divisions = runs_alike(lambda chip: chip.launch(orchestrate, x, y))
    assert run.outputs["y"][:ROWS].any()
    assert tuple(d.parts for d in divisions) == parts


@pytest.mark.parametrize(("much", "parts"), [(0.0, (2, 8)), (1e9, (1, 1))], ids=["long", "short"])
def test_what_is_known_to_take_long_is_divided_after_a_few_blocks(much, parts, monkeypatch):
    monkeypatch.setattr(dividing, "AFTER", 1e9)
    monkeypatch.setattr(dividing, "SOON", -1.0)
    monkeypatch.setattr(dividing, "MUCH", much)
    run, divisions = runs_alike(lambda chip: chip.launch(chain, *arrays()), many=(2, 8))
    assert run.outputs["z"].any()
    assert tuple(d.parts for d in divisions) == parts


def test_processes_of_compiled_kernels_are_not_copied(monkeypatch):
    monkeypatch.setattr(process, "begun", [1])
    run, divisions = runs_alike(lambda chip: chip.launch(chain, *arrays()))
    assert run.safe
    assert {(d.parts, d.why) for d in divisions} == {(1, "compiled kernels run in a process of their own")}


def test_reversed_order():
    run, divisions = runs_alike(lambda chip: chip.launch(chain, *arrays(), schedule="reversed"))
    assert [d.parts for d in divisions] == [2, 8]
    assert run.safe


def test_tasks_of_one_block_go_where_the_one_before_them_went():
    def one(core, x, y, at):
        scaled_part(core, x[at : at + ROWS], y[at : at + ROWS])
        core.pipe_sync()

    def orchestrate(rt, x, y, z):
        for i in range(8):
            first = rt.submit(aiv0=one, args=[npu.IN(x), npu.OUT(y), ROWS * i], deps=[])
            rt.submit(aiv0=one, args=[npu.IN(y), npu.OUT(z), ROWS * i], deps=[first])

    def scaled_part(core, x, y):
        tile = core.tile("UB", (ROWS, 64), "f32", 0)
        core.tload(tile, x)
        flag(core, "MTE2", "MTE3")
        core.tstore(y, tile)

    run, _ = runs_alike(lambda chip: chip.launch(orchestrate, *arrays()))
    assert run.status.name == "FINISHED"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("panel", find("paged_attention").panels if sampled.full() else FEW_PANELS)
def test_paged_attention(form, panel, monkeypatch):
    found = []
    # more processes than there are blocks for: of one panel, with --full of all
    for jobs in ("1", "2", *["16"] * (panel == FEW_PANELS[0] or sampled.full())):
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        found.append(everything(run_bench(find("paged_attention"), panel, {"form": form}, timed=True)))
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize("seed", range(sampled.examples(4, 250)))
def test_random_kernels(seed, monkeypatch):
    """With --full 500 programs, half of them with a planted bug."""
    for planted in ("", random_kernels.planted_bug(seed)):
        program = random_kernels.make(seed, planted)
        for schedule in ("canonical", "reversed")[seed % 2 :][: 1 + (seed < 6)]:
            found = []
            for jobs in ("1", "2", *["16"] * (seed == 0 or sampled.full())):
                monkeypatch.setenv("KERNBENCH_JOBS", jobs)
                found.append(everything(random_kernels.launch(program, schedule)))
            assert all(one == found[0] for one in found)


def undivided(orchestrate, *given, **options):
    """The run of a launch that several processes must leave to one."""
    run, divisions = runs_alike(lambda chip: chip.launch(orchestrate, *given, **options), (2,))
    assert divisions[0].parts == 1
    assert divisions[0].why
    return run


def test_a_race_of_blocks_is_found_as_in_one_process():
    def same(core, x, y):
        tile = core.tile("UB", (ROWS, 64), "f32", 0)
        core.tload(tile, x[:ROWS])
        flag(core, "MTE2", "MTE3")
        core.tstore(y[:ROWS], tile)
        core.pipe_sync()

    def orchestrate(rt, x, y, z):
        rt.submit(aiv0=same, args=[npu.IN(x), npu.OUT(y)], block_num=8)

    assert "race" in kinds(undivided(orchestrate, *arrays()))


def test_blocks_add_in_the_order_of_one_process():
    def adds(core, x, y):
        rows = slice(ROWS * core.block_idx, ROWS * (core.block_idx + 1))
        tile = core.tile("UB", (ROWS, 64), "f32", 0)
        core.tload(tile, x[rows])
        flag(core, "MTE2", "MTE3")
        core.tstore_add(y[:ROWS], tile)
        core.pipe_sync()

    def orchestrate(rt, x, y, z):
        rt.submit(aiv0=adds, args=[npu.IN(x), npu.INOUT(y)], block_num=8)

    assert undivided(orchestrate, *arrays()).safe


def test_the_orchestrator_reads_what_a_block_wrote():
    def orchestrate(rt, x, y, z):
        rt.submit(aiv0=scaled, args=[npu.IN(x), npu.OUT(y)], block_num=8)
        if rt.read(y, 8 * ROWS - 1, 0) != 0:
            rt.submit(aiv0=scaled, args=[npu.IN(y), npu.OUT(z)], block_num=8)

    assert np.any(undivided(orchestrate, *arrays()).outputs["z"])


def test_what_a_kernel_changes_outside_itself_is_kept():
    seen = []

    def notes(core, x, y):
        seen.append(core.block_idx)
        scaled(core, x, y)

    def orchestrate(rt, x, y, z):
        rt.submit(aiv0=notes, args=[npu.IN(x), npu.OUT(y)], block_num=8)

    undivided(orchestrate, *arrays())
    assert seen == [*range(8)] * 2


def test_what_a_kernel_prints_is_printed_once(capsys):
    def prints(core, x, y):
        print(core.block_idx)
        scaled(core, x, y)

    def orchestrate(rt, x, y, z):
        rt.submit(aiv0=prints, args=[npu.IN(x), npu.OUT(y)], block_num=8)

    undivided(orchestrate, *arrays())
    assert capsys.readouterr().out == "".join(f"{i}\n" for i in range(8)) * 2


def test_a_process_that_dies_is_no_loss():
    here = os.getpid()

    def dies(core, x, y):
        if os.getpid() != here and core.block_idx == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        scaled(core, x, y)

    def orchestrate(rt, x, y, z):
        rt.submit(aiv0=dies, args=[npu.IN(x), npu.OUT(y)], block_num=8)

    assert undivided(orchestrate, *arrays()).safe


def test_a_kernel_without_an_end():
    def spins(core, x, y):
        while core.block_idx == 5:
            core.pipe_barrier("V")

    def orchestrate(rt, x, y, z):
        rt.submit(aiv0=spins, args=[npu.IN(x), npu.OUT(y)], block_num=8)

    chip = npu.Chip("a2a3", jobs=2)
    run = chip.launch(orchestrate, *arrays(), budget=Budget(steps=2_000, seconds=60.0))
    assert kinds(run) == ["over-budget"]
    assert chip.division.parts == 1


def test_an_error_in_a_kernel_is_at_its_line():
    def wrong(core, x, y):
        if core.block_idx == 5:
            raise ValueError("five")
        scaled(core, x, y)

    def orchestrate(rt, x, y, z):
        rt.submit(aiv0=wrong, args=[npu.IN(x), npu.OUT(y)], block_num=8)

    (finding,) = undivided(orchestrate, *arrays()).findings
    assert (finding.kind, finding.where.function) == ("kernel-error", "wrong")
