"""Divisions whose machine code calls a routine: which numbers do that, and that it is recorded and joined."""

import numpy as np
import pytest
from tests.ptx.recording.kernels import events, recorded
from tests.ptx.sass.tools import needs_tools

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.slow_paths import leaves
from kernbench.ptx.sass.join.making import streams_of

BODY = """
  .reg .f32 %f<8>;
  and.b32 %r5, %r0, %r9;
  cvt.rn.f32.u32 %f0, %r5;
  cvt.rn.f32.u32 %f1, %r9;
  add.f32 %f1, %f1, 0f3F800000;
  {op}
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd0, %rd1;
  st.global.f32 [%rd1], %f2;
"""
DIVIDED = BODY.format(op="div.rn.f32 %f2, %f0, %f1;")


@pytest.mark.parametrize(
    ("opcode", "kind", "fast", "slow"),
    [
        ("div", np.float32, [(1, 3), (-5, 1e-20), (1e20, 7)], [(0, 3), (1, 0), (1e-38, 1), (np.inf, 2), (1, np.nan)]),
        ("div", np.float64, [(1, 3), (1e-200, 1e-100)], [(0, 3), (1, 0), (1e-300, 1), (1, np.inf)]),
        ("rcp", np.float32, [(1,), (-1e30,)], [(0,), (3e38,), (1e-40,)]),
        ("rcp", np.float64, [(1,), (1e300,)], [(0,), (1e-310,), (np.inf,)]),
        ("sqrt", np.float32, [(1,), (1e-30,), (3e38,)], [(0,), (-1,), (1e-32,), (np.inf,)]),
        ("sqrt", np.float64, [(1,), (1e-200,)], [(0,), (-1,), (np.inf,)]),
    ],
)
def test_numbers_that_leave_the_short_way(opcode, kind, fast, slow):
    columns = [np.array(column, kind) for column in zip(*fast, *slow, strict=True)]
    found = leaves(opcode, np.dtype(kind).itemsize, columns, len(fast) + len(slow))
    assert found.tolist() == [False] * len(fast) + [True] * len(slow)


def test_only_lanes_whose_numbers_are_unusual_are_recorded():
    # number 7: lanes whose low three bits are 0 divide 0
    (event,) = events(recorded(DIVIDED, number=7), Kind.SLOW_PATH)
    assert (event.lanes, event.opcode) == (4, "div.rn.f32")
    of_few = BODY.format(op="or.b32 %r5, %r5, 1; cvt.rn.f32.u32 %f0, %r5; div.rn.f32 %f2, %f0, %f1;")
    assert not events(recorded(of_few, number=7), Kind.SLOW_PATH)
    assert not events(recorded(BODY.format(op="div.approx.f32 %f2, %f0, %f1;"), number=7), Kind.SLOW_PATH)


@needs_tools
def test_the_routine_is_in_the_stream_where_it_was_called():
    def issued(text: str) -> list[str]:
        streams = streams_of(recorded(text, number=7), "sm_90a")
        ops, _ = streams.of_trace(0)
        assert streams.joined == 1
        return [streams.ops.mnemonic[op] for op in ops.tolist()]

    plain = BODY.format(op="or.b32 %r5, %r5, 1; cvt.rn.f32.u32 %f0, %r5; div.rn.f32 %f2, %f0, %f1;")
    called, straight = issued(DIVIDED), issued(plain)
    assert any(one.startswith("CALL") for one in called)
    assert not any(one.startswith("CALL") for one in straight)
    assert len(called) > len(straight) + 10
