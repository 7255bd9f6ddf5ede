"""Writes new keys and values into a paged cache: each token has a slot, `page * page_size + token in the page`.

shape = AppendShape(kv_heads=8, head_size=128, dtype="bf16", cache=PagedCache(16))
kernel = AppendKernel(shape)
given = arguments(shape, k_new, v_new, k, v, slots)
device.launch(kernel.build(), kernel.ctas(tokens), kernel.threads, given)
"""

from dataclasses import dataclass

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Shaped
from kernbench.kernels.attention import ELEMENT_BYTES, NARROW, check_heads
from kernbench.kernels.caches import PagedCache
from kernbench.ptx.builder import Context, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

# bytes of one load
PIECE_BYTES = 16
PIECE = PIECE_BYTES // ELEMENT_BYTES
_WORDS = PIECE_BYTES // 4
_MOST_THREADS = 256
_POINTERS = ("k_new_ptr", "v_new_ptr", "k_ptr", "v_ptr", "slots_ptr")


@dataclass(frozen=True)
class AppendShape:
    """New keys and values [tokens, kv_heads, head_size], and pages that have as many heads.

    With `cache_dtype` "e4m3" the pages have 8-bit elements: values are divided by a scale, rounded to nearest, and
    saturated.
    """

    kv_heads: int
    head_size: int
    dtype: str
    cache: PagedCache
    cache_dtype: str = ""

    def __post_init__(self) -> None:
        check_heads(self.kv_heads, self.kv_heads, self.head_size, self.dtype)
        if self.cache_dtype not in ("", self.dtype, NARROW):
            raise MisuseError(f"cache_dtype = {self.cache_dtype!r}: {self.dtype} as new keys are, or {NARROW}")

    @property
    def narrow(self) -> bool:
        """Whether the pages have elements of 8 bits."""
        return self.cache_dtype == NARROW

    @property
    def pieces(self) -> int:
        """Loads of 16 bytes that a token's keys take."""
        return self.kv_heads * self.head_size // PIECE


class AppendKernel:
    """A CTA for each token. A token whose slot is in no page, such as -1, is not stored."""

    name = "append"

    def __init__(self, shape: AppendShape):
        self.shape = shape
        # conversions to 8 bits came with Ada and Hopper
        self.target = "sm_89" if shape.narrow else "sm_80"

    @property
    def threads(self) -> int:
        """Threads of a CTA: the first half stores the keys of a token, the others the values."""
        half = min(_MOST_THREADS // 2, -(-self.shape.pieces // 32) * 32)
        return 2 * half

    def ctas(self, tokens: int) -> int:
        """CTAs of a launch."""
        return tokens

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it has line information."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(self.threads)
        for name in _POINTERS:
            kernel.param("u64", name)
        kernel.param("u32", "tokens").param("u64", "slots_of_cache")
        for name in ("k_inverse", "v_inverse") if self.shape.narrow else ():
            kernel.param("f32", name)
        return kernel.build(self.program)

    def program(self, ctx: Context) -> None:
        """The slot of the token, then its row, 16 bytes per thread at a time."""
        half, token = self.threads // 2, ctx.ctaid_x
        with ctx.if_(token < ctx.param("tokens")):
            slot = ctx.load(ctx.pointer("slots_ptr", "u64"), token)
            # a negative slot is a very large unsigned one
            with ctx.if_(slot < ctx.param("slots_of_cache")):
                with ctx.if_(ctx.tid_x < half):
                    self._row(ctx, "k", slot, ctx.tid_x)
                with ctx.else_():
                    self._row(ctx, "v", slot, ctx.tid_x - half)

    def _row(self, ctx: Context, name: str, slot: Register, first: Register) -> None:
        """Store the keys or values of a token. Caches may have more elements than 32 bits count."""
        shape, page = self.shape, self.shape.cache.page_size
        token_stride, head_stride = shape.cache.strides(shape.kv_heads, shape.head_size)
        row = shape.kv_heads * shape.head_size
        # elements in a word of the pages
        held = 4 if shape.narrow else 2
        new = ctx.pointer(f"{name}_new_ptr", "b32") + ctx.ctaid_x.to("u64") * (row // 2)
        inside = (slot >> _bits(page)) * (page * row // held) + (slot & (page - 1)) * (token_stride // held)
        kept = ctx.pointer(f"{name}_ptr", "b32") + inside
        pieces = _bits(shape.head_size // PIECE)
        with ctx.loop(first, shape.pieces, self.threads // 2) as piece:
            head, column = piece >> pieces, piece & (1 << pieces) - 1
            target = ctx.mad(head, head_stride // held, column * (PIECE // held))
            words = list(ctx.load(new + piece * _WORDS, vec=_WORDS))
            if shape.narrow:
                words = self._narrowed(ctx, words, ctx.param(f"{name}_inverse"))
            ctx.store(kept + target, tuple(words))

    def _narrowed(self, ctx: Context, words: list[Register], inverse: Register) -> list[Register]:
        """Pack into half as many words of 8-bit elements."""
        halves = []
        for word in words:
            low, high = (one.to("f32") * inverse for one in ctx.unpack(word, self.shape.dtype))
            halves.append(ctx.cvt_pack("e4m3x2", high, low))
        return [ctx.pack("b32", halves[i], halves[i + 1]) for i in range(0, len(halves), 2)]


def _bits(power: int) -> int:
    """The exponent of a power of two, for shifts: ptxas does not turn divisions into shifts."""
    return power.bit_length() - 1


def arguments(
    shape: AppendShape,
    k_new: Shaped,
    v_new: Shaped,
    k: Shaped,
    v: Shaped,
    slots: Shaped,
    *,
    scales: tuple[float, float] = (1.0, 1.0),
) -> list[object]:
    """The kernel's arguments for arrays on a device; slots [tokens] are 64-bit numbers.

    `scales` of pages of 8-bit elements: keys and values are their elements times these.
    """
    if scales != (1.0, 1.0) and not shape.narrow:
        raise MisuseError(f"scales of keys and values are for pages of 8 bits, and these have {shape.dtype}")
    if min(scales) <= 0:
        raise MisuseError(f"scales {scales}: above 0")
    wanted = (slots.shape[0], shape.kv_heads, shape.head_size)
    for name, array in (("k_new", k_new), ("v_new", v_new)):
        if tuple(array.shape) != wanted:
            raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(wanted)} is wanted")
    for array in (k, v):
        shape.cache.check(array, shape.kv_heads, shape.head_size)
    if k.shape != v.shape:
        raise MisuseError(f"k has {k.shape[0]} pages and v has {v.shape[0]}")
    inverses = [1 / scale for scale in scales] if shape.narrow else []
    return [k_new, v_new, k, v, slots, slots.shape[0], k.shape[0] * shape.cache.page_size, *inverses]
