"""Launches on several processes: the same outcome to the last bit as on one, whatever blocks have in common."""

import errno
import os
import signal
from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from benchmarks.ptx_jobs import SCHEDULES, compare, differences
from tests import sampled

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.engine import launch as launching
from kernbench.ptx.emulator.engine import splitting
from kernbench.ptx.emulator.engine.splitting import Division
from kernbench.ptx.reference.programs import changed_program, safe_program
from kernbench.safety.budget import Budget, OverBudgetError
from kernbench.safety.jobs import all_cores, allow, wanted_jobs
from kernbench.safety.processes import workers

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.fast_paths,
]

STORE = """
  mul.wide.u32 %rd0, %r3, 4;
  add.u64 %rd0, %rd0, %rd20;
  mad.lo.u32 %r5, %r3, 3, 7;
  st.global.u32 [%rd0], %r5;"""
# a loop of as many turns as the block has a number, so that pieces of a batch do not run alike
LOOP = """
  mov.u32 %r10, 0;
AGAIN:
  add.u32 %r10, %r10, 1;
  setp.le.u32 %p1, %r10, %r1;
  @%p1 bra AGAIN;
  mov.u32 %r5, %r10;
"""

# the second of two blocks waits for a copy before the barrier at which both end
ENDS_APART = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<4>; .reg .pred %p<4>; .reg .b64 %rd<4>;
  .shared .align 16 .b8 data[64]; .shared .align 8 .b8 bar[8];
  ld.param.u64 %rd1, [p];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, bar; mov.u32 %r3, data;
  setp.eq.u32 %p2, %r1, 0;
  @%p2 bra LAST;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [%r2], 1;
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r2], 64;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 64, [%r2];
READY:
  bar.sync 1;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p3, [%r2], 0;
  @!%p3 bra WAIT;
LAST:
  bar.sync 0;
  ret;
}
"""

# every thread stores to two arrays, loops, and adds one to what it stored in the first
STORES_AND_LOOPS = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p, .param .u64 q)
{
  .reg .b32 %r<8>; .reg .pred %p<2>; .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x;
  mad.lo.u32 %r2, %r1, 32, %r0;
  mul.wide.u32 %rd3, %r2, 4;
  add.u64 %rd4, %rd3, %rd2;
  add.u64 %rd3, %rd3, %rd1;
  add.u32 %r3, %r2, 1;
  st.global.u32 [%rd3], %r3;
  st.global.u32 [%rd4], %r3;
  mov.u32 %r5, 0;
AGAIN:
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p1, %r5, 300;
  @%p1 bra AGAIN;
  ld.global.u32 %r4, [%rd3];
  add.u32 %r4, %r4, 1;
  st.global.u32 [%rd3], %r4;
  ret;
}
"""

# one thread of every block begins a bulk store of what all threads stored to shared memory, and waits after a loop
STORES_IN_BULK = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<8>; .reg .pred %p<4>; .reg .b64 %rd<4>;
  .shared .align 16 .b8 data[128];
  ld.param.u64 %rd1, [p];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, data;
  mad.lo.u32 %r3, %r1, 32, %r0;
  shl.b32 %r4, %r0, 2;
  add.u32 %r4, %r4, %r2;
  st.shared.u32 [%r4], %r3;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  mul.wide.u32 %rd2, %r1, 128;
  add.u64 %rd2, %rd2, %rd1;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra BEHIND;
  cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 128;
  cp.async.bulk.commit_group;
BEHIND:
  mov.u32 %r5, 0;
AGAIN:
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p2, %r5, 300;
  @%p2 bra AGAIN;
  @%p1 bra DONE;
  cp.async.bulk.wait_group 0;
DONE:
  ret;
}
"""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Every launch is worth dividing, a batch has two blocks of 32 threads, and nothing is remembered."""
    monkeypatch.setattr(splitting, "WORTH", 0.0)
    monkeypatch.setattr(splitting, "FIXED_THREADS", 0)
    monkeypatch.setattr(launching, "_LANES", 64)
    splitting.forget()


def both(lab, body, *arrays, grid=8, jobs=2, **options):
    """A launch on one process and one on several, which must not differ; the second one, and how it was divided."""
    runs = []
    for many in (1, jobs):
        run = lab.launch(body, *arrays, grid=grid, jobs=many, **options)
        runs.append((run, [array.numpy() for array in lab.arrays]))
        lab.device.close()
    (one, before), (two, after) = runs
    assert differences(one, two) == []
    assert one.to_dict() == two.to_dict()
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    return two, lab.device.division


