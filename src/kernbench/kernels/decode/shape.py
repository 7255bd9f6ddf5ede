"""What a decode kernel is built for: heads, types, and how the cache lies in memory."""

from dataclasses import dataclass

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker
from kernbench.kernels.attention import ELEMENT_BYTES, ROW_BYTES, SPAN, check_heads
from kernbench.ptx.launching.device_base import DeviceArray
from kernbench.ptx.launching.tensor_map import TensorMap

# keys of one tile, and of a warp in it
TILE, WARP_KEYS = 64, 16
LARGEST_GROUP = 16
PAGE_SIZES = (16, 32, 64, 128)
# how the dimensions of a page lie: tokens before heads, or heads before tokens
PAGE_LAYOUTS = ("NHD", "HND")


@dataclass(frozen=True)
class DenseCache:
    """Keys and values [rows, KV heads, size]; the rows of a sequence follow each other, wherever they begin."""

    @property
    def rows_of_box(self) -> int:
        """Rows that one bulk copy brings."""
        return TILE

    def tensor_map(self, maker: Maker, array: DeviceArray, shape: "DecodeShape") -> TensorMap:
        """A map of coordinates (0, row, 0, head, 0): the box is a tile of one head."""
        rows = array.shape[0]
        _check_shape(array, (rows, shape.kv_heads, shape.head_size), "[rows, KV heads, head size]")
        row = shape.kv_heads * shape.head_size * ELEMENT_BYTES
        head = shape.head_size * ELEMENT_BYTES
        dims = (SPAN, rows, shape.spans, shape.kv_heads, 1)
        return maker.tensor_map(
            array, dims, (row, ROW_BYTES, head, rows * row), (SPAN, TILE, shape.spans, 1, 1), "128B"
        )


@dataclass(frozen=True)
class PagedCache:
    """Pages of `page_size` tokens, found by a table [sequences, pages]; `layout` is that of a page's dimensions."""

    page_size: int
    layout: str = "NHD"

    def __post_init__(self) -> None:
        if self.page_size not in PAGE_SIZES:
            raise MisuseError(f"page_size = {self.page_size!r}: one of {', '.join(map(str, PAGE_SIZES))}")
        if self.layout not in PAGE_LAYOUTS:
            raise MisuseError(f"layout = {self.layout!r}: one of {', '.join(PAGE_LAYOUTS)}")

    @property
    def rows_of_box(self) -> int:
        """Rows that one bulk copy brings: a page, or the tile's part of a larger one."""
        return min(self.page_size, TILE)

    def tensor_map(self, maker: Maker, array: DeviceArray, shape: "DecodeShape") -> TensorMap:
        """A map of coordinates (0, token in the page, 0, head, page)."""
        pages, page = array.shape[0], self.page_size
        tokens_first = self.layout == "NHD"
        wanted = (page, shape.kv_heads) if tokens_first else (shape.kv_heads, page)
        words = "[pages, tokens, KV heads, size]" if tokens_first else "[pages, KV heads, tokens, size]"
        _check_shape(array, (pages, *wanted, shape.head_size), words)
        head = shape.head_size * ELEMENT_BYTES
        strides = (shape.kv_heads * head, head) if tokens_first else (head, page * head)
        dims = (SPAN, page, shape.spans, shape.kv_heads, pages)
        all_strides = (strides[0], ROW_BYTES, strides[1], page * shape.kv_heads * head)
        return maker.tensor_map(array, dims, all_strides, (SPAN, self.rows_of_box, shape.spans, 1, 1), "128B")


def _check_shape(array: DeviceArray, wanted: tuple[int, ...], words: str) -> None:
    if tuple(array.shape) != wanted:
        raise MisuseError(f"the cache has shape {list(array.shape)}, and {list(wanted)} is wanted: {words}")


@dataclass(frozen=True)
class DecodeShape:
    """Heads and types: query and output [sequences, heads, head_size], `heads / kv_heads` query heads share a cache."""

    heads: int
    kv_heads: int
    head_size: int = 128
    dtype: str = "bf16"
    cache: DenseCache | PagedCache = DenseCache()

    def __post_init__(self) -> None:
        check_heads(self.heads, self.kv_heads, self.head_size, self.dtype)
        if self.group > LARGEST_GROUP:
            raise MisuseError(
                f"{self.group} query heads for each KV head: at most {LARGEST_GROUP}; repeat the KV heads, or split "
                f"the query heads over two launches"
            )

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads

    @property
    def spans(self) -> int:
        """Rows of 128 bytes that one key has."""
        return self.head_size // SPAN

    @property
    def tile_bytes(self) -> int:
        """Bytes of the keys of a tile; the values have as many."""
        return TILE * self.head_size * ELEMENT_BYTES
