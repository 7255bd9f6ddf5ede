"""Keyword options of a context's methods: a register to set, a guard, and the modifiers of their instructions.

Modifiers have the names of their slots in the ISA table, which determines the ones that a form has.
"""

from collections.abc import Sequence
from typing import Any, TypedDict

from kernbench.ptx.builder.values.pointer import Location, Pointer
from kernbench.ptx.builder.values.values import Inverted, Predicate, Register

__kernbench_internal__ = True

Number = int | float
Value = Register | int | float
Condition = Predicate | Inverted
# anything that denotes a location in memory
Where = Pointer | Location | Register
# one value, or a vector of them
Values = Value | Sequence[Value]
Targets = Register | Sequence[Register | None] | None
# a register, a tuple of them for a vector or a pair, or None: only the call itself determines which
Registers = Any


class Guarded(TypedDict, total=False):
    """Options of instructions without results: a guard."""

    pred: Condition | None


class Computing(Guarded, total=False):
    """Options of instructions with results: `out` are registers to set instead of new ones."""

    out: Targets


class Modifiers(Guarded, total=False):
    """Options of arithmetic: rounding, saturation, NaN, subnormals, and the carry."""

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
    """Options of integer products: `part` is "lo", "hi" or "wide"."""

    part: str


class Arithmetic(Modifiers, total=False):
    """Options of arithmetic, with the register to set."""

    out: Targets


class Products(Arithmetic, total=False):
    """Options of integer products, with the register to set."""

    part: str


class Logic(Computing, total=False):
    """Options of logic and bit fields."""

    type: str
    mode: str
    shiftamt: bool


class Flushing(Computing, total=False):
    """Options of comparisons: whether subnormals count as zero."""

    ftz: bool


class Comparing(Flushing, total=False):
    """Options of comparisons whose results are predicates: `pair` requests the inverse, too."""

    type: str
    pair: bool


class Selecting(Computing, total=False):
    """Options of a selection between two values; `type` if both are numbers."""

    type: str
    ftz: bool


class Converting(Guarded, total=False):
    """Options of conversions."""

    out: Register | None
    rnd: str | None
    ftz: bool
    sat: bool
    satfinite: bool
    relu: bool


class Accessing(TypedDict, total=False):
    """Options of loads and stores: order, scope, and cache behaviour."""

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
    """Options of cp.async."""

    cop: str
    fetch: str
    policy: Value | None


class Ordering(TypedDict, total=False):
    """Options of atomics and barriers in memory."""

    sem: str | None
    scope: str | None


class Scoped(Ordering, total=False):
    """Options of atomics."""

    policy: Value | None


class Atomic(Scoped, total=False):
    """Options of atomics with a method each; `type` if the location has none."""

    index: Value | None
    type: str | None
    pred: Condition | None
    out: Targets


class Paired(Computing, total=False):
    """Options of warp operations whose result may include a predicate."""

    pair: bool


class Shuffling(Paired, total=False):
    """Options of shuffles: lanes are exchanged in groups of `width`."""

    width: int


class Reducing(Computing, total=False):
    """Options of reductions over a warp."""

    abs: bool
    NaN: bool


class Arriving(Ordering, total=False):
    """Options of arrivals: `no_complete` asserts that the phase does not complete with it."""

    no_complete: bool


class Fragments(Computing, total=False):
    """Options of matrix loads and stores of one warp."""

    type: str
    shape: str
    stype: str


class Multiplying(Computing, total=False):
    """Options of matrix products."""

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
    """Options of products of a warpgroup."""

    satfinite: bool


class Tensor(TypedDict, total=False):
    """Options of tensor copies."""

    mode: str
    group: str
    dst: str


class Describing(TypedDict, total=False):
    """Options in the instruction descriptor of a tcgen05 product, beside shape and types."""

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
    """Options of tcgen05 products: parts of the descriptor, and modifiers."""

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
    """Options of copies to tensor memory."""

    multicast: str | None
    format: str
    sformat: str
