"""Large arrays cost what is touched of them, and nothing else about them differs from small ones."""

import random

import numpy as np
import pytest
from tests.ptx.corpus import kernel_text

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.memory import arena as arenas
from kernbench.ptx.emulator.memory.arena import POISON, TRACKED, UNWRITTEN, WRITTEN
from kernbench.ptx.emulator.memory.pages import allocation
from kernbench.ptx.emulator.memory.pages import large as large_arrays
from kernbench.ptx.emulator.memory.pages.large import BLOCK, PAGE, Extent, LargeArrays

GIB = 1 << 30


def resident() -> int:
    """Bytes of memory that this process has for itself."""
    try:
        with open("/proc/self/status") as rows:
            return next(int(row.split()[1]) << 10 for row in rows if row.startswith("RssAnon"))
    except (OSError, StopIteration):
        pytest.skip("this system does not say how much memory a process has for itself")


@pytest.fixture
def small_counts_as_large(monkeypatch):
    monkeypatch.setattr(arenas, "LARGE", 2 * PAGE)


def test_what_nobody_wrote_takes_no_room():
    held, where = LargeArrays(), Extent(768, 768 + 8 * GIB)
    before = resident()
    held.begin(where, POISON, UNWRITTEN)
    assert held.differing(where, WRITTEN, UNWRITTEN, TRACKED) == (8 * GIB, 0)
    copy = held.copy(where, POISON)
    assert len(copy) == 8 * GIB
    assert copy[0] == copy[5 * GIB + 3] == copy[-1] == POISON
    assert resident() - before < 64 << 20


def test_devices_with_small_arrays_take_little_memory():
    """A large page for the bytes of each and one for their states would be 80 MB."""
    before = resident()
    devices = [ptx.EmulatedDevice("sm_90a") for _ in range(20)]
    arrays = [device.array(np.arange(1000)) for device in devices]
    assert all(array.numpy()[999] == 999 for array in arrays)
    assert resident() - before < 20 << 20