@pytest.mark.parametrize("jobs", [2, 3, 16])
def test_blocks_with_nothing_in_common_run_apart(lab, jobs):
    run, division = both(lab, STORE, np.zeros(256, np.uint32), jobs=jobs)
    assert division.workers == min(jobs, division.parts)
    assert division.reason == ""
    # four batches of two blocks: whole, three whole and one in two pieces, or all in two pieces
    assert division.parts == {2: 4, 3: 5, 16: 8}[jobs]
    assert run.outputs["array0"].tolist() == [3 * n + 7 for n in range(256)]


def test_batches_whose_pieces_differ_are_divided(lab):
    _, division = both(lab, LOOP + STORE, np.zeros(256, np.uint32), jobs=8)
    assert (division.workers, division.parts) == (8, 8)


def test_what_only_ends_lanes_behind_a_barrier_counts_for_none(monkeypatch):
    """The first block comes to its last barrier while the second waits for a copy, and ends as it would alone."""
    counts = []
    for lanes in (64, 128):
        monkeypatch.setattr(launching, "_LANES", lanes)
        device = ptx.EmulatedDevice("sm_90a")
        run = device.launch(ptx.parse(ENDS_APART).kernels["k"], 2, 64, [device.array(np.zeros(16, np.uint32))], jobs=1)
        assert run.findings == []
        counts.append(run.metrics)
    assert counts[0]["thread_instructions"] == counts[1]["thread_instructions"]
    assert counts[0]["instructions_by_kind"] == counts[1]["instructions_by_kind"]


@pytest.mark.parametrize(("grid", "jobs", "parts"), [(6, 2, 4), (10, 2, 6), (10, 4, 6), (14, 3, 8), (12, 5, 7)])
def test_batches_are_whole_until_fewer_are_left_than_workers(lab, grid, jobs, parts):
    """Of three batches for two workers the last is run in two pieces, and all count what one core does."""
    _, division = both(lab, LOOP + STORE, np.zeros(32 * grid, np.uint32), grid=grid, jobs=jobs)
    assert (division.workers, division.parts) == (jobs, parts)


@pytest.mark.parametrize(
    ("narrow", "cost", "parts"), [(64, 1, [2, 2, 4, 2, 2]), (64, -1, [2, 2, 4, 4, 4]), (65, -1, [2] * 5)]
)
def test_parts_of_half_the_width_are_tried_and_kept_if_they_take_less(monkeypatch, narrow, cost, parts):
    """Every part takes as long, or so much less than nothing: then more parts of fewer threads are dear, or cheap."""

    def program(ctx):
        ctx.store(ctx.pointer("out_ptr", "u32"), ctx.global_index(), ctx.global_index())

    monkeypatch.setattr(launching, "_LANES", 128)
    monkeypatch.setattr(splitting, "_NARROW", narrow)
    monkeypatch.setattr(splitting, "_computed", count(0, cost).__next__)
    device = ptx.EmulatedDevice()
    out, kernel = device.empty(256, np.uint32, "out"), ptx.PtxKernel("k").param("u64", "out_ptr").build(program)
    alone = device.launch(kernel, 8, 32, [out], jobs=1)
    found = []
    for _ in parts:
        run = device.launch(kernel, 8, 32, [out], jobs=2)
        assert differences(alone, run) == []
        found.append(device.division.parts)
    assert found == parts


def test_pieces_that_print_run_whole(lab):
    outside = """.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 text[5] = {37, 117, 32, 10, 0};"""
    body = (
        STORE
        + """
  .local .align 8 .b8 stack[8];
  .reg .b64 %s<3>;
  mov.u64 %s0, stack;
  cvta.local.u64 %s1, %s0;
  st.local.u32 [stack], %r3;
  mov.u64 %s2, text;
  {
    .param .b64 a; .param .b64 b; .param .b32 r;
    st.param.b64 [a], %s2;
    st.param.b64 [b], %s1;
    call.uni (r), vprintf, (a, b);
  }"""
    )
    run, division = both(lab, body, np.zeros(256, np.uint32), jobs=8, outside=outside)
    assert division.parts == 4
    assert len(run.views["printf"]) == 256


