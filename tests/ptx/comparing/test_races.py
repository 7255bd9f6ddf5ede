"""Launches whose result depends on which thread comes last: the race is named, not an instruction."""

import numpy as np
import pytest
from tests.ptx.comparing.planted import Planted
from tests.ptx.comparing.test_search import HEAD, sides

from kernbench import ptx
from kernbench.ptx.comparing.devices import DeviceSide, Given
from kernbench.ptx.comparing.launches import compare_launch
from kernbench.ptx.comparing.search import Launched
from kernbench.ptx.comparing.verdicts import DIFFERENT, ORDER

# all lanes write to one word at once, and read it: of the 32 values one stays
ALL_AT_ONCE = (
    HEAD
    + """.visible .entry k(.param .u64 y)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>;
  .shared .align 4 .b8 word[4];
  ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x;
  mov.u32 %r2, word;
  add.u32 %r3, %r2, 0;
  st.shared.u32 [%r3], %r1;
  bar.sync 0;
  ld.shared.u32 %r4, [%r3];
  mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r4;
  ret;
}
"""
)


class LowestLane(Planted):
    """A device on which the lowest lane's value stays, and whose shared memory begins elsewhere."""

    def __init__(self):
        store = "st.shared.u32 [%r3], %r1;"
        super().__init__(store, f"{{ .reg .pred %lowest; setp.eq.u32 %lowest, %r1, 0; @%lowest {store} }}")

    def launch(self, kernel, *args, **options):
        text = kernel.emit().replace(".shared .align 4 .b8 word[4];", ".shared .b8 before[64]; .shared .b8 word[4];")
        return super().launch(ptx.parse(text).kernels[kernel.name], *args, **options)


def compared():
    def given(device):
        arrays = {"y": device.array(np.zeros(32, np.uint32))}
        return Given(list(arrays.values()), arrays)

    launched = Launched(ptx.parse(ALL_AT_ONCE).kernels["k"], (1, 1, 1), (32, 1, 1), ("y",))
    return compare_launch(launched, *sides(given, (32, 1, 1), LowestLane))


def test_lanes_that_write_to_the_same_bytes_at_once_are_a_race():
    verdict = compared()
    assert verdict.outcome == ORDER
    assert "the launch has a race: `st.shared.u32 [%r3], %r1;`" in verdict.reason


def test_an_address_that_each_device_chooses_is_not_blamed(monkeypatch):
    monkeypatch.setattr(DeviceSide, "races", lambda side, kernel: [])
    verdict = compared()
    assert verdict.outcome == DIFFERENT
    assert verdict.first["text"].startswith("ld.shared.u32 %r4")
    assert verdict.first["note"] == "the value came from memory or from another thread: it differed there before"


@pytest.mark.parametrize("race", [True, False])
def test_what_cannot_be_checked_is_searched(monkeypatch, race):
    from kernbench.ptx.comparing.launches import NotComparedError

    def races(side, kernel):
        if not race:
            raise NotComparedError("out of time")
        return ["one", "another"]

    monkeypatch.setattr(DeviceSide, "races", races)
    verdict = compared()
    assert verdict.outcome == (ORDER if race else DIFFERENT)
    assert ("the launch has a race: one (and 1 more)" in verdict.reason) == race
