"""The two entropy codes of Zstandard: finite state entropy (FSE), and Huffman codes with transmitted lengths."""

from kernbench.ptx.doors.driver.images.bits import BackwardBits, ForwardBits
from kernbench.ptx.doors.driver.images.errors import ImageError

_MOST_HUFFMAN_BITS = 11


class StateTable:
    """An FSE table: the symbol of each state, and its successors."""

    def __init__(self, counts: list[int], accuracy: int):
        size = 1 << accuracy
        self.accuracy = accuracy
        self.symbols = _spread(counts, size)
        self._bits, self._bases = [0] * size, [0] * size
        following = [max(count, 1) for count in counts]
        for state, symbol in enumerate(self.symbols):
            number = following[symbol]
            following[symbol] += 1
            self._bits[state] = accuracy - (number.bit_length() - 1)
            self._bases[state] = (number << self._bits[state]) - size

    @classmethod
    def constant(cls, symbol: int) -> "StateTable":
        """A table for a single symbol, which takes no bits."""
        table = cls.__new__(cls)
        table.accuracy, table.symbols, table._bits, table._bases = 0, [symbol], [0], [0]
        return table

    def following(self, state: int, bits: BackwardBits) -> int:
        """The next state."""
        return self._bases[state] + bits.read(self._bits[state])


def _spread(counts: list[int], size: int) -> list[int]:
    """Distributes symbols over states; symbols with a count of -1 ("less than one") take one state each, at the end."""
    symbols, high = [0] * size, size - 1
    for symbol, count in enumerate(counts):
        if count == -1:
            symbols[high] = symbol
            high -= 1
    step, at = (size >> 1) + (size >> 3) + 3, 0
    for symbol, count in enumerate(counts):
        for _ in range(count):
            symbols[at] = symbol
            at = (at + step) & (size - 1)
            while at > high:
                at = (at + step) & (size - 1)
    return symbols


def read_distribution(data: bytes, most: int, symbols: int) -> tuple[list[int], int, int]:
    """The counts of symbols, their accuracy, and the number of bytes read."""
    bits = ForwardBits(data[:512])
    accuracy = bits.read(4) + 5
    if accuracy > most:
        raise ImageError(f"compressed PTX of a fat binary has a table of 2^{accuracy} states; 2^{most} are allowed")
    counts: list[int] = []
    left = (1 << accuracy) + 1
    while left > 1 and len(counts) < symbols:
        count = _read_count(bits, left)
        counts.append(count)
        left -= abs(count)
        if count == 0:
            counts += [0] * _read_zeros(bits)
    if left != 1 or len(counts) > symbols:
        raise ImageError("compressed PTX of a fat binary has a table that does not add up")
    return counts, accuracy, -(-bits.used // 8)


def _read_count(bits: ForwardBits, left: int) -> int:
    """A count from -1 to `left`; small values take one bit less."""
    width = left.bit_length()
    short = (1 << width) - 1 - left
    low = bits.peek(width - 1)
    if low < short:
        bits.read(width - 1)
        return low - 1
    value = bits.read(width)
    return (value - short if value >= 1 << width - 1 else value) - 1


def _read_zeros(bits: ForwardBits) -> int:
    """The number of further symbols without states: pairs of bits, until one is not 3."""
    total = 0
    while True:
        more = bits.read(2)
        total += more
        if more != 3:
            return total


class HuffmanTable:
    """A Huffman code, as a lookup table for the next bits."""

    def __init__(self, weights: list[int]):
        total = sum(1 << weight - 1 for weight in weights if weight)
        if not total:
            raise ImageError("compressed PTX of a fat binary has an empty Huffman table")
        self._width = total.bit_length()
        rest = (1 << self._width) - total
        if self._width > _MOST_HUFFMAN_BITS or rest & (rest - 1):
            raise ImageError("compressed PTX of a fat binary has a Huffman table that does not add up")
        # the weight of the last symbol follows from the others
        weights = [*weights, rest.bit_length()]
        self._entries: list[tuple[int, int]] = []
        for weight in range(1, self._width + 1):
            for symbol, own in enumerate(weights):
                if own == weight:
                    self._entries += [(symbol, self._width + 1 - weight)] * (1 << weight - 1)

    def decode(self, data: bytes, count: int) -> bytes:
        """Decode `count` symbols of a bit stream."""
        bits, width, entries = BackwardBits(data), self._width, self._entries
        out = bytearray(count)
        for number in range(count):
            out[number], length = entries[bits.peek(width)]
            bits.left -= length
        if bits.left:
            raise ImageError("compressed PTX of a fat binary has literals that do not end where they should")
        return bytes(out)


def read_huffman(data: bytes) -> tuple[HuffmanTable, int]:
    """A Huffman table, and the number of bytes read; its weights are plain or FSE-coded."""
    head = data[0]
    if head >= 128:
        count = head - 127
        used = 1 + (count + 1) // 2
        packed = data[1:used]
        weights = [packed[i // 2] >> (4 if i % 2 == 0 else 0) & 15 for i in range(count)]
        return HuffmanTable(weights), used
    part = data[1 : 1 + head]
    counts, accuracy, used = read_distribution(part, 6, 16)
    return HuffmanTable(_weights(StateTable(counts, accuracy), BackwardBits(part[used:]))), 1 + head


def _weights(table: StateTable, bits: BackwardBits) -> list[int]:
    """Decode weights with two alternating states, until the bits are used up."""
    states = [bits.read(table.accuracy), bits.read(table.accuracy)]
    weights: list[int] = []
    turn = 0
    while len(weights) < 255:
        weights.append(table.symbols[states[turn]])
        states[turn] = table.following(states[turn], bits)
        turn = 1 - turn
        if bits.left < 0:
            weights.append(table.symbols[states[turn]])
            break
    return weights