def test_a_race_between_blocks_of_different_parts_is_found(lab):
    body = """
  rem.u32 %r6, %r1, 7;
  setp.eq.u32 %p1, %r6, 0;
  @%p1 st.global.u32 [%rd20], %r1;"""
    run, division = both(lab, body, np.zeros(4, np.uint32), block=1)
    assert [finding.kind for finding in run.findings] == ["race"]
    assert division.workers == 1


def test_a_read_of_what_a_later_block_writes_is_found(lab):
    body = """
  setp.eq.u32 %p1, %r1, 7;
  @%p1 st.global.u32 [%rd20+64], %r1;
  setp.eq.u32 %p2, %r1, 0;
  @%p2 ld.global.u32 %r5, [%rd20+64];
  @%p2 st.global.u32 [%rd20], %r5;"""
    run, division = both(lab, body, np.zeros(64, np.uint32), block=1)
    assert [finding.kind for finding in run.findings] == ["race"]
    assert division.workers == 1


@pytest.mark.parametrize("instruction", ["red.global.add.f32 [%rd20], %f1;", "atom.global.add.f32 %f2, [%rd20], %f1;"])
def test_sums_of_floats_are_added_in_the_order_of_one_core(lab, instruction):
    body = f"""
  cvt.rn.f32.u32 %f1, %r3;
  rcp.approx.f32 %f1, %f1;
  setp.gt.u32 %p1, %r3, 0;
  @%p1 {instruction}"""
    run, division = both(lab, body, np.zeros(4, np.float32))
    assert run.findings == []
    assert division.workers == 1


def test_blocks_that_wait_for_each_other_run_on_one_core(lab):
    body = """
  ld.acquire.gpu.global.u32 %r6, [%rd20];
WAIT:
  setp.eq.u32 %p1, %r1, 7;
  @%p1 bra SET;
  ld.acquire.gpu.global.u32 %r6, [%rd20];
  setp.eq.u32 %p2, %r6, 0;
  @%p2 bra WAIT;
  bra DONE;
SET:
  st.release.gpu.global.u32 [%rd20], 1;
DONE:"""
    run, division = both(lab, body, np.zeros(4, np.uint32), block=1)
    assert run.findings == []
    assert division.reason == "blocks wait for each other"


def test_a_finding_in_one_part_is_reported_as_on_one_core(lab):
    body = (
        """
  setp.ge.u32 %p1, %r1, 5;
  @%p1 ld.global.u32 %r6, [%rd20+4096];"""
        + STORE
    )
    run, division = both(lab, body, np.zeros(256, np.uint32))
    assert [(finding.kind, finding.count) for finding in run.findings] == [("out-of-bounds", 96)]
    assert division.reason == "found something"


def test_a_clock_counts_all_blocks(lab):
    body = """
  mov.u32 %r5, %clock;
  mul.wide.u32 %rd0, %r3, 4;
  add.u64 %rd0, %rd0, %rd20;
  st.global.u32 [%rd0], %r5;"""
    _, division = both(lab, body, np.zeros(256, np.uint32))
    assert "clock" in division.reason


def test_what_was_refused_is_not_tried_again(lab, monkeypatch):
    body = "\n  st.global.u32 [%rd20], 1;"
    both(lab, body, np.zeros(4, np.uint32), block=1)
    monkeypatch.setattr(workers.Workers, "add", lambda *given: pytest.fail("a worker was made"))
    both(lab, body, np.zeros(4, np.uint32), block=1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"checks": False}, "checked"),
        ({"schedule": 3}, "random"),
        ({"record": True}, "records"),
        ({"order": True}, "order"),
    ],
)
def test_what_is_not_divided(lab, options, reason):
    lab.launch(STORE, np.zeros(256, np.uint32), grid=8, jobs=2, **options)
    assert reason in lab.device.division.reason


def test_a_launch_that_is_not_worth_it_makes_no_worker(lab, monkeypatch):
    monkeypatch.setattr(splitting, "WORTH", 1000.0)
    monkeypatch.setattr(workers.Workers, "add", lambda *given: pytest.fail("a worker was made"))
    lab.launch(STORE, np.zeros(256, np.uint32), grid=8, jobs=2)
    assert lab.device.division == Division()


