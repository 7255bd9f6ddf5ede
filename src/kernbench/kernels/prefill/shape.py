"""The static parameters of a prefill kernel: heads, types, and which keys a query sees."""

from dataclasses import dataclass, field

from kernbench.common.errors import MisuseError
from kernbench.kernels.attention import SPAN, check_heads
from kernbench.kernels.caches import DenseCache, PagedCache

# query rows of a tile, and of each of its two groups of warps
ROWS, GROUP_ROWS = 128, 64


@dataclass(frozen=True)
class PrefillShape:
    """q and the output [tokens, heads, head_size], k and v [tokens, kv_heads, head_size], sequence after sequence.

    With a paged `cache`, k and v are pages. With `lse` the kernel also writes the natural logarithm of each softmax's
    sum [tokens, heads] in f32, with which outputs over parts of the keys are merged.

    The last query of a sequence is at the position of its last key. With `causal` a query sees no later keys; with a
    `window` only that many keys up to its own; `softcap` c makes scores c tanh(score / c).
    """

    heads: int
    kv_heads: int
    head_size: int = 128
    dtype: str = "bf16"
    causal: bool = True
    window: int = 0
    softcap: float = 0.0
    cache: DenseCache | PagedCache = field(default_factory=DenseCache)
    lse: bool = False

    def __post_init__(self) -> None:
        check_heads(self.heads, self.kv_heads, self.head_size, self.dtype)
        if self.window < 0 or (self.window and not self.causal):
            raise MisuseError(f"window = {self.window}: a positive number of keys, with causal=True; 0 for none")
        if self.softcap < 0:
            raise MisuseError(f"softcap = {self.softcap}: a positive number, or 0 for none")

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads

    @property
    def keys(self) -> int:
        """Keys of one tile: as many as there are registers for scores besides the sums."""
        return 128 if self.head_size <= 128 else 64

    @property
    def spans(self) -> int:
        """Rows of 128 bytes of a head's row."""
        return self.head_size // SPAN

    @property
    def paged(self) -> bool:
        """Whether keys and values are found by a table of pages."""
        return isinstance(self.cache, PagedCache)

    @property
    def pointers(self) -> tuple[str, ...]:
        """Arrays of the kernel's parameters after its maps, in order."""
        return "out", "records", *(("table",) if self.paged else ()), *(("lse",) if self.lse else ())
