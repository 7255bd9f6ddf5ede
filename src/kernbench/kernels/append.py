"""New keys and values into a paged cache: each token has a slot, `page * page_size + token in the page`.

shape = AppendShape(kv_heads=8, head_size=128, dtype="bf16", cache=PagedCache(16))
kernel = AppendKernel(shape)
given = arguments(shape, k_new, v_new, k, v, slots)
device.launch(kernel.build(), kernel.ctas(tokens), kernel.threads, given)
"""

from dataclasses import dataclass

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Shaped
from kernbench.kernels.attention import ELEMENT_BYTES, check_heads
from kernbench.kernels.caches import PagedCache
from kernbench.ptx.builder import Context, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

# what one load brings
PIECE_BYTES = 16
PIECE = PIECE_BYTES // ELEMENT_BYTES
_WORDS = PIECE_BYTES // 4
_MOST_THREADS = 256
_POINTERS = ("k_new_ptr", "v_new_ptr", "k_ptr", "v_ptr", "slots_ptr")


@dataclass(frozen=True)
class AppendShape:
    """New keys and values [tokens, kv_heads, head_size], and pages that have as many heads."""

    kv_heads: int
    head_size: int
    dtype: str
    cache: PagedCache

    def __post_init__(self) -> None:
        check_heads(self.kv_heads, self.kv_heads, self.head_size, self.dtype)

    @property
    def pieces(self) -> int:
        """Loads of 16 bytes that a token's keys take."""
        return self.kv_heads * self.head_size // PIECE


class AppendKernel:
    """A CTA for each token. A slot that no page has, such as -1, is a token that is not kept."""

    name = "append"
    target = "sm_80"

    def __init__(self, shape: AppendShape):
        self.shape = shape

    @property
    def threads(self) -> int:
        """Threads of a CTA: keys of a token by the first half of them, values by the others."""
        half = min(_MOST_THREADS // 2, -(-self.shape.pieces // 32) * 32)
        return 2 * half

    def ctas(self, tokens: int) -> int:
        """CTAs of a launch."""
        return tokens

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it names those of its source."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(self.threads)
        for name in _POINTERS:
            kernel.param("u64", name)
        return kernel.param("u32", "tokens").param("u64", "slots_of_cache").build(self.program)

    def program(self, ctx: Context) -> None:
        """Where the token goes, then its row, 16 bytes a thread at a time."""
        half, token = self.threads // 2, ctx.ctaid_x
        with ctx.if_(token < ctx.param("tokens")):
            slot = ctx.load(ctx.pointer("slots_ptr", "u64"), token)
            # a negative slot is a very large one without its sign
            with ctx.if_(slot < ctx.param("slots_of_cache")):
                with ctx.if_(ctx.tid_x < half):
                    self._row(ctx, "k", slot, ctx.tid_x)
                with ctx.else_():
                    self._row(ctx, "v", slot, ctx.tid_x - half)

    def _row(self, ctx: Context, name: str, slot: Register, first: Register) -> None:
        """Keys or values of a token. Caches have more elements than 32 bits count."""
        shape, page = self.shape, self.shape.cache.page_size
        token_stride, head_stride = shape.cache.strides(shape.kv_heads, shape.head_size)
        row = shape.kv_heads * shape.head_size
        new = ctx.pointer(f"{name}_new_ptr", "b32") + ctx.ctaid_x.to("u64") * (row // 2)
        inside = (slot >> _bits(page)) * (page * row // 2) + (slot & (page - 1)) * (token_stride // 2)
        kept = ctx.pointer(f"{name}_ptr", "b32") + inside
        pieces = _bits(shape.head_size // PIECE)
        with ctx.loop(first, shape.pieces, self.threads // 2) as piece:
            head, column = piece >> pieces, piece & (1 << pieces) - 1
            target = ctx.mad(head, head_stride // 2, column * _WORDS)
            ctx.store(kept + target, ctx.load(new + piece * _WORDS, vec=_WORDS))


def _bits(power: int) -> int:
    """The exponent of a power of two: an assembler of PTX divides where it is asked to."""
    return power.bit_length() - 1


def arguments(shape: AppendShape, k_new: Shaped, v_new: Shaped, k: Shaped, v: Shaped, slots: Shaped) -> list[object]:
    """The kernel's arguments for arrays on a device; slots [tokens] are 64-bit numbers."""
    wanted = (slots.shape[0], shape.kv_heads, shape.head_size)
    for name, array in (("k_new", k_new), ("v_new", v_new)):
        if tuple(array.shape) != wanted:
            raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(wanted)} is wanted")
    for array in (k, v):
        shape.cache.check(array, shape.kv_heads, shape.head_size)
    if k.shape != v.shape:
        raise MisuseError(f"k has {k.shape[0]} pages and v has {v.shape[0]}")
    return [k_new, v_new, k, v, slots, slots.shape[0], k.shape[0] * shape.cache.page_size]
