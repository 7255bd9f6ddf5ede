"""Device attributes of the emulated GPU, by their number in the driver API."""

from kernbench.ptx.doors.gpus import Gpu
from kernbench.ptx.emulator.engine.machine import Architecture

# bytes of L2, memory clock in kHz, bus width and clock of known boards; others get those of the next lower one
_BOARDS = {
    70: (6 << 20, 877_000, 4096, 1_530_000),
    75: (4 << 20, 5_001_000, 256, 1_590_000),
    80: (40 << 20, 1_215_000, 5120, 1_410_000),
    86: (6 << 20, 9_501_000, 384, 1_695_000),
    89: (72 << 20, 10_501_000, 384, 2_520_000),
    90: (50 << 20, 2_619_000, 5120, 1_980_000),
    100: (126 << 20, 3_996_000, 8192, 1_965_000),
    120: (96 << 20, 14_001_000, 512, 2_407_000),
}
ATTRIBUTES = 160
SHARED_BY_DEFAULT = 48 << 10
RESERVED_SHARED = 1024


def attributes(gpu: Gpu) -> list[int]:
    """The value of each attribute, by its number."""
    values = [0] * ATTRIBUTES
    for group in (_limits(gpu.machine, gpu.capability), _board(gpu.capability), _abilities(gpu.capability)):
        for number, value in group.items():
            values[number] = value
    values[16] = gpu.sms
    return values


def _limits(machine: Architecture, number: int) -> dict[int, int]:
    """Threads, blocks, registers and shared memory."""
    return {
        1: 1024, 2: 1024, 3: 1024, 4: 64,
        5: (1 << 31) - 1, 6: 65535, 7: 65535,
        8: SHARED_BY_DEFAULT, 9: 65536, 10: 32, 11: (1 << 31) - 1, 12: 65536,
        39: machine.threads_per_sm, 75: number // 10, 76: number % 10,
        81: machine.shared_per_sm, 82: 65536, 97: machine.shared_per_block, 106: machine.ctas_per_sm,
        111: RESERVED_SHARED if number >= 80 else 0,
    }  # fmt: skip


def _board(number: int) -> dict[int, int]:
    """Clocks, caches and the bus; no time is predicted from these."""
    l2, memory_clock, bus, clock = _BOARDS[max(known for known in _BOARDS if known <= number)]
    return {
        13: clock,
        36: memory_clock,
        37: bus,
        38: l2,
        108: l2 * 5 // 8,
        109: 128 << 20,
        87: 2,
        14: 512,
        30: 512,
        51: 32,
    }


def _abilities(number: int) -> dict[int, int]:
    """Supported features: unified addressing, managed memory, cooperative launches, pools, clusters, tensor maps."""
    able = {
        15: 1,
        19: 1,
        31: 1,
        40: 3,
        41: 1,
        78: 1,
        79: 1,
        80: 1,
        83: 1,
        89: 1,
        90: 1,
        91: 1,
        92: 1,
        93: 1,
        95: 1,
        99: 1,
        101: 1,
        115: 1,
        122: 1,
    }
    return {**able, 120: int(number >= 90), 127: int(number >= 90)}
