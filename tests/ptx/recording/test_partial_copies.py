"""cp.async of lanes that read nothing: what a loop that was pipelined copies beyond its end."""

import pytest
from tests.ptx.recording.kernels import events, recorded

from kernbench.ptx.recording.kinds import Kind

# warp w copies 16 bytes a lane; %r5 is how many of them each lane reads
BODY = """
  mul.wide.u32 %rd1, %r0, 16;
  add.u64 %rd1, %rd0, %rd1;
  mad.lo.u32 %r4, %r0, 16, %r8;
  {limit}
  cp.async.cg.shared.global [%r4], [%rd1], 16, %r5;
  cp.async.commit_group;
  cp.async.wait_group 0;
"""
ALL = "mov.u32 %r5, 16;"
NONE = "mov.u32 %r5, 0;"
FIRST_WARP = "setp.eq.u32 %p1, %r2, 0; selp.u32 %r5, 16, 0, %p1;"
HALF = "setp.lt.u32 %p1, %r1, 16; selp.u32 %r5, 16, 0, %p1;"


# the same said by a predicate of lanes that read nothing
NOBODY_IGNORES = "setp.lt.u32 %p2, %r0, 0;"
ALL_IGNORE = "setp.ge.u32 %p2, %r0, 0;"
SECOND_WARP_IGNORES = "setp.ne.u32 %p2, %r2, 0;"
HALF_IGNORE = "setp.ge.u32 %p2, %r1, 16;"
IGNORED = [(NOBODY_IGNORES, [16, 16]), (ALL_IGNORE, [0, 0]), (SECOND_WARP_IGNORES, [16, 0]), (HALF_IGNORE, [8, 8])]


@pytest.mark.parametrize(("ignore", "sectors"), IGNORED)
def test_lanes_that_ignore_their_source_read_nothing(ignore, sectors):
    recording = recorded(BODY.replace("16, %r5;", "16, %p2;").format(limit=ignore), block=64)
    found = [events(recording, Kind.ASYNC_COPY, warp=warp) for warp in (0, 1)]
    assert [[event.sectors for event in one] for one in found] == [[count] for count in sectors]


@pytest.mark.parametrize(("limit", "sectors"), [(ALL, [16, 16]), (NONE, [0, 0]), (FIRST_WARP, [16, 0]), (HALF, [8, 8])])
def test_sectors_are_those_of_lanes_that_read(limit, sectors):
    recording = recorded(BODY.format(limit=limit), block=64)
    found = [events(recording, Kind.ASYNC_COPY, warp=warp) for warp in (0, 1)]
    assert [[event.sectors for event in one] for one in found] == [[count] for count in sectors]
    assert all(event.wavefronts == 4 and event.lanes == 32 for one in found for event in one)
