"""What attention kernels share: sizes and types of heads, rows as the swizzle has them, softmax by ex2."""

from kernbench.common.errors import MisuseError
from kernbench.ptx.builder import Context, Register

HEAD_SIZES = (64, 128, 256)
DTYPES = ("f16", "bf16")
# what caches may hold beside them
NARROW = "e4m3"
ELEMENT_BYTES = 2
# elements of a row of 128 bytes, as wide as the swizzle
SPAN = 64
ROW_BYTES = SPAN * ELEMENT_BYTES
# scores are multiplied with this, so that ex2 serves
LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
# below every score that can be: the largest of a row that has seen no key, which merges without a NaN
LOWEST = -1e30


def row_bytes(size: int, element_bytes: int) -> int:
    """Bytes of a head's row in shared memory: a head is cut into rows as wide as the widest swizzle."""
    return min(ROW_BYTES, size * element_bytes)


def first_element(ctx: Context, thread: Register) -> tuple[Register, Register]:
    """Row and column of the first element of a wgmma accumulator that a thread of a group of four warps has."""
    found = ctx.wgmma_place(thread)
    return found.first_row, found.first_column


def check_heads(heads: int, kv_heads: int, head_size: int, dtype: str) -> None:
    """Raise MisuseError for heads that no kernel here has."""
    if kv_heads < 1 or heads < 1 or heads % kv_heads:
        raise MisuseError(f"heads = {heads} must be a multiple of kv_heads = {kv_heads}")
    if head_size not in HEAD_SIZES:
        raise MisuseError(f"head_size = {head_size}: one of {', '.join(map(str, HEAD_SIZES))}")
    if dtype not in DTYPES:
        raise MisuseError(f"dtype = {dtype!r}: one of {', '.join(DTYPES)}")
