"""cp.async of lanes with which nothing is the matter, read by one loop, says and does what one load for all does."""

import random

import numpy as np
import pytest
from tests import sampled

from kernbench.ptx import EmulatedDevice, parse
from kernbench.ptx.emulator.asynchronous.copies.copies import Copies

pytestmark = pytest.mark.fast_paths


def program(seed):
    """Warps that copy words to shared memory, wait or do not, and read it; some copies are partial or reach outside."""
    rng = random.Random(seed)
    lines = []
    for number in range(rng.randrange(1, 5)):
        size = rng.choice((4, 8, 16))
        step = rng.choice((size, size, size, 16))
        limit = rng.choice(("", "", f", {size}", ", 0", ", %r5", ", %r6", ", 3"))
        shift = rng.choice((0, 0, 0, size, 1 << 20, 2, 1024))
        guard = rng.choice(("", "", "", "@%p0 "))
        place = rng.choice((0, 0, 512 * number))
        cache = "cg" if size == 16 else "ca"
        lines += [
            f"mul.wide.u32 %d1, %r0, {step}; add.u64 %d1, %d1, %d0; mul.lo.u32 %r7, %r0, {size};",
            f"add.u32 %r7, %r7, %r1; {'shr.u32 %r7, %r7, 5; shl.b32 %r7, %r7, 5;' if rng.random() < 0.1 else ''}",
            f"{guard}cp.async.{cache}.shared.global [%r7+{place}], [%d1+{shift}], {size}{limit};",
        ]
        if rng.random() < 0.6:
            lines.append("cp.async.commit_group;")
        if rng.random() < 0.3:
            lines.append(f"cp.async.wait_group {rng.randrange(2)};")
    lines += [rng.choice(("cp.async.wait_all;", "cp.async.wait_all;", "cp.async.wait_group 1;", ""))]
    lines += ["bar.sync 0;"] if rng.random() < 0.8 else []
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 given, .param .u64 out)
{{
.reg .b32 %r<12>; .reg .b64 %d<4>; .reg .pred %p<2>;
.shared .align 16 .b8 tile[4096];
mov.u32 %r0, %tid.x; mov.u32 %r1, tile; and.b32 %r2, %r0, 1; setp.eq.u32 %p0, %r2, 0;
mul.lo.u32 %r5, %r2, 16; and.b32 %r6, %r0, 15;
ld.param.u64 %d0, [given];
{chr(10).join(lines)}
shl.b32 %r8, %r0, 2; xor.b32 %r9, %r8, 64; add.u32 %r9, %r9, %r1; ld.shared.b32 %r10, [%r9];
ld.param.u64 %d2, [out]; cvt.u64.u32 %d3, %r8; add.u64 %d2, %d2, %d3; st.global.b32 [%d2], %r10;
ret;
}}
"""
    return text, rng.choice(("canonical", "reversed", 1))


def launched(text, schedule, checks=True):
    device = EmulatedDevice("sm_80")
    given = device.array(np.arange(512, dtype=np.uint32) * 3 + 1, "given")
    out = device.array(np.zeros(64, np.uint32), "out")
    run = device.launch(parse(text).kernels["kernel"], (1,), (64,), [given, out], checks=checks, schedule=schedule)
    return run.outputs["out"].tobytes(), repr(run.findings), run.status


@pytest.mark.parametrize("first", range(0, sampled.examples(24, 48), 8))
def test_copies_at_once_are_as_before(first, monkeypatch):
    taken = []
    take = Copies.take
    for seed in range(first, first + 8):
        case = program(seed)
        monkeypatch.setattr(Copies, "take", lambda *given: taken.append(take(*given)) or taken[-1])
        fast, unchecked = launched(*case), launched(*case, checks=False)
        monkeypatch.setattr(Copies, "take", lambda *given: None)
        assert (fast, unchecked) == (launched(*case), launched(*case, checks=False)), seed
    assert any(one is not None for one in taken)
    assert any(one is None for one in taken)