@pytest.mark.parametrize("turns", [8, 300])
def test_a_long_first_batch_is_begun_again_in_parts(lab, monkeypatch, turns):
    """One of few blocks of a program, too: they may take long."""
    body = (
        f"""
  mov.u32 %r10, 0;
AGAIN:
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p1, %r10, {turns};
  @%p1 bra AGAIN;"""
        + STORE
    )
    monkeypatch.setattr(launching, "_LANES", 512)
    monkeypatch.setattr(splitting, "WORTH", 1000.0)
    monkeypatch.setattr(splitting, "PATIENCE", 0.0)
    _, division = both(lab, body, np.zeros(256, np.uint32))
    assert division.workers == 2


@pytest.mark.parametrize(
    ("empty", "written", "workers"), [(True, "empty", 2), (True, "whole", 1), (True, "part", 1), (False, "empty", 1)]
)
def test_what_a_long_first_batch_wrote_is_taken_back_where_nobody_had_written(monkeypatch, empty, written, workers):
    """Blocks store, then loop, and add to what they stored; `other` has been written before, if at all in part."""
    monkeypatch.setattr(launching, "_LANES", 512)
    monkeypatch.setattr(splitting, "WORTH", 1000.0)
    monkeypatch.setattr(splitting, "PATIENCE", 0.0)
    runs, kernel = [], ptx.parse(STORES_AND_LOOPS).kernels["k"]
    for jobs in (1, 2):
        device = ptx.EmulatedDevice("sm_90a")
        out = device.empty(256, np.uint32, "out") if empty else device.array(np.ones(256, np.uint32), "out")
        other = device.empty(256, np.uint32, "other")
        if written != "empty":
            device.launch(kernel, 8 if written == "whole" else 1, 32, [other, device.empty(256, np.uint32)], jobs=1)
            splitting.forget()
        run = device.launch(kernel, 8, 32, [out, other], jobs=jobs)
        runs.append((run, out.numpy().tolist(), other.numpy().tolist()))
    assert device.division.workers == workers
    assert differences(runs[0][0], runs[1][0]) == []
    assert runs[0][0].to_dict() == runs[1][0].to_dict()
    assert runs[0][1:] == runs[1][1:]
    assert runs[0][1] == [number + 2 for number in range(256)]


@pytest.mark.parametrize("written", [False, True])
def test_a_long_first_batch_with_stores_in_flight_is_begun_again_in_parts(monkeypatch, written):
    """They have been asked for within the time after which it is looked at, and have changed nothing yet."""
    monkeypatch.setattr(launching, "_LANES", 512)
    monkeypatch.setattr(splitting, "WORTH", 1000.0)
    runs, kernel = [], ptx.parse(STORES_IN_BULK).kernels["k"]
    looks, look = [], splitting.Splitting._look

    def later(self):
        # by then all lanes are in the loop
        looks.append(self)
        monkeypatch.setattr(splitting, "PATIENCE", 1000.0 if len(looks) < 40 else 0.0)
        look(self)

    monkeypatch.setattr(splitting.Splitting, "_look", later)
    for jobs in (1, 2):
        device = ptx.EmulatedDevice("sm_90a")
        out = device.array(np.ones(256, np.uint32), "out") if written else device.empty(256, np.uint32, "out")
        runs.append((device.launch(kernel, 8, 32, [out], jobs=jobs).to_dict(), out.numpy().tolist()))
    assert device.division.workers == (1 if written else 2)
    assert runs[0] == runs[1]
    assert runs[0][1] == list(range(256))


@pytest.mark.parametrize("name", ["pipe", "fork"])
def test_a_launch_goes_on_alone_where_the_system_has_no_more_processes_or_files(monkeypatch, name):
    """Also one that was begun again for the parts, and has taken back what it wrote."""
    monkeypatch.setattr(launching, "_LANES", 512)
    monkeypatch.setattr(splitting, "PATIENCE", 0.0)
    runs, kernel = [], ptx.parse(STORES_AND_LOOPS).kernels["k"]

    def scarce():
        raise OSError(errno.EMFILE, "planted")

    monkeypatch.setattr(os, name, scarce)
    for jobs in (1, 2):
        device = ptx.EmulatedDevice("sm_90a")
        out, other = (device.empty(256, np.uint32, name) for name in ("out", "other"))
        run = device.launch(kernel, 8, 32, [out, other], jobs=jobs)
        runs.append((run.to_dict(), out.numpy().tolist(), other.numpy().tolist()))
    assert runs[0] == runs[1]
    assert device.division == Division(reason="the system has no more processes or files")


