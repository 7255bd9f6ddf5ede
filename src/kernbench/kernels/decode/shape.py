"""The static parameters of a decode kernel: heads, types, and the cache's layout."""

from dataclasses import dataclass, field

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker
from kernbench.kernels.attention import ELEMENT_BYTES, NARROW, check_heads, row_bytes
from kernbench.kernels.caches import DenseCache, PagedCache
from kernbench.ptx.launching.device_base import DeviceArray
from kernbench.ptx.launching.tensor_map import TensorMap

# keys of one tile, and of a warp in it
TILE, WARP_KEYS = 64, 16
LARGEST_GROUP = 16
# the kernel's array parameters, in this order; the logarithms of the sums follow with lse
POINTERS = ("q", "out", "begins", "records", "table", "partial", "stats", "counters")


@dataclass(frozen=True)
class DecodeShape:
    """Heads and types: query and output [sequences, heads, head_size], `heads / kv_heads` query heads share a cache.

    With `lse` the kernel also writes the natural logarithm of each softmax's sum [sequences, heads] in f32, with which
    outputs over parts of the keys are merged; minus infinity without keys. With `cache_dtype` "e4m3" keys
    and values have 8 bits, and a launch has a scale for each.
    """

    heads: int
    kv_heads: int
    head_size: int = 128
    dtype: str = "bf16"
    cache: DenseCache | PagedCache = field(default_factory=DenseCache)
    lse: bool = False
    cache_dtype: str = ""

    def __post_init__(self) -> None:
        check_heads(self.heads, self.kv_heads, self.head_size, self.dtype)
        if self.cache_dtype not in ("", self.dtype, NARROW):
            raise MisuseError(f"cache_dtype = {self.cache_dtype!r}: {self.dtype} as the queries are, or {NARROW}")
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
    def narrow(self) -> bool:
        """Whether the cache has elements of 8 bits."""
        return self.cache_dtype == NARROW

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in shared memory; a key has one or several."""
        return row_bytes(self.head_size, self._element_bytes)

    @property
    def tile_bytes(self) -> int:
        """Bytes of the keys of a tile, and of its values."""
        return TILE * self.head_size * self._element_bytes

    @property
    def _element_bytes(self) -> int:
        return 1 if self.narrow else ELEMENT_BYTES

    @property
    def box_rows(self) -> int:
        """Rows of the cache in one bulk copy."""
        return self.cache.box_rows(TILE)

    def tensor_map(self, maker: Maker, array: DeviceArray) -> TensorMap:
        """A map of keys or values: the box is a tile of one head, or the part of it in one page."""
        return self.cache.tensor_map(maker, array, self.kv_heads, self.head_size, TILE)
