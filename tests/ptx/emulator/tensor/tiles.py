"""Where the rows of matrices lie in shared memory, and the descriptors that say so."""

import numpy as np
from tests.ptx.emulator.asynchronous.matrices import TCGEN05_CODES, WIDTHS, place, strides, swizzle

ATOM = 1024


class Tiles:
    """Shared memory of every CTA, filled tile by tile; bytes between tiles are noise."""

    def __init__(self, random, ctas):
        self.random, self.ctas = random, ctas
        self.data = np.zeros((ctas, 0), np.uint8)

    def _room(self, nbytes):
        start = self.data.shape[1]
        more = self.random.integers(0, 256, (self.ctas, -(-nbytes // ATOM) * ATOM)).astype(np.uint8)
        self.data = np.concatenate([self.data, more], axis=1)
        return start

    def rows(self, parts):
        """Rows of 16 or 32 bytes, [CTAs, rows, bytes], along K: what to add to the descriptor of the first byte."""
        mode = str(self.random.choice(["none", "32B", "64B", "128B"]))
        count, nbytes = parts.shape[1:]
        groups, width = -(-count // 8), WIDTHS[mode]
        if mode == "none":
            wide = bool(self.random.integers(2))
            lead, stride = (groups * 128, 128) if wide else (128, 256)
            start, ahead = self._room(groups * 256), 0
        else:
            lead, stride = 0, 8 * width * int(self.random.integers(1, 3))
            ahead = nbytes * int(self.random.integers(width // nbytes))
            start = self._room(groups * stride)
        for row in range(count):
            for chunk in range(nbytes // 16):
                if mode == "none":
                    at = start + chunk * lead + row // 8 * stride + row % 8 * 16
                else:
                    at = swizzle(start + row // 8 * stride + row % 8 * width + ahead + 16 * chunk, mode)
                self.data[:, at : at + 16] = parts[:, row, 16 * chunk : 16 * chunk + 16]
        return self._descriptor(start + ahead, lead, stride, mode)

    def columns(self, parts, mode):
        """Elements [CTAs, rows, K] of one or more bytes, along M or N."""
        size = parts.dtype.itemsize
        lead, stride, nbytes = strides(*parts.shape[1:], size, mode, True)
        start = self._room(nbytes)
        for row, depth in np.ndindex(parts.shape[1:]):
            at = swizzle(start + place(row, depth, size, mode, True, lead, stride), mode)
            self.data[:, at : at + size] = parts[:, row, depth, None].copy().view(np.uint8)
        return self._descriptor(start, lead, stride, mode)

    @staticmethod
    def _descriptor(start, lead, stride, mode):
        return start >> 4 | lead >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | TCGEN05_CODES[mode] << 61
