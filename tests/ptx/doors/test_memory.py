"""Memory that a program takes for the GPU's: addresses, states, sizes beyond what the computer has, the host's own."""

import mmap

import numpy as np
import pytest
from tests.ptx.doors.kernels import ADD_ONE, word

from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.arena import LARGE
from kernbench.ptx.doors.memory import process_memory
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE
from kernbench.ptx.emulator.memory.pages.mapping import bytes_at


@pytest.fixture
def memory():
    return process_memory()


def add_one(session, x, y, n, blocks=1):
    kernel = session.load(ADD_ONE).kernel("add_one")
    return session.launch(kernel, blocks, 64, [word(x), word(y), word(n, 4)])


def test_an_address_of_the_device_is_where_the_host_finds_the_bytes(memory):
    address = memory.allocate(64, "x")
    memory.view(address, 64)[...] = np.arange(64)
    assert bytes_at(address, 64).tolist() == list(range(64))
    memory.free(address)


def test_bytes_nobody_wrote_are_known_across_launches(session_of):
    session = session_of()
    memory = session.memory
    x, y = memory.allocate(256, "x"), memory.allocate(256, "y")
    assert [f.kind for f in add_one(session, x, y, 64).findings] == ["uninitialised-read"]
    memory.view(x, 128).view(np.uint32)[...] = 5
    memory.written(x, 128)
    assert add_one(session, x, y, 32).ok
    assert memory.undefined(y, 256).tolist() == [False] * 256, "the launch with a finding has written it"
    memory.unwritten(y, 256)
    assert add_one(session, x, y, 32).ok
    assert memory.undefined(y, 256).tolist() == [False] * 128 + [True] * 128
    assert [f.kind for f in add_one(session, y, x, 33).findings] == ["uninitialised-read"]
    assert memory.view(x, 128).view(np.uint32).tolist() == [7] * 32


@pytest.mark.parametrize(("unit", "dtype"), [(4, np.float32), (4, np.int8), (2, np.float16)])
def test_what_the_host_writes_directly_is_noticed(memory, unit, dtype):
    address = memory.allocate(256, "x")
    memory.watch(address, unit)
    memory.settle()
    assert memory.undefined(address, 256).all()
    memory.view(address, 256).view(dtype)[:8] = 1
    memory.settle()
    written = 8 * np.dtype(dtype).itemsize
    assert memory.undefined(address, 256).tolist() == [False] * written + [True] * (256 - written)
    memory.free(address)


def test_odd_bytes_at_the_end_are_looked_at_together(memory):
    address = memory.allocate(7, "x")
    memory.watch(address)
    memory.settle()
    assert memory.undefined(address, 7).all()
    memory.view(address, 7)[6] = 1
    memory.settle()
    assert memory.undefined(address, 7).tolist() == [True] * 4 + [False] * 3
    memory.free(address)


def test_memory_far_larger_than_the_computer_costs_what_is_touched(session_of):
    session = session_of()
    memory, size = session.memory, 1 << 34
    x = memory.allocate(size, "x")
    y = memory.allocate(256, "y")
    far = x + size - 256
    assert [f.kind for f in add_one(session, far, y, 64).findings] == ["uninitialised-read"]
    memory.view(far, 256)[...] = 1
    memory.written(far, 256)
    assert add_one(session, far, y, 64).ok
    assert add_one(session, y, far, 64).ok
    beyond = add_one(session, far, y, 65, blocks=2).findings
    assert {f.kind for f in beyond} == {"out-of-bounds"}
    assert "right behind its end" in beyond[0].message
    memory.free(x)
    assert [f.kind for f in add_one(session, far, y, 64).findings] == ["use-after-free"]
    again = memory.allocate(size, "again", written=True)
    assert again != x or not memory.view(again, 16).any()
    memory.free(again)


def test_a_race_is_found_in_large_memory(session_of):
    session = session_of()
    memory = session.memory
    x, y = memory.allocate(LARGE, "x", written=True), memory.allocate(LARGE, "y")
    # two blocks of 64 threads that store to the same words
    text = ADD_ONE.replace("mov.u32 %r2, %ctaid.x", "mov.u32 %r2, 0")
    launch = session.launch(session.load(text).kernel("add_one"), 2, 64, [word(x), word(y), word(64, 4)])
    # what both store is the same, but the counter that both increase is not
    assert {f.kind for f in launch.findings} == {"race"}
    for address in (x, y):
        memory.free(address)


