"""Products at addresses of tensor memory that have no meaning: told, and never the end of the run."""

import pytest
from tests.ptx.emulator.asynchronous.tcgen05 import COMMIT, KINDS_F16, WAIT, idesc, kernel, launch, load, mma, tiles

from kernbench import ptx

# A for M = 64 in the half of the lanes: zeros, 16 lanes of each warp
STORE_A = """
  mov.b32 %r31, 0;
  add.u32 %r39, %r5, {place};
  tcgen05.st.sync.aligned.16x128b.x2.b32 [%r39], {{%r31, %r31, %r31, %r31}};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  add.u32 %r40, %r3, {place};
"""
LOAD = "  add.u32 %r42, %r5, {half};\n  tcgen05.ld.sync.aligned.16x64b.x1.b32 {{%d0}}, [%r42];\n"


def halves(a, d, m=64):
    """The findings of D = A B with A in half `a` of tensor memory and D in half `d`."""
    _, _, data, descriptors = tiles(4, m, 64, 16, KINDS_F16)
    product = mma("f16", a="[%r40]").replace("[%r3]", f"[%r3+{d << 16}]")
    body = STORE_A.format(place=64 + (a << 16)) + product + COMMIT + WAIT + LOAD.format(half=d << 16)
    run, words = launch(kernel(body, 1), data, descriptors, idesc(m, 64, KINDS_F16), 1)
    return [finding.message for finding in run.findings], words


@pytest.mark.parametrize("half", [0, 16])
def test_either_half_of_the_lanes(half):
    found, words = halves(half, half)
    assert not found
    assert not words.any()


def test_a_in_the_other_half():
    assert any(
        "A that thread (0, 0, 0) of block (0, 0, 0) gives has lane 16, that of D lane 0" in m for m in halves(16, 0)[0]
    )
    assert any("gives has lane 0, that of D lane 16" in message for message in halves(0, 16)[0])


def products(address, m=64, kinds=KINDS_F16):
    _, _, data, descriptors = tiles(4, m, 64, 16, kinds)
    product = f"  mov.b32 %r44, {address};\n" + mma("f16").replace("[%r3]", "[%r44]")
    body = product + COMMIT + WAIT + "  mov.b32 %d0, 0;\n"
    return launch(kernel(body, 1), data, descriptors, idesc(m, 64, kinds), 1)[0]


@pytest.mark.parametrize(("m", "lane"), [(64, 20), (64, 31), (128, 16), (128, 100)])
def test_lane_of_d(m, lane):
    run = products(lane << 16, m)
    assert {finding.kind for finding in run.findings} == {"tensor-memory"}
    assert any(f"gives has lane {lane}; with M = {m} it is 0" in finding.message for finding in run.findings)


@pytest.mark.parametrize("address", [0xFFFFFFFF, 0xFFFF, 511, 512])
def test_columns_that_do_not_exist(address):
    run = products(address)
    assert any("of tensor memory; allocated: 0 to 128" in finding.message for finding in run.findings)


def test_address_that_nobody_wrote():
    """Without an allocation the address is whatever the slot held."""
    _, _, data, descriptors = tiles(4, 64, 64, 16, KINDS_F16)
    code = kernel(mma("f16") + COMMIT + WAIT + "  mov.b32 %d0, 0;\n", 1)
    text = code.module.emit()
    alloc = next(line for line in text.split("\n") if "tcgen05.alloc" in line)
    run, _ = launch(
        ptx.parse(text.replace(alloc, "")).kernels["kernel"], data, descriptors, idesc(64, 64, KINDS_F16), 1
    )
    kinds = {finding.kind for finding in run.findings}
    assert {"uninitialised-read", "tensor-memory"} <= kinds


def test_offsets_below_zero():
    _, _, data, descriptors = tiles(4, 128, 64, 16, KINDS_F16)
    body = mma("f16") + COMMIT + WAIT + load(64)
    below = "  add.u32 %r40, %r3, 64;\n  add.u32 %r42, %r5, 64;\n" + body
    below = below.replace("[%r3]", "[%r40+-64]").replace("[%r5]", "[%r42+-64]")
    given = (data, descriptors, idesc(128, 64, KINDS_F16), 64)
    wanted, found = (launch(kernel(text, 64), *given) for text in (body, below))
    assert not found[0].findings
    assert found[1].any()
    assert (found[1] == wanted[1]).all()


@pytest.mark.parametrize("beyond", [0, 1 << 20])
def test_the_address_of_columns_goes_to_a_generic_address(beyond):
    """ThunderKittens gives the generic address of a shared variable, of 64 bits, to `.shared::cta`."""
    _, _, data, descriptors = tiles(4, 128, 64, 16, KINDS_F16)
    text = kernel(mma("f16") + COMMIT + WAIT + load(64), 64).module.emit()
    alloc = next(line for line in text.split("\n") if "tcgen05.alloc" in line)
    generic = f"  mov.u64 %rd14, slot;\n  cvta.shared.u64 %rd15, %rd14;\n  add.u64 %rd15, %rd15, {beyond};\n"
    given = (data, descriptors, idesc(128, 64, KINDS_F16), 64)
    wanted = launch(ptx.parse(text).kernels["kernel"], *given)
    found = launch(
        ptx.parse(text.replace(alloc, generic + alloc.replace("[slot]", "[%rd15]"))).kernels["kernel"], *given
    )
    assert ("out-of-bounds" in {finding.kind for finding in found[0].findings}) == bool(beyond)
    if not beyond:
        assert not found[0].findings
        assert (found[1] == wanted[1]).all()
