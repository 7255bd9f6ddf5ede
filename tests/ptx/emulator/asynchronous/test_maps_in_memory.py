"""Stores by tensor maps that lie in memory, as Triton makes them: what they write is watched for races."""

import numpy as np
import pytest

from kernbench import ptx

# each block stores 8 rows of 32 numbers, so many rows behind those of the block before
STORE = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry kernel(PARAMETERS)
{
 .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<10>;
 .shared .align 128 .b8 box[1024];
 mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, box;
 shl.b32 %r4, %r1, 2; add.u32 %r5, %r3, %r4; cvt.u64.u32 %rd3, %r4;
 mov.b64 %rd1, GIVEN; cvta.param.u64 %rd1, %rd1;
 ld.param.u64 %rd2, [ROOM]; mul.wide.u32 %rd4, %r2, 128; add.u64 %rd2, %rd2, %rd4;
 setp.ge.u32 %p1, %r1, 32;
 @%p1 bra COPIED;
 add.u64 %rd5, %rd1, %rd3; add.u64 %rd6, %rd2, %rd3;
 ld.b32 %r6, [%rd5]; st.global.b32 [%rd6], %r6;
COPIED:
 bar.sync 0;
 fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;
 st.shared.b32 [%r5], %r2;
 fence.proxy.async.shared::cta;
 bar.sync 0;
 setp.ne.u32 %p2, %r1, 0; mul.lo.u32 %r7, %r2, ROWS; mov.u32 %r8, 0;
 @%p2 bra END;
 INSTRUCTION [MAP, {%r8, %r7}], [%r3];
 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END:
 ret;
}
"""
APART = (".param .align 64 .b8 map[128], .param .u64 room", "map", "room")
TOGETHER = (".param .align 64 .b8 all[192]", "all", "all+128")
COPY = "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
SUM = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"


def findings(parameters, named, rows, instruction=COPY):
    """What is found where blocks store by the map that they were given, or by the copy that each made of it."""
    device = ptx.EmulatedDevice(arch="sm_90a")
    out = device.array(np.zeros((32, 32), np.uint32), "out")
    room = device.array(np.zeros(64, np.uint32), "room")
    tensor_map = device.tensor_map(out, dims=(32, 32), strides=(128,), box=(32, 8))
    text = STORE.replace("ROWS", str(rows)).replace("INSTRUCTION", instruction).replace("MAP", named)
    for word, part in zip(("PARAMETERS", "GIVEN", "ROOM"), parameters, strict=True):
        text = text.replace(word, part)
    together = tensor_map.encoded + room.address.to_bytes(8, "little") + bytes(56)
    arguments = [tensor_map, room] if parameters is APART else [together]
    run = device.launch(ptx.parse(text).kernels["kernel"], 2, 256, arguments)
    return [finding.kind for finding in run.findings], run.findings


@pytest.mark.parametrize("named", ["%rd1", "%rd2"], ids=["given", "copied"])
@pytest.mark.parametrize("parameters", [APART, TOGETHER], ids=["apart", "together"])
def test_two_blocks_store_the_same_rows(parameters, named):
    assert findings(parameters, named, 8)[0] == []
    kinds, (race,) = findings(parameters, named, 4)
    assert kinds == ["race"]
    assert "writes 'out'" in race.message


def test_sums_of_two_blocks_do_not_race():
    assert findings(APART, "%rd2", 4, SUM)[0] == []


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (".local .align 64 .b8 mine[128]; mov.b64 %rd1, mine; cvta.local.u64", "declare the parameter `const __grid_"),
        (".shared .align 64 .b8 ours[128]; mov.b64 %rd1, ours; cvta.shared.u64", "in global, constant or parameter"),
    ],
)
def test_a_map_in_memory_that_has_none(address, said):
    named = "%rd1"
    text = STORE.replace("mov.b64 %rd1, GIVEN; cvta.param.u64", address)
    assert text != STORE
    device = ptx.EmulatedDevice(arch="sm_90a")
    out = device.array(np.zeros((32, 32), np.uint32), "out")
    tensor_map = device.tensor_map(out, dims=(32, 32), strides=(128,), box=(32, 8))
    room = device.array(np.zeros(64, np.uint32), "room")
    for word, part in (
        ("ROWS", "8"),
        ("INSTRUCTION", COPY),
        ("MAP", named),
        ("PARAMETERS", APART[0]),
        ("ROOM", "room"),
    ):
        text = text.replace(word, part)
    text = text.replace(
        "add.u64 %rd5, %rd1, %rd3;", "mov.b64 %rd5, map; cvta.param.u64 %rd5, %rd5; add.u64 %rd5, %rd5, %rd3;"
    )
    run = device.launch(ptx.parse(text).kernels["kernel"], 2, 256, [tensor_map, room])
    assert [finding.kind for finding in run.findings] == ["misuse"]
    assert said in run.findings[0].message
