"""Shared by attention kernels: sizes and types of heads, swizzled rows, softmax by ex2."""

from kernbench.common.errors import MisuseError
from kernbench.ptx.builder import Context, Register

HEAD_SIZES = (64, 128, 256)
DTYPES = ("f16", "bf16")
# 8-bit type of caches, besides the type of the queries
NARROW = "e4m3"
ELEMENT_BYTES = 2
# elements of a row of 128 bytes, the width of the swizzle
SPAN = 64
ROW_BYTES = SPAN * ELEMENT_BYTES
# factor of scores, so that ex2 computes exp
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
# lower than every possible score: the maximum of a row that has seen no key, which merges without NaN
LOWEST = -1e30


def row_bytes(size: int, element_bytes: int) -> int:
    """Bytes of a head's row in shared memory: a head is split into rows of the widest swizzle."""
    return min(ROW_BYTES, size * element_bytes)


def first_element(ctx: Context, thread: Register) -> tuple[Register, Register]:
    """Row and column of a thread's first element of a wgmma accumulator, in a group of four warps."""
    found = ctx.wgmma_place(thread)
    return found.first_row, found.first_column


def check_heads(heads: int, kv_heads: int, head_size: int, dtype: str) -> None:
    """Raise MisuseError for heads that no kernel here supports."""
    if kv_heads < 1 or heads < 1 or heads % kv_heads:
        raise MisuseError(f"heads = {heads} must be a multiple of kv_heads = {kv_heads}")
    if head_size not in HEAD_SIZES:
        raise MisuseError(f"head_size = {head_size}: one of {', '.join(map(str, HEAD_SIZES))}")
    if dtype not in DTYPES:
        raise MisuseError(f"dtype = {dtype!r}: one of {', '.join(DTYPES)}")
