"""Of large arrays only what was touched is looked at."""

import numpy as np
import pytest
from tests.ptx.corpus import kernel_text

from kernbench import ptx
from kernbench.ptx.emulator.memory.pages import touched
from kernbench.ptx.emulator.memory.pages.allocation import sparse_bytes
from kernbench.ptx.emulator.memory.pages.large import PAGE
from kernbench.ptx.emulator.memory.pages.touched import touched_rows

GIB = 1 << 30


def test_rows_that_were_written_are_among_them():
    rows = sparse_bytes(64 * GIB).view(np.uint64).reshape(-1, 8)[5:]
    if touched_rows(rows) == [slice(0, len(rows))]:
        pytest.skip("this system does not say which pages were touched")
    assert touched_rows(rows) == []
    written = [0, 1_000_000, 1_000_001, 700_000_000, len(rows) - 1]
    rows[written] = 1
    found = touched_rows(rows)
    assert all(any(part.start <= row < part.stop for part in found) for row in written)
    assert all(0 <= part.start < part.stop <= len(rows) for part in found)
    # a page for each, and one more where they lie close together
    assert sum(part.stop - part.start for part in found) <= 2 * len(written) * (PAGE // 64)


def test_all_rows_where_the_system_does_not_say(monkeypatch):
    def refused(*_):
        raise OSError

    monkeypatch.setattr(touched, "_held", refused)
    rows = sparse_bytes(GIB).view(np.uint64).reshape(-1, 8)
    assert touched_rows(rows) == [slice(0, len(rows))]


# of the first warp the lanes from 16 on end after their store; behind a barrier the second warp reads what all stored
ENDED = """
ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;
setp.ge.u32 %p1, %r1, 32;
@%p1 bra second;
st.global.u32 [%rd1], %r1;
setp.ge.u32 %p2, %r1, 16;
@%p2 exit;
second:
bar.sync 0;
@!%p1 bra end;
ld.global.u32 %r3, [%rd1];
end:
"""


@pytest.mark.parametrize("elements", [64, 80 << 20])
def test_what_ended_lanes_did_is_found_in_a_large_array_as_well(elements):
    device = ptx.EmulatedDevice("sm_100a")
    out = device.array(np.zeros(elements, np.uint32), "out")
    run = device.launch(ptx.parse(kernel_text(ENDED)), 1, 64, [out])
    assert [finding.kind for finding in run.findings] == ["race"]
    assert run.findings[0].count == 16
    assert "has ended since" in run.findings[0].message
