"""Launches of a program on a second device as well: tables of pointers, variables of modules, and what is put back."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.ptx.doors.kernels import ADD_ONE, word
from typer.testing import CliRunner

from kernbench import ptx
from kernbench.cli import app
from kernbench.common.errors import MisuseError
from kernbench.ptx.comparing.sessions import SecondEmulator
from kernbench.ptx.devices.gpu_process import LaunchFailedError
from kernbench.ptx.emulator.asynchronous.copies import tensor_maps

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]
# y[i] = table[0][i] * scale + table[0][i], and the variable `scale` grows
THROUGH_A_TABLE = """.version 8.0
.target sm_90
.address_size 64
.visible .global .align 4 .f32 scale = 0f40533333;
.visible .entry k(.param .u64 table, .param .u64 y)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .f32 %f<4>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [table]; ld.param.u64 %rd2, [y];
  ld.global.u64 %rd3, [%rd1];
  mov.u32 %r1, %tid.x; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4; add.u64 %rd2, %rd2, %rd4;
  ld.global.f32 %f1, [%rd3]; ld.global.f32 %f2, [scale];
  bar.sync 0;
  fma.rn.f32 %f3, %f1, %f2, %f1;
  st.global.f32 [%rd2], %f3;
  setp.eq.u32 %p, %r1, 0;
  @%p add.f32 %f2, %f2, 0f3F800000;
  @%p st.global.f32 [scale], %f2;
  ret;
}
"""
ADDS = THROUGH_A_TABLE.replace("st.global.f32 [%rd2], %f3;", "red.global.add.f32 [%rd2], %f3;")


# makes a tensor map of 32 x 8 floats in memory
MAKES_A_MAP = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 map, .param .u64 y)
{
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [map]; ld.param.u64 %rd2, [y]; mov.u64 %rd3, 128;
  tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;
  tensormap.replace.tile.rank.global.b1024.b32 [%rd1], 1;
  tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 0, 32;
  tensormap.replace.tile.box_dim.global.b1024.b32 [%rd1], 1, 8;
  tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 0, 32;
  tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 1, 8;
  tensormap.replace.tile.global_stride.global.b1024.b64 [%rd1], 0, %rd3;
  tensormap.replace.tile.element_stride.global.b1024.b32 [%rd1], 0, 1;
  tensormap.replace.tile.element_stride.global.b1024.b32 [%rd1], 1, 1;
  tensormap.replace.tile.elemtype.global.b1024.b32 [%rd1], 7;
  tensormap.replace.tile.interleave_layout.global.b1024.b32 [%rd1], 0;
  tensormap.replace.tile.swizzle_mode.global.b1024.b32 [%rd1], 0;
  tensormap.replace.tile.fill_mode.global.b1024.b32 [%rd1], 0;
  ret;
}
"""


