"""Boxes that are stored by whole pieces, against the same byte by byte: bytes, states, pages, and complaints."""

import numpy as np
import pytest

from kernbench.ptx.emulator.asynchronous.copies import tile_kernels as kernels
from kernbench.ptx.emulator.memory.arena import NOTHING, UNWRITTEN, WRITTEN

SWIZZLES = ((0, 0, 0), (1, 4, 0), (3, 4, 0), (7, 4, 0), (3, 5, 0), (3, 5, 1), (1, 6, 0))
SHARED, MEMORY, OPERATIONS = 4096, 16384, 5


def new(nbytes, random, bad):
    """Memory, and its states, of which a few are others than the usual."""
    memory = random.integers(0, 256, nbytes, np.uint8)
    state = np.full(nbytes, WRITTEN, np.uint8)
    if bad:
        at = random.integers(0, nbytes, 6)
        state[at] = random.choice(np.array([NOTHING, UNWRITTEN], np.uint8), 6)
    return memory, state


def count(report, code, operation, offset):
    if not report[code, 0]:
        report[code, 1:] = operation, offset
    report[code, 0] += 1


def cells(box, coordinates, offsets, operation):
    """Of each byte of a box that a store writes: its place in the box, in shared and in global memory."""
    base, shape, element, (mask, shift, flip, pitch, filled, _), _ = box
    inner = int(shape[2, 0]) * element
    start = int(coordinates[operation, 0]) * element
    end = -(-(int(shape[0, 0]) * element - start) // 16) * 16
    for row in range(int(shape[2, 1])):
        line = int(coordinates[operation, 1]) + row * int(shape[3, 1])
        if not 0 <= line < shape[0, 1]:
            continue
        for byte in range(max(0, -start), min(inner, end)):
            offset = int(offsets[operation]) + row * int(pitch) + byte // int(filled) * 16 + byte % int(filled)
            swizzled = offset ^ ((offset >> 7 & int(mask)) << int(shift))
            swizzled ^= (offset >> 7 & 1) << 3 if flip else 0
            yield row * inner + byte, swizzled, base + line * int(shape[1, 1]) + start + byte


def taken(box, coordinates, shared, state, offsets, origins, staged, checked, report):
    for operation in range(OPERATIONS):
        for place, at, _ in cells(box, coordinates, offsets, operation):
            if not 0 <= at < SHARED:
                count(report, kernels.SHARED_OUTSIDE, operation, at)
                continue
            there = at + int(origins[operation])
            if checked and state[there] & WRITTEN != WRITTEN:
                count(report, kernels.SHARED_UNWRITTEN, operation, at)
            staged[operation, place] = shared[there]


def put(box, coordinates, memory, state, dirty, staged, checked, report):
    for operation in range(OPERATIONS):
        for place, _, at in cells(box, coordinates, np.zeros(OPERATIONS, np.int64), operation):
            if not 0 <= at < MEMORY or (checked and not state[at] & UNWRITTEN):
                count(report, kernels.GLOBAL_OUTSIDE, operation, at)
                continue
            memory[at] = staged[operation, place]
            state[at] |= WRITTEN
            dirty[at >> 8] = True


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_stored_boxes(seed, checked):
    random = np.random.default_rng(seed)
    element, filled = int(random.choice([1, 2, 4, 16])), 16 if seed % 4 else 8
    inner, rows = 16 * int(random.integers(1, 9)) * filled // 16, int(random.integers(1, 9))
    element = min(element, filled)
    width, lines = int(random.integers(1, 300)), int(random.integers(1, 20))
    pitch = max(128 if seed % 3 else 16, -(-inner // filled) * 16)
    shape = np.array([[width, lines], [element, 512], [inner // element, rows], [1, 1 + seed % 2]], np.int64)
    swizzle = np.array((*SWIZZLES[seed % len(SWIZZLES)], pitch, filled, seed % 5 > 0), np.int64)
    box = (int(random.choice([0, 16, 1024, 12000, 6])), shape, element, swizzle, np.zeros(16, np.uint8))
    coordinates = np.stack([random.integers(-4, 40, OPERATIONS), random.integers(-3, 12, OPERATIONS)], axis=1)
    coordinates[:2, 0] = 0
    origins = random.integers(0, 3, OPERATIONS) * SHARED
    offsets = random.choice([0, 128, 1024, 4096 - 256, 72], OPERATIONS)
    shared, shared_state = new(3 * SHARED, random, seed % 2)
    memory, state = new(MEMORY, random, seed % 2)
    room = -(-inner * rows // 16) * 16
    found = [np.zeros((OPERATIONS, room), np.uint8) for _ in range(2)]
    reports = [kernels.new_report() for _ in range(4)]
    tiles = (shared, shared.view("u8"), shared_state, shared_state.view("u8"), offsets, origins, SHARED)
    every = np.arange(OPERATIONS)
    kernels.take_boxes(tiles, box, coordinates, every, found[0], found[0].view("u8"), checked, reports[0])
    taken(box, coordinates, shared, shared_state, offsets, origins, found[1], checked, reports[1])
    assert np.array_equal(*found)
    assert np.array_equal(*reports[:2])
    wanted = memory.copy(), state.copy(), np.zeros(MEMORY >> 8, bool)
    given, dirty = (memory, memory.view("u8"), state, state.view("u8")), np.zeros(MEMORY >> 8, bool)
    kernels.put_boxes(given, dirty, box, coordinates, every, found[0], found[0].view("u8"), checked, reports[2])
    put(box, coordinates, *wanted, found[1], checked, reports[3])
    assert all(np.array_equal(*pair) for pair in zip((memory, state, dirty), wanted, strict=True))
    assert np.array_equal(*reports[2:])
