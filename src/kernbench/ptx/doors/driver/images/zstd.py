"""Zstandard frames (RFC 8878), in which compilers since CUDA 12.8 compress the PTX of fat binaries.

Python has a decoder from 3.14 on; this one works on all versions. A frame is a series of blocks. A compressed block has
literals (bytes, often Huffman-coded) and sequences (a number of literals, then a match with length and distance), whose
numbers are FSE-coded.
"""

from dataclasses import dataclass, field

from kernbench.ptx.doors.driver.images.bits import BackwardBits
from kernbench.ptx.doors.driver.images.entropy import HuffmanTable, StateTable, read_distribution, read_huffman
from kernbench.ptx.doors.driver.images.errors import ImageError
from kernbench.ptx.doors.driver.images.lz4 import copy_match

MAGIC = 0xFD2FB528
_MOST_BLOCK = 1 << 17
_RAW, _REPEATED, _COMPRESSED = 0, 1, 2
_SECTION_RAW, _SECTION_REPEATED, _SECTION_COMPRESSED, _SECTION_AGAIN = range(4)

# base values and extra bits of the codes for lengths
_LITERAL_BASES = [
    *range(16),
    16,
    18,
    20,
    22,
    24,
    28,
    32,
    40,
    48,
    64,
    128,
    256,
    512,
    1024,
    2048,
    4096,
    8192,
    16384,
    32768,
    65536,
]
_LITERAL_BITS = [0] * 16 + [1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
_MATCH_BASES = [
    *range(3, 35),
    35,
    37,
    39,
    41,
    43,
    47,
    51,
    59,
    67,
    83,
    99,
    131,
    259,
    515,
    1027,
    2051,
    4099,
    8195,
    16387,
    32771,
    65539,
]
_MATCH_BITS = [0] * 32 + [1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
# predefined distributions
_LITERAL_COUNTS = [
    4,
    3,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    1,
    1,
    1,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    2,
    3,
    2,
    1,
    1,
    1,
    1,
    1,
    -1,
    -1,
    -1,
    -1,
]
_MATCH_COUNTS = [1, 4, 3, 2, 2, 2, 2, 2, 2] + [1] * 37 + [-1] * 7
_OFFSET_COUNTS = [1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1]
# by code: accuracy and counts of the predefined distribution, largest accuracy, number of symbols
_CODES = {
    "literal": (6, _LITERAL_COUNTS, 9, 36),
    "offset": (5, _OFFSET_COUNTS, 8, 32),
    "match": (6, _MATCH_COUNTS, 9, 53),
}


@dataclass
class _Frame:
    """The state that blocks of a frame pass on to later ones."""

    out: bytearray = field(default_factory=bytearray)
    huffman: HuffmanTable | None = None
    tables: dict[str, StateTable] = field(default_factory=dict)
    recent: list[int] = field(default_factory=lambda: [1, 4, 8])


def decompress(data: bytes, size: int) -> bytes:
    """The content of a frame, at most `size` bytes."""
    try:
        out = _decompress(data, size)
    except IndexError:
        raise ImageError("compressed PTX of a fat binary is cut off") from None
    return out


def _decompress(data: bytes, size: int) -> bytes:
    if int.from_bytes(data[:4], "little") != MAGIC:
        raise ImageError("compressed PTX of a fat binary does not begin as a Zstandard frame does")
    at, frame, last = _header_end(data), _Frame(), False
    while not last:
        head = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        last, kind, count = bool(head & 1), head >> 1 & 3, head >> 3
        at += 3
        if kind == _REPEATED:
            frame.out += data[at : at + 1] * count
            at += 1
        else:
            block = data[at : at + count]
            at += count
            if kind == _RAW:
                frame.out += block
            elif kind == _COMPRESSED and count <= _MOST_BLOCK:
                _compressed_block(frame, block)
            else:
                raise ImageError(f"a Zstandard block of type {kind} with {count} bytes")
        if len(frame.out) > size:
            raise ImageError(f"compressed PTX of a fat binary holds more than the {size} bytes that it says")
    return bytes(frame.out)


def _header_end(data: bytes) -> int:
    descriptor = data[4]
    single = descriptor >> 5 & 1
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    content = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    if dictionary and any(data[6 - single : 6 - single + dictionary]):
        raise ImageError("compressed PTX of a fat binary needs a Zstandard dictionary")
    return 5 + (0 if single else 1) + dictionary + content


def _compressed_block(frame: _Frame, block: bytes) -> None:
    literals, at = _literals(frame, block)
    count, at = _sequence_count(block, at)
    if count == 0:
        frame.out += literals
        return
    modes = block[at]
    at += 1
    tables = []
    for shift, name in ((6, "literal"), (4, "offset"), (2, "match")):
        table, at = _table(frame, name, modes >> shift & 3, block, at)
        tables.append(table)
    _run_sequences(frame, literals, count, tables, BackwardBits(block[at:]))


def _literals(frame: _Frame, block: bytes) -> tuple[bytes, int]:
    """The literals of a block, and where they end."""
    kind, form = block[0] & 3, block[0] >> 2 & 3
    if kind in (_SECTION_RAW, _SECTION_REPEATED):
        bytes_, shift = {1: (2, 4), 3: (3, 4)}.get(form, (1, 3))
        count = int.from_bytes(block[:bytes_], "little") >> shift
        if kind == _SECTION_RAW:
            return block[bytes_ : bytes_ + count], bytes_ + count
        return block[bytes_ : bytes_ + 1] * count, bytes_ + 1
    bytes_, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
    head = int.from_bytes(block[:bytes_], "little")
    count, packed = head >> 4 & ((1 << bits) - 1), head >> (4 + bits) & ((1 << bits) - 1)
    part = block[bytes_ : bytes_ + packed]
    if kind == _SECTION_COMPRESSED:
        frame.huffman, used = read_huffman(part)
        part = part[used:]
    if frame.huffman is None:
        raise ImageError("Zstandard literals use a table that was not sent")
    return _huffman_streams(frame.huffman, part, count, 1 if form == 0 else 4), bytes_ + packed


def _huffman_streams(table: HuffmanTable, part: bytes, count: int, streams: int) -> bytes:
    if streams == 1:
        return table.decode(part, count)
    sizes = [int.from_bytes(part[2 * i : 2 * i + 2], "little") for i in range(3)]
    each, at, out = (count + 3) // 4, 6, b""
    for size in (*sizes, len(part) - 6 - sum(sizes)):
        out += table.decode(part[at : at + size], min(each, count - len(out)))
        at += size
    return out


def _sequence_count(block: bytes, at: int) -> tuple[int, int]:
    first = block[at]
    if first < 128:
        return first, at + 1
    if first < 255:
        return (first - 128 << 8) + block[at + 1], at + 2
    return (block[at + 1] | block[at + 2] << 8) + 0x7F00, at + 3


def _table(frame: _Frame, name: str, mode: int, block: bytes, at: int) -> tuple[StateTable, int]:
    """The table for a code of sequences: predefined, a single symbol, transmitted, or that of the block before."""
    accuracy, counts, most, symbols = _CODES[name]
    if mode == 0:
        frame.tables[name] = StateTable(counts, accuracy)
    elif mode == 1:
        frame.tables[name] = StateTable.constant(block[at])
        at += 1
    elif mode == 2:
        sent, bits, used = read_distribution(block[at:], most, symbols)
        frame.tables[name] = StateTable(sent, bits)
        at += used
    elif name not in frame.tables:
        raise ImageError("a Zstandard block uses a table that was not sent")
    return frame.tables[name], at


def _run_sequences(frame: _Frame, literals: bytes, count: int, tables: list[StateTable], bits: BackwardBits) -> None:
    literal, offset, match = tables
    states = [bits.read(table.accuracy) for table in tables]
    used = 0
    for number in range(count):
        offset_code = offset.symbols[states[1]]
        distance = (1 << offset_code) + bits.read(offset_code)
        code = match.symbols[states[2]]
        length = _MATCH_BASES[code] + bits.read(_MATCH_BITS[code])
        code = literal.symbols[states[0]]
        before = _LITERAL_BASES[code] + bits.read(_LITERAL_BITS[code])
        frame.out += literals[used : used + before]
        used += before
        copy_match(frame.out, _distance(frame.recent, distance, before), length)
        if number < count - 1:
            # states advance in this order: literals, matches, offsets
            states[0] = literal.following(states[0], bits)
            states[2] = match.following(states[2], bits)
            states[1] = offset.following(states[1], bits)
    frame.out += literals[used:]


def _distance(recent: list[int], value: int, literals: int) -> int:
    """Decode a distance: values up to 3 name one of the last three distances; updates the list."""
    if value > 3:
        recent[:] = [value - 3, recent[0], recent[1]]
        return recent[0]
    which = value - 1 if literals else value
    if which == 0:
        return recent[0]
    chosen = recent[which] if which < 3 else recent[0] - 1
    recent[:] = [chosen, recent[0], recent[1] if which > 1 else recent[2]]
    return chosen
