"""Bit streams of a Zstandard block, read forwards or, as most are, backwards."""

from kernbench.ptx.doors.driver.images.errors import ImageError


class ForwardBits:
    """Bits from the beginning of `data`, least significant first."""

    def __init__(self, data: bytes):
        self._value = int.from_bytes(data, "little")
        self._room = 8 * len(data)
        self.used = 0

    def peek(self, count: int) -> int:
        """The next bits without consuming them; zeros past the end."""
        return self._value >> self.used & ((1 << count) - 1)

    def read(self, count: int) -> int:
        """Consume the next bits."""
        value = self.peek(count)
        self.used += count
        if self.used > self._room + 8:
            raise ImageError("compressed PTX of a fat binary is cut off")
        return value


class BackwardBits:
    """Bits from the end of `data`; the highest set bit marks the start. Zeros follow past the end."""

    # bytes that are converted to a number at once: shifts of long numbers are slow
    _CHUNK = 64

    def __init__(self, data: bytes):
        if not data or not data[-1]:
            raise ImageError("compressed PTX of a fat binary has a stream of bits without an end")
        self._data = data
        self.left = 8 * len(data) - 9 + data[-1].bit_length()
        self._first = self._last = 0
        self._value = 0

    def peek(self, count: int) -> int:
        """The next bits without consuming them."""
        low = self.left - count
        if low < 0:
            return self.peek(self.left) << -low if self.left > 0 else 0
        if low < self._first or self.left > self._last:
            self._load(low)
        return self._value >> (low - self._first) & ((1 << count) - 1)

    def _load(self, low: int) -> None:
        end = min(len(self._data), (self.left + 7) // 8)
        begin = max(0, min(low // 8, end - self._CHUNK))
        self._first, self._last = 8 * begin, 8 * end
        self._value = int.from_bytes(self._data[begin:end], "little")

    def read(self, count: int) -> int:
        """Consume the next bits."""
        if count == 0:
            return 0
        value = self.peek(count)
        self.left -= count
        return value