def test_addresses_are_used_again_after_a_while(memory):
    first = memory.allocate(4096)
    memory.free(first)
    seen = set()
    for _ in range(1200):
        address = memory.allocate(4096)
        seen.add(address)
        memory.free(address)
    assert len(seen) < 1000


def bytes_in_memory(address, nbytes):
    """How many bytes of a range take room of their own: pages that are there and not those of a file."""
    first = address // mmap.PAGESIZE
    count = -(-(address + nbytes) // mmap.PAGESIZE) - first
    try:
        with open("/proc/self/pagemap", "rb") as pages:
            pages.seek(8 * first)
            entries = np.frombuffer(pages.read(8 * count), np.uint64)
    except OSError as problem:
        pytest.skip(f"the system does not show the pages of a process: {problem}")
    there, of_a_file = entries >> np.uint64(63), entries >> np.uint64(61) & np.uint64(1)
    return int((there & ~of_a_file & np.uint64(1)).sum()) * mmap.PAGESIZE


def test_pages_of_what_ended_long_ago_go_back_to_the_system(memory):
    sizes = [(2 << 20) + (k << 19) for k in range(0, 48, 6)] * 3
    arena, before = memory.arena, memory.arena.used
    data = np.ones(max(sizes), np.uint8)
    taken = [memory.copied(data.ctypes.data, size) for size in sizes]
    memory.view(taken[0], 8)[...] = 7
    for address in taken:
        memory.free(address)
    assert sum(sizes) > 250 << 20
    # what is spare, what is remembered as freed, and pages at the ends of arrays
    most = (128 + 32 + 8) << 20
    assert bytes_in_memory(taken[0], arena.used - before) < most
    first_state = arena.state[1].ctypes.data + taken[0] - GLOBAL_BASE
    assert bytes_in_memory(first_state, arena.used - before) < most
    again = memory.allocate(sizes[-1], written=True)
    assert not memory.view(again, sizes[-1]).any()
    memory.free(again)


def test_use_of_large_memory_that_went_back_to_the_system_is_use_after_free(session_of):
    session = session_of()
    memory, size = session.memory, 48 << 20
    taken = [memory.allocate(size, written=True) for _ in range(5)]
    y = memory.allocate(256, "y")
    for address in taken:
        memory.free(address)
    assert {f.kind for f in add_one(session, taken[-1], y, 64).findings} == {"use-after-free"}
    memory.free(y)


def test_states_of_large_memory_that_was_copied_take_no_room(memory):
    data = np.ones(LARGE, np.uint8)
    address = memory.copied(data.ctypes.data, LARGE)
    states = memory.arena.states(memory.array_at(address))
    assert not memory.undefined(address, 64).any()
    assert not memory.undefined(address + LARGE - 64, 64).any()
    assert bytes_in_memory(states.ctypes.data, LARGE) < 1 << 20
    assert bytes_at(address, LARGE)[-1] == 1
    memory.free(address)


def test_what_a_finaliser_gives_back_is_freed_later(memory):
    address = memory.allocate(64)
    memory.give_back(address)
    assert memory.array_at(address) is not None
    memory.collect()
    assert memory.array_at(address) is None


def test_memory_of_the_host_is_reached_at_its_own_address(session_of):
    session = session_of()
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    for array, name in ((x, "x"), (y, "y")):
        session.memory.adopt(array.ctypes.data, array.nbytes, name, array)
    assert add_one(session, x.ctypes.data, y.ctypes.data, 64).ok
    assert y.tolist() == list(range(1, 65))
    # the host's writes between launches are seen
    x[...] = 5
    assert add_one(session, x.ctypes.data, y.ctypes.data, 64).ok
    assert set(y.tolist()) == {6}
    assert {f.kind for f in add_one(session, x.ctypes.data, y.ctypes.data, 65, 2).findings} == {"out-of-bounds"}
    for array in (x, y):
        session.memory.disown(array.ctypes.data)
    assert {f.kind for f in add_one(session, x.ctypes.data, y.ctypes.data, 64).findings} == {"out-of-bounds"}


def test_what_cannot_be_is_refused(memory):
    address = memory.allocate(64, "x")
    with pytest.raises(MisuseError, match="lie outside the memory that is allocated; the allocation there ends at"):
        memory.view(address + 32, 64)
    with pytest.raises(MisuseError, match="no address of memory that is allocated"):
        memory.free(address + 4)
    with pytest.raises(MisuseError, match="lies in the device's memory already"):
        memory.adopt(address, 64)
    with pytest.raises(MisuseError, match="-1 bytes"):
        memory.allocate(-1)
    memory.free(address)
    with pytest.raises(MisuseError, match="no address of memory"):
        memory.free(address)
