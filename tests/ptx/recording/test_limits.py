"""What a recording may take, and what it is refused with."""

import numpy as np
import pytest
from tests.ptx.recording.kernels import HEAD, recorded

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.devices import device as devices
from kernbench.ptx.recording.launch import RecordedLaunch
from kernbench.ptx.recording.store import Store
from kernbench.safety.budget import Budget


def launch(body, grid=1, **more):
    device = ptx.EmulatedDevice("sm_90a")
    array = device.array(np.zeros(64, np.uint32), "array")
    kernel = ptx.parse(HEAD + body + "\n  ret;\n}\n")
    return device.launch(kernel, grid, 32, [array, 100], record=True, **more)


# block n goes round n times
UNEVEN = """
  mov.u32 %r4, 0;
LOOP:
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, %r3;
  @%p1 bra LOOP;
"""


def test_a_recording_that_grows_too_large_says_what_to_cut(monkeypatch):
    monkeypatch.setattr(devices, "RecordedLaunch", lambda program: RecordedLaunch(program, 1 << 20))
    with pytest.raises(MisuseError, match=r"'kernel' takes more than 1 MB after .* record a launch of fewer blocks"):
        launch(UNEVEN, 1000)


def test_equal_blocks_take_no_more_memory_however_many(monkeypatch):
    body = "mov.u32 %r4, 0;\nLOOP:\n add.u32 %r4, %r4, 1;\n setp.lt.u32 %p1, %r4, %r9;\n @%p1 bra LOOP;"
    asked = []
    require = Store.require
    monkeypatch.setattr(Store, "require", lambda self, more: (asked.append(self._nbytes + more), require(self, more)))
    recording = recorded(body, 40, grid=10_000)
    assert (recording.ctas, recording.classes, len(recording.traces.block)) == (10_000, 1, 42)
    assert recording.warp_steps == 10_000 * 42
    assert max(asked) < 1 << 20


def test_launches_that_do_not_finish_have_no_recording():
    endless = launch("LOOP:\n add.u32 %r4, %r3, 1;\n bra.uni LOOP;", budget=Budget(steps=1000, seconds=60.0))
    assert endless.recording is None
    assert launch("setp.eq.u32 %p1, %r0, 0;\n @%p1 bar.sync 0, 64;", checks=False).recording is None


def test_recording_and_order_are_two_launches():
    with pytest.raises(MisuseError, match="record=True has a launch of its own"):
        launch("", order=True)


def test_a_launch_without_checks_is_recorded_as_well():
    one, two = recorded(UNEVEN, grid=5), recorded(UNEVEN, grid=5, checks=False)
    assert one.traces.block.tolist() == two.traces.block.tolist()
    assert one.cta_class.tolist() == two.cta_class.tolist() == [0, 0, 1, 2, 3]


def test_what_is_said_of_a_recording():
    recording = recorded(UNEVEN, grid=5)
    assert repr(recording) == ("<LaunchRecording of 'kernel': 5 CTAs of 4 classes, 21 steps of warps in 18 rows>")
    assert recording.nbytes > 0
    assert recording.instructions.opcode[:2] == ("ld.param.u64", "ld.param.u32")
    assert (recording.entry, recording.arch, recording.grid) == ("kernel", "sm_90a", (5, 1, 1))


@pytest.mark.parametrize(
    "body",
    [
        "mov.u64 %rd1, -1;\n st.global.u8 [%rd1], %r0;",
        "mov.u64 %rd1, 0x7fffffffffffffff;\n ld.u32 %r4, [%rd1];",
        "mov.u32 %r4, 0xffffffff;\n ld.shared.u32 %r5, [%r4];",
        "setp.eq.u32 %p1, %r1, 3;\n @%p1 trap;\n bar.sync 0;",
        "mov.u32 %r4, 0xfffffff8;\n mbarrier.arrive.shared.b64 _, [%r4];",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%rd0], 1024, [full];",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd0+999999], [%r8+40000], 64;",
    ],
)
def test_kernels_with_faults_are_recorded_with_their_findings(body):
    run = launch(body, grid=2)
    assert run.findings
    assert run.recording.ctas == 2