@pytest.mark.parametrize("jobs", ["1", "3"])
@pytest.mark.parametrize("seed", range(6))
def test_as_an_array_of_numpy(seed, jobs, monkeypatch):
    """With several threads, too, each of which has some of the pages."""
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    monkeypatch.setattr(large_arrays, "_MOST_RANGES", 3)
    monkeypatch.setattr(large_arrays, "_TOGETHER", 2)
    monkeypatch.setattr(large_arrays, "_PIECE", 1)
    rng, held = random.Random(seed), LargeArrays()
    where = Extent(256 * rng.randrange(1, 40), PAGE * 24 + 256 * rng.randrange(1, 40) + rng.randrange(256))
    given = np.zeros(where.nbytes, np.uint8)
    for start in rng.sample(range(0, where.nbytes, 1000), 9):
        given[start : start + 500] = rng.randrange(256)
    held.begin(where, 0, UNWRITTEN)
    held.bring(where, given)
    words, states = given.copy(), np.full(where.nbytes, UNWRITTEN, np.uint8)
    for _ in range(12):
        start = rng.randrange(where.nbytes)
        end = min(where.nbytes, start + rng.randrange(1, 6000))
        held.words[where.start + start : where.start + end] = words[start:end] = rng.randrange(256)
        held.states[where.start + start : where.start + end] |= WRITTEN
        states[start:end] |= WRITTEN
        held.note(np.arange((where.start + start) // BLOCK, -(-(where.start + end) // BLOCK)))
        on = rng.random() < 0.5
        held.mark(where, TRACKED, on, UNWRITTEN)
        states = states | np.uint8(TRACKED) if on else states & ~np.uint8(TRACKED)
        assert (held.copy(where, 0) == words).all()
        missing = (states & ~np.uint8(TRACKED)) != WRITTEN
        assert held.differing(where, WRITTEN, UNWRITTEN, TRACKED) == (np.count_nonzero(missing), np.argmax(missing))
        assert (held.states[where.start : where.end] == states).all()


def test_arrays_beside_a_large_one_stay_as_they_are(small_counts_as_large):
    device = ptx.EmulatedDevice()
    before, behind = device.array(np.full(300, 1, np.uint8)), None
    middle = device.empty((5 * PAGE,), np.uint8)
    behind = device.array(np.full(300, 2, np.uint8))
    middle.free()
    again = device.array(np.full(4 * PAGE, 3, np.uint8))
    assert (before.numpy() == 1).all()
    assert (behind.numpy() == 2).all()
    assert (again.numpy() == 3).all()


STORE = "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;"
ALIKE = {
    "nothing wrong": STORE + "ld.global.u32 %r2, [%rd1]; st.global.u32 [%rd1], %r1;",
    "beyond the end": STORE + "ld.global.u32 %r2, [%rd1+20480]; st.global.u32 [%rd1], %r2;",
    "a race of blocks": STORE + "mov.u32 %r1, %ctaid.x; st.global.u32 [%rd1], %r1;",
    "a race with a read": STORE + "ld.global.u32 %r2, [%rd1+4]; st.global.u32 [%rd1], %r2;",
    "misaligned": STORE + "st.global.u32 [%rd1+2], %r1;",
}


def outcome(body, made, launches=2):
    """What a kernel leaves in an array of 20 KiB, and what is found, launch after launch."""
    device = ptx.EmulatedDevice("sm_90a")
    kernel = ptx.parse(kernel_text(body, target="sm_90a")).kernels["k"]
    array = device.empty((5120,), np.uint32) if made is None else device.array(np.full(5120, made, np.uint32))
    found = []
    for _ in range(launches):
        run = device.launch(kernel, 2, 64, [array])
        found.append((run.findings, {name: out.tobytes() for name, out in run.outputs.items()}, run.metrics))
    kept = array.numpy().tobytes()
    array.free()
    run = device.launch(kernel, 1, 32, [array.address])
    return [*found, kept, run.findings]


@pytest.mark.parametrize("made", [None, 0, 7], ids=["empty", "zeros", "data"])
@pytest.mark.parametrize("body", ALIKE.values(), ids=ALIKE)
def test_a_launch_finds_and_leaves_what_it_does_with_small_arrays(body, made, monkeypatch):
    usual = outcome(body, made)
    monkeypatch.setattr(arenas, "LARGE", 2 * PAGE)
    assert outcome(body, made) == usual


def test_an_array_that_is_only_read_is_no_longer_watched(small_counts_as_large):
    writes = ptx.parse(kernel_text(ALIKE["nothing wrong"], target="sm_90a")).kernels["k"]
    reads = ptx.parse(kernel_text(STORE + "ld.global.u32 %r2, [%rd1];", target="sm_90a")).kernels["k"]
    device = ptx.EmulatedDevice("sm_90a")
    array = device.array(np.zeros(5120, np.uint32))
    watched = []
    for kernel in (writes, reads, writes):
        device.launch(kernel, 1, 32, [array])
        watched.append(bool((device._arena.state[1][array.allocation.offset] & TRACKED).any()))
    assert watched == [True, False, True]


def test_a_kernel_over_eight_gibibytes_takes_what_it_touches():
    device = ptx.EmulatedDevice("sm_90a")
    body = (
        "ld.param.u64 %rd1, [p]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 400000000; add.u64 %rd1, %rd1, %rd2;"
        "mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r1;"
    )
    before = resident()
    array = device.empty((2 * GIB,), np.uint32, "big")
    run = device.launch(ptx.parse(kernel_text(body, target="sm_90a")), 20, 32, [array])
    assert [finding.kind for finding in run.findings] == ["output-unwritten"]
    assert f"all but {8 * GIB - 20 * 128} of its {8 * GIB} bytes; the first byte left is 128" in run.findings[0].message
    out = run.outputs["big"]
    assert out[17 * 100_000_000 + 31] == 17
    assert out[17 * 100_000_000 + 32] == 0xFFFF_FFFF
    assert resident() - before < 512 << 20


def test_data_that_does_not_fit_is_refused_and_leaves_nothing(monkeypatch):
    device = ptx.EmulatedDevice("sm_90a")
    monkeypatch.setattr(allocation, "free_bytes", lambda: 1 << 20)
    zeros = device.array(np.zeros(1 << 28, np.uint8))
    with pytest.raises(MisuseError, match=r"an array of 268,435,456 bytes needs .* and 1,048,576 are free"):
        device.array(np.ones(1 << 28, np.uint8))
    assert device._arena.live_bytes - zeros.nbytes < 1 << 20


def test_without_such_addresses_arrays_are_kept_whole(monkeypatch, small_counts_as_large):
    def refused():
        raise MemoryError

    usual = outcome(ALIKE["a race with a read"], None)
    monkeypatch.setattr(arenas, "LargeArrays", refused)
    assert outcome(ALIKE["a race with a read"], None) == usual