def test_a_launch_that_reads_what_nobody_wrote_says_so_though_it_wrote_first(monkeypatch):
    """What was taken back is unwritten again: a block that reads what a later one writes is found all the same."""
    monkeypatch.setattr(launching, "_LANES", 512)
    monkeypatch.setattr(splitting, "PATIENCE", 0.0)
    text = STORES_AND_LOOPS.replace("ld.global.u32 %r4, [%rd3];", "ld.global.u32 %r4, [%rd3+128];")
    runs, kernel = [], ptx.parse(text).kernels["k"]
    for jobs in (1, 2):
        device = ptx.EmulatedDevice("sm_90a")
        out, other = (device.empty(288, np.uint32, name) for name in ("out", "other"))
        runs.append(device.launch(kernel, 8, 32, [out, other], jobs=jobs))
    assert runs[0].findings
    assert runs[0].to_dict() == runs[1].to_dict()


def test_a_budget_of_steps_holds_for_all_parts_together(lab):
    alone = lab.launch(STORE, np.zeros(256, np.uint32), grid=8)
    lab.device.close()
    budget = Budget(steps=alone.metrics["steps"] - 1, seconds=600.0)
    run, division = both(lab, STORE, np.zeros(256, np.uint32), budget=budget)
    assert [finding.kind for finding in run.findings] == ["over-budget"]
    assert division.workers == 1


@pytest.mark.parametrize(("late", "reason"), [(False, "found OverBudgetError"), (True, splitting._LATE)])
def test_a_budget_that_a_worker_uses_up_is_looked_at_on_one_core(lab, monkeypatch, late, reason):
    me, original = os.getpid(), launching.Launch.run_batch

    def long(launch, ctas):
        if os.getpid() != me:
            if late:
                launch.meter.renew(-1.0)
            raise OverBudgetError("all of it")
        return original(launch, ctas)

    monkeypatch.setattr(launching.Launch, "run_batch", long)
    run, division = both(lab, STORE, np.zeros(256, np.uint32))
    assert run.findings == []
    assert (division.workers, division.reason) == (1, reason)


def children():
    """Processes that this one made and that are not gone; other tests may have some."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, *_ = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(parent) == os.getpid():
            found.add(entry.parent.name)
    return found


def test_a_worker_that_is_killed_is_an_error(lab, monkeypatch):
    before = children()
    me, original = os.getpid(), launching.Launch.run_batch

    def killed(launch, ctas):
        if os.getpid() != me and 5 in ctas:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(launch, ctas)

    monkeypatch.setattr(launching.Launch, "run_batch", killed)
    with pytest.raises(workers.DeadWorkerError, match=r"signal 9.*jobs=1"):
        lab.launch(STORE, np.zeros(256, np.uint32), grid=8, jobs=3)
    assert children() <= before
    monkeypatch.undo()
    assert lab.launch(STORE, np.zeros(256, np.uint32), grid=8).findings == []


def test_an_error_in_a_worker_comes_again_on_one_core(lab, monkeypatch):
    me, original = os.getpid(), launching.Launch.run_batch

    def broken(launch, ctas):
        if os.getpid() != me:
            raise MemoryError
        return original(launch, ctas)

    monkeypatch.setattr(launching.Launch, "run_batch", broken)
    run, division = both(lab, STORE, np.zeros(256, np.uint32))
    assert run.findings == []
    assert division.reason == "found MemoryError"


# with --full some 500 programs, safe and changed
@pytest.mark.parametrize("seed", range(260) if sampled.full() else range(0, 20, 5))
def test_random_programs_are_the_same_on_any_number_of_processes(seed, monkeypatch):
    for number, program in enumerate((safe_program(seed), changed_program(seed))):
        if program is not None:
            monkeypatch.setattr(launching, "_LANES", 64)
            schedule, many = SCHEDULES[seed % 3], (2, 16) if seed % 4 == 0 or sampled.full() else (3,)
            assert compare(program, schedule, 1 + (seed + number) % 2, Counter(), many) == []


def test_how_many_processes(monkeypatch):
    monkeypatch.setenv("KERNBENCH_JOBS", "3")
    assert (wanted_jobs(None), wanted_jobs(2), wanted_jobs(0)) == (3, 2, all_cores())
    allow(5)
    assert wanted_jobs(None) == 5
    monkeypatch.delenv("KERNBENCH_JOBS")
    assert wanted_jobs(None) == 1
    for wrong in (-1, True, "many", 1.5):
        with pytest.raises(MisuseError, match="whole number of processes"):
            wanted_jobs(wrong)
