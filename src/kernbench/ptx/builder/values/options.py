"""What methods of a context take by name: a register to set, a guard, and the modifiers of their instructions.

Modifiers are called as the ISA table calls their slots; the table decides which of them a form has.
"""

from collections.abc import Sequence
from typing import Any, TypedDict

from kernbench.ptx.builder.values.pointer import Location, Pointer
from kernbench.ptx.builder.values.values import Inverted, Predicate, Register

__kernbench_internal__ = True

Number = int | float
Value = Register | int | float
Condition = Predicate | Inverted
# what names a location in memory
Where = Pointer | Location | Register
# one value, or as many as a vector has
Values = Value | Sequence[Value]
Targets = Register | Sequence[Register | None] | None
# A register, a tuple of them where a vector or a pair was asked for, or None: only the call itself says which.
Registers = Any


class Guarded(TypedDict, total=False):
    """Of an instruction that sets nothing: the threads that take part."""

    pred: Condition | None


class Computing(Guarded, total=False):
    """Of an instruction that sets registers: `out` are those to set instead of new ones."""

    out: Targets


class Modifiers(Guarded, total=False):
    """Of arithmetic: how a result is rounded and clamped, what becomes of NaN and subnormals, and the carry."""

    type: str
    atype: str
    rnd: str
    mode: str
    ftz: bool
    sat: bool
    satfinite: bool
    relu: bool
    oob: bool
    NaN: bool
    xorsign: bool
    abs: bool
    cc: bool


class ProductModifiers(Modifiers, total=False):
    """Of products of integers: `part` is "lo", "hi" or "wide"."""

    part: str


class Arithmetic(Modifiers, total=False):
    """Of arithmetic, with the register to set."""

    out: Targets


class Products(Arithmetic, total=False):
    """Of products of integers, with the register to set."""

    part: str


class Logic(Computing, total=False):
    """Of logic and bit fields."""

    type: str
    mode: str
    shiftamt: bool


class Flushing(Computing, total=False):
    """Of comparisons: whether subnormals count as zero."""

    ftz: bool


class Comparing(Flushing, total=False):
    """Of comparisons whose results are predicates: `pair` asks for the opposite one, too."""

    type: str
    pair: bool


class Selecting(Computing, total=False):
    """Of choices between two values; `type` where both are numbers."""

    type: str
    ftz: bool


class Converting(Guarded, total=False):
    """Of conversions."""

    out: Register | None
    rnd: str | None
    ftz: bool
    sat: bool
    satfinite: bool
    relu: bool


class Accessing(TypedDict, total=False):
    """Of loads and stores: order, scope, and what caches do."""

    sem: str | None
    scope: str | None
    cop: str | None
    nc: bool
    l1: str | None
    l2: str | None
    fetch: str | None
    mmio: bool
    policy: Value | None


class Copying(TypedDict, total=False):
    """Of asynchronous copies of a few bytes."""

    cop: str
    fetch: str
    policy: Value | None


class Ordering(TypedDict, total=False):
    """Of atomics and barriers in memory."""

    sem: str | None
    scope: str | None


class Scoped(Ordering, total=False):
    """Of atomics."""

    policy: Value | None


class Atomic(Scoped, total=False):
    """Of atomics by name; `type` where the location has none."""

    index: Value | None
    type: str | None
    pred: Condition | None
    out: Targets


class Paired(Computing, total=False):
    """Of instructions of a warp whose result may come with a predicate."""

    pair: bool


class Shuffling(Paired, total=False):
    """Of shuffles: lanes are exchanged in groups of `width`."""

    width: int


class Reducing(Computing, total=False):
    """Of reductions over a warp."""

    abs: bool
    NaN: bool


class Arriving(Ordering, total=False):
    """Of arrivals: `no_complete` promises that the phase does not end with it."""

    no_complete: bool


class Fragments(Computing, total=False):
    """Of matrices that one warp loads or stores."""

    type: str
    shape: str
    stype: str


class Multiplying(Computing, total=False):
    """Of matrix products."""

    satfinite: bool
    rnd: str
    op: str
    popc: bool
    kind: str
    block_scale: bool
    vector: str
    stype: str
    sp: str | bool


class Warpgroup(Guarded, total=False):
    """Of products of a warpgroup."""

    satfinite: bool


class Tensor(TypedDict, total=False):
    """Of tensor copies."""

    mode: str
    group: str
    dst: str


class Describing(TypedDict, total=False):
    """What the instruction descriptor of a tcgen05 product says beside shape and types."""

    kind: str | None
    group: int
    ws: bool
    trans_a: bool
    trans_b: bool
    negate_a: bool
    negate_b: bool
    saturate: bool
    scale_type: str
    scale_ids: tuple[int, int]


class Tcgen05Product(TypedDict, total=False):
    """Of tcgen05 products: parts of the descriptor, and modifiers."""

    negate_a: bool
    negate_b: bool
    saturate: bool
    scale_type: str
    scale_ids: tuple[int, int]
    collector: str
    vector: str
    ashift: bool
    sp: bool


class Tcgen05Copy(TypedDict, total=False):
    """Of copies to tensor memory."""

    multicast: str | None
    format: str
    sformat: str