def hardware_bits(address, rows, flags):
    """That map as a GPU holds it, or one of another number of rows."""
    words = [flags, 128 // 16, 0, 0, 0, 0, 31, rows - 1, 0, 0, 0]
    head = address.to_bytes(8, "little") + b"".join(word.to_bytes(4, "little") for word in words)
    return (head + bytes(3) + bytes([31, 7])).ljust(128, b"\0")


class WithHardwareMaps(SecondEmulator):
    """Holds tensor maps in a GPU's bits."""

    rows, flags = 8, 0x40392

    def run(self, launch):
        left = super().run(launch)
        for _, data in left.memory:
            for at in tensor_maps.maps_in(data):
                made = tensor_maps.decode(data[at : at + 128].tobytes())
                data[at : at + 128] = np.frombuffer(hardware_bits(made.address, self.rows, self.flags), np.uint8)
        return left


class WithWrongMaps(WithHardwareMaps):
    rows = 9


class WithMapsOfNoVersion(WithHardwareMaps):
    """As an H200 leaves them where a kernel makes them of bytes that were zero."""

    flags = 0x390


def maps_of_no_version(device):
    return WithMapsOfNoVersion(device)


def hardware_maps(device):
    return WithHardwareMaps(device)


def wrong_maps(device):
    return WithWrongMaps(device)


def changed(old, new):
    def change(kernel):
        return ptx.parse(kernel.emit().replace(old, new)).kernels[kernel.name]

    return change


def same(device):
    return SecondEmulator(device)


def cuts(device):
    return SecondEmulator(device, changed("fma.rn.f32", "fma.rz.f32"))


def far(device):
    return SecondEmulator(device, changed("fma.rn.f32 %f3, %f1, %f2, %f1", "fma.rn.f32 %f3, %f1, %f2, %f2"))


class Faulty:
    name = "a broken GPU"

    def run(self, launch):
        raise LaunchFailedError("'k' died of an access to memory that is not there (CUDA_ERROR_ILLEGAL_ADDRESS)")

    def close(self):
        pass


def faulty(device):
    return Faulty()


def launched(session_of, other, text=THROUGH_A_TABLE, count=2):
    session = session_of(compare=f"{__name__}:{other}")
    x, y, table = (
        session.memory.allocate(nbytes, name, written=True) for nbytes, name in ((128, "x"), (128, "y"), (8, "t"))
    )
    session.memory.view(x, 128).view(np.float32)[...] = np.linspace(0.1, 3, 32)
    session.memory.view(table, 8).view(np.uint64)[...] = x
    kernel = session.load(text).kernel("k")
    for _ in range(count):
        session.launch(kernel, 1, 32, [word(table), word(y)], site=None)
    return session, session.memory.view(y, 128).view(np.float32).copy()


def test_memory_that_is_the_same(session_of):
    session, y = launched(session_of, "same")
    assert [launch.agreement["outcome"] for launch in session.launches] == ["identical", "identical"]
    assert session.exact
    # the variable of the module has grown once for each launch, and not for those that were compared
    address, nbytes = session.load(THROUGH_A_TABLE).variable("scale")
    assert session.memory.view(address, nbytes).view(np.float32)[0] == np.float32(3.3) + 1 + 1
    np.testing.assert_allclose(y, np.linspace(0.1, 3, 32) * 5.3, rtol=1e-6)
    assert not session.findings


def test_a_difference_is_found_behind_a_table_of_pointers_and_memory_is_put_back(session_of):
    session, y = launched(session_of, "cuts", count=1)
    (launch,) = session.launches
    assert launch.agreement["outcome"] == "rounding"
    # memory of other tests may lie beside it
    assert [one["name"].split()[0] for one in launch.agreement["differences"]] == ["y"]
    first = launch.agreement["first"]
    assert first["text"] == "fma.rn.f32 %f3, %f1, %f2, %f1;"
    x = np.linspace(0.1, 3, 32).astype(np.float32)
    np.testing.assert_array_equal(y, (x.astype(np.float64) * np.float32(3.3) + x).astype(np.float32))
    assert launch.to_dict()["agreement"]["first"]["line"] == first["line"]


@pytest.mark.parametrize(
    ("other", "outcome"),
    [("hardware_maps", "identical"), ("maps_of_no_version", "identical"), ("wrong_maps", "different")],
)
def test_tensor_maps_that_a_launch_makes_are_compared_by_what_they_say(session_of, other, outcome):
    session = session_of(compare=f"{__name__}:{other}")
    held = session.memory.allocate(256, "map", written=True)
    y = session.memory.allocate(1024, "y", written=True)
    kernel = session.load(MAKES_A_MAP).kernel("k")
    session.launch(kernel, 1, 1, [word(-(-held // 128) * 128), word(y)], site=None)
    assert session.launches[0].agreement["outcome"] == outcome


def test_more_than_rounding(session_of):
    session, _ = launched(session_of, "far", count=1)
    assert session.launches[0].agreement["outcome"] == "different"


def test_sums_whose_order_shows_are_not_compared(session_of):
    session, _ = launched(session_of, "far", ADDS, count=1)
    assert session.launches[0].agreement["outcome"] == "order"
    assert "a sum of floats rounds differently" in session.launches[0].agreement["reason"]


def test_a_launch_with_a_race_names_the_race(session_of):
    # all threads store to y[0]
    text = THROUGH_A_TABLE.replace("add.u64 %rd2, %rd2, %rd4;", "")
    session, y = launched(session_of, "far", text, count=1)
    found = session.launches[0].agreement
    assert found["outcome"] == "order"
    assert found["reason"].startswith("the launch has a race: `st.global.f32 [%rd2], %f3;`")
    # memory is as the launch left it
    assert y[0] == np.float32(np.float64(np.float32(3)) * np.float32(3.3) + 3)


def test_a_device_that_fails_is_said_to(session_of):
    session, _ = launched(session_of, "faulty")
    found = [launch.agreement for launch in session.launches]
    assert [one["outcome"] for one in found] == ["not compared"] * 2
    assert "on a broken GPU: 'k' died of an access" in found[0]["reason"]


def test_without_a_gpu_each_launch_says_so(session_of, monkeypatch):
    # also on a machine that has one
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    # in processes of their own as well
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    session = session_of(compare="cuda")
    x = session.memory.allocate(256, "x", written=True)
    kernel = session.load(ADD_ONE).kernel("add_one")
    launch = session.launch(kernel, 1, 64, [word(x), word(x), word(64, 4)])
    assert launch.agreement["outcome"] == "not compared"
    assert any(
        words in launch.agreement["reason"] for words in ("cuda-bindings is missing", "no GPU", "driver is missing")
    )


def test_some_blocks_and_strange_devices_are_refused(session_of):
    with pytest.raises(MisuseError, match="a GPU runs all blocks of a grid"):
        session_of(compare="cuda", blocks=(0,))
    session = session_of(compare="nowhere:nothing")
    x = session.memory.allocate(256, "x", written=True)
    with pytest.raises(MisuseError, match="device 'nowhere:nothing': No module named 'nowhere'"):
        session.launch(session.load(ADD_ONE).kernel("add_one"), 1, 64, [word(x), word(x), word(64, 4)])


PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import numpy as np
from tests.ptx.doors.test_comparing import THROUGH_A_TABLE
from tests.ptx.doors.kernels import word
from kernbench.ptx.doors.opening.environment import process_session
session = process_session()
x, y, t = (session.memory.allocate(n, name, written=True) for n, name in ((128, "x"), (128, "y"), (8, "t")))
session.memory.view(x, 128).view(np.float32)[...] = np.linspace(0.1, 3, 32)
session.memory.view(t, 8).view(np.uint64)[...] = x
for _ in range(2):
    session.launch(session.load(THROUGH_A_TABLE).kernel("k"), 1, 32, [word(t), word(y)])
"""


def test_a_program_gets_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    command = ["exec", "--compare", f"{__name__}:cuts", "--json", "out.json", "--", sys.executable, "program.py"]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "160", "NO_COLOR": "1"})
    assert done.exit_code == 1, done.output
    assert "first difference: line 13, `fma.rn.f32 %f3, %f1, %f2, %f1;`" in done.output
    (kernel,) = json.loads(Path("out.json").read_text())["kernels"]
    assert kernel["agreement"]["rounding"] + kernel["agreement"]["different"] == 2
