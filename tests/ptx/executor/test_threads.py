"""Blocks by several threads: the same outcome, and what they do to each other's words is seen."""

import numpy as np
import pytest
from tests import sampled
from tests.ptx.executor.pipeline_programs import Kernel as Pipeline
from tests.ptx.executor.programs import THREADS
from tests.ptx.executor.programs import Kernel as Plain
from tests.ptx.executor.test_running import HEAD, LOAD, STORE
from tests.ptx.executor.test_warpgroups import outcome

from kernbench import ptx
from kernbench.ptx.executor import running

pytestmark = pytest.mark.fast_paths
BLOCKS = 24


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """However short the work is, others are called."""
    monkeypatch.setattr(running, "_ALONE", -1.0)


@pytest.fixture
def threads(monkeypatch):
    """How many threads each launch had that was run to its end."""
    found = []
    go = running._Run.go

    def counted(run):
        done = go(run)
        if done:
            found.append(len(run.states))
        return done

    monkeypatch.setattr(running._Run, "go", counted)
    return found


@pytest.mark.parametrize("seed", range(300 if sampled.full() else 12))
def test_random_kernels(seed):
    def launched(jobs):
        device, random = ptx.EmulatedDevice("sm_80"), np.random.default_rng(5)
        given = device.array(random.integers(0, 1 << 32, 4 * BLOCKS * THREADS, dtype=np.uint32), "given")
        out = device.array(np.full(4 * BLOCKS * THREADS, 3, np.uint32), "out")
        kernel = ptx.parse(Plain(seed).text).kernels["kernel"]
        return outcome(device.launch(kernel, BLOCKS, THREADS, [given, out], jobs=jobs), given, out)

    one = launched(1)
    assert all(launched(jobs) == one for jobs in (2, 3, 16))


@pytest.mark.parametrize("seed", range(100 if sampled.full() else 6))
def test_pipelines(seed):
    made = Pipeline(seed)

    def launched(jobs):
        device = ptx.EmulatedDevice("sm_90a")
        arguments, out = made.arguments(device, seed)
        code = ptx.parse(made.text).kernels["kernel"]
        options = {"shared_bytes": made.shared_bytes, "jobs": jobs}
        return outcome(device.launch(code, made.grid, made.threads, arguments, **options), out)

    one = launched(1)
    assert all(launched(jobs) == one for jobs in (2, 3))


def launched(body, jobs, blocks=BLOCKS):
    device = ptx.EmulatedDevice("sm_80")
    given = device.array(np.arange(64 * blocks, dtype=np.uint32), "given")
    out = device.array(np.zeros(64 * blocks, np.uint32), "out")
    kernel = ptx.parse(HEAD + body + "  ret;\n}\n").kernels["kernel"]
    return outcome(device.launch(kernel, blocks, 64, [given, out, 64 * blocks], jobs=jobs), given, out)


def test_clean_launches_are_run_by_several(threads):
    assert launched(LOAD + STORE, 3) == launched(LOAD + STORE, 1)
    assert threads == [3, 1]


FAULTS = {
    "a word of the next block": LOAD + "  st.global.u32 [%rd4+256], %r10;\n",
    "a word of all": LOAD + "  st.global.u32 [%rd1], %r3;\n",
    "read what another wrote": LOAD + STORE + "  ld.global.u32 %r11, [%rd1];\n  st.global.u32 [%rd4], %r11;\n",
    "a half of a word": LOAD + "  shr.u32 %r11, %r1, 1;\n  mul.wide.u32 %rd5, %r11, 4;\n  add.u64 %rd5, %rd5, %rd1;\n"
    "  st.global.u8 [%rd5], %r10;\n",
}


@pytest.mark.parametrize("body", FAULTS.values(), ids=FAULTS)
def test_what_blocks_do_to_each_other_is_found_each_time(body, threads):
    one = launched(body, 1)
    assert one[1]
    assert all(launched(body, jobs) == one for jobs in (2, 3) * 5)
    assert threads == []


def test_rows_that_several_blocks_write_are_as_before_after_a_suspect(threads):
    """Each block writes eight words of a row of memory; the last one is suspect, and all is taken back."""
    body = (
        "  setp.ge.u32 %p0, %r0, 8;\n  @%p0 bra DONE;\n  mad.lo.u32 %r3, %r1, 8, %r0;\n  mul.wide.u32 %rd2, %r3, 4;\n"
    )
    body += "  add.u64 %rd4, %rd1, %rd2;\n  ld.global.u32 %r10, [%rd4];\n  add.u32 %r10, %r10, 7;\n" + STORE
    body += f"  setp.eq.u32 %p1, %r1, {BLOCKS - 1};\n  @%p1 st.global.u32 [%rd1+{64 * 4 * BLOCKS}], %r10;\nDONE:\n"
    one = launched(body, 1)
    assert [finding[0] for finding in one[1]] == ["out-of-bounds"]
    assert all(launched(body, jobs) == one for jobs in (2, 3) * 5)
    assert threads == []


def test_the_order_of_atomics_is_that_of_one_thread(threads):
    body = LOAD + "  cvt.rn.f32.u32 %f0, %r3;\n  red.global.add.f32 [%rd1], %f0;\n"
    assert launched(body, 1) == launched(body, 3)
    assert threads == [1, 1]
