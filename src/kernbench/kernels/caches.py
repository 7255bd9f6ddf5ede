"""Memory layouts of keys and values: contiguous rows, or pages that a table names."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker, Shaped
from kernbench.kernels.attention import row_bytes
from kernbench.ptx.launching.device_base import DeviceArray
from kernbench.ptx.launching.tensor_map import TensorMap

PAGE_SIZES = (16, 32, 64, 128)
# order of the dimensions of a page: tokens before heads, or heads before tokens
PAGE_LAYOUTS = ("NHD", "HND")


@dataclass(frozen=True)
class DenseCache:
    """Keys and values [rows, KV heads, size]; the rows of a sequence are contiguous, from any row on."""

    def box_rows(self, tile: int) -> int:
        """Rows of one bulk copy of a tile: all."""
        return tile

    def check(self, array: Shaped, heads: int, size: int) -> None:
        """Raise MisuseError for an array of another shape."""
        _check_shape(array, (array.shape[0], heads, size), "[rows, KV heads, head size]")

    def tensor_map(self, maker: Maker, array: DeviceArray, heads: int, size: int, tile: int) -> TensorMap:
        """A map of coordinates (0, row, 0, head, 0): the box is `tile` rows of one head."""
        self.check(array, heads, size)
        rows, head = array.shape[0], size * array.dtype.itemsize
        row, wide, spans = _spans(array, size)
        dims, strides = (wide, rows, spans, heads, 1), (heads * head, row, head, rows * heads * head)
        return maker.tensor_map(array, dims, strides, (wide, tile, spans, 1, 1), f"{row}B")


@dataclass(frozen=True)
class PagedCache:
    """Pages of `page_size` tokens, found by a table [sequences, pages]; `layout` is the order of a page's
    dimensions.
    """

    page_size: int
    layout: str = "NHD"

    def __post_init__(self) -> None:
        if self.page_size not in PAGE_SIZES:
            raise MisuseError(f"page_size = {self.page_size!r}: one of {', '.join(map(str, PAGE_SIZES))}")
        if self.layout not in PAGE_LAYOUTS:
            raise MisuseError(f"layout = {self.layout!r}: one of {', '.join(PAGE_LAYOUTS)}")

    @property
    def tokens_first(self) -> bool:
        """Whether all heads of a token are adjacent in a page."""
        return self.layout == "NHD"

    def box_rows(self, tile: int) -> int:
        """Rows of one bulk copy of a tile: a page, or the tile's part of a larger one."""
        return min(self.page_size, tile)

    def strides(self, heads: int, size: int) -> tuple[int, int]:
        """Elements from a token to the next, and from a head to the next, in a page."""
        return (heads * size, size) if self.tokens_first else (size, self.page_size * size)

    def check(self, array: Shaped, heads: int, size: int) -> None:
        """Raise MisuseError for an array of another shape."""
        wanted = (self.page_size, heads) if self.tokens_first else (heads, self.page_size)
        words = "[pages, tokens, KV heads, size]" if self.tokens_first else "[pages, KV heads, tokens, size]"
        _check_shape(array, (array.shape[0], *wanted, size), words)

    def tensor_map(
        self, maker: Maker, array: DeviceArray, heads: int, size: int, tile: int, spans: int = 0
    ) -> TensorMap:
        """A map of coordinates (0, token in the page, span, head, page); a box has `spans`, by default all."""
        self.check(array, heads, size)
        nbytes = array.dtype.itemsize
        token, head = (stride * nbytes for stride in self.strides(heads, size))
        row, wide, all_spans = _spans(array, size)
        dims = (wide, self.page_size, all_spans, heads, array.shape[0])
        strides = (token, row, head, self.page_size * heads * size * nbytes)
        box = (wide, self.box_rows(tile), spans or all_spans, 1, 1)
        return maker.tensor_map(array, dims, strides, box, f"{row}B")

    def check_table(self, lengths: Sequence[int], table: Shaped | None) -> int:
        """Pages of each sequence in the table; MisuseError if it is too small for sequences of these lengths."""
        if table is None or len(table.shape) != 2 or table.shape[0] != len(lengths):
            raise MisuseError(f"a paged cache needs a table [{len(lengths)}, pages]")
        width = table.shape[1]
        if max(lengths) > width * self.page_size:
            raise MisuseError(
                f"a sequence of {max(lengths)} keys, and the table has {width} pages of {self.page_size} for each"
            )
        return width


def _spans(array: DeviceArray, size: int) -> tuple[int, int, int]:
    """Bytes and elements of a row in shared memory, at most as wide as the swizzle, and the rows of a head."""
    row = row_bytes(size, array.dtype.itemsize)
    return row, row // array.dtype.itemsize, size * array.dtype.itemsize // row


def _check_shape(array: Shaped, wanted: tuple[int, ...], words: str) -> None:
    if tuple(array.shape) != wanted:
        raise MisuseError(f"the cache has shape {list(array.shape)}, and {list(wanted)} is wanted: {words}")
