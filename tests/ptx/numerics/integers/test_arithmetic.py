import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.ptx.numerics import operation, zero_divisors

WORDS = [
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    31,
    32,
    33,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFFFFFF,
]


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) else value


def apply(meaning, mods, *sources, out="uint32", outputs=1):
    count = max(np.size(source) for source in sources)
    targets = [np.empty(count, out), *(np.empty(count, bool) for _ in range(outputs - 1))]
    operation(meaning, mods)(*sources, *targets)
    return targets[0] if outputs == 1 else targets


def pairs(bits=32):
    words = [w for w in WORDS if w < 1 << bits] + ([1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF] if bits == 64 else [])
    both = list(itertools.product(words, words))
    dtype = f"uint{bits}"
    return np.array([a for a, _ in both], dtype), np.array([b for _, b in both], dtype)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("part", ["lo", "hi"])
def test_products(kind, part):
    bits = int(kind[1:])
    a, b = pairs(bits)
    got = apply("mul.int", {"type": kind, "part": part}, a, b, out=a.dtype)
    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        product = signed(x, bits) * signed(y, bits) if kind[0] == "s" else x * y
        assert z == (product >> (bits if part == "hi" else 0)) & ((1 << bits) - 1)


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_wide_multiply_add(kind):
    a, b = pairs()
    c = (a.astype(np.uint64) << np.uint64(31)) + b
    got = apply("mad.int", {"type": kind, "part": "wide"}, a, b, c, out="uint64")
    value = (lambda x: signed(x, 32)) if kind == "s32" else int
    want = [(value(x) * value(y) + z) % (1 << 64) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    assert got.tolist() == want


@pytest.mark.parametrize("kind", ["u32", "s32", "s64"])
@pytest.mark.parametrize("name", ["div", "rem"])
def test_division_truncates_and_by_zero_gives_all_ones(kind, name):
    bits = int(kind[1:])
    a, b = pairs(bits)
    got = apply(f"{name}.int", {"type": kind}, a, b, out=a.dtype)
    for x, y, z, flag in zip(a.tolist(), b.tolist(), got.tolist(), zero_divisors(b).tolist(), strict=True):
        if kind[0] == "s":
            x, y = signed(x, bits), signed(y, bits)
        assert flag == (y == 0)
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else -1
        want = -1 if not y else quotient if name == "div" else x - quotient * y
        assert z == want % (1 << bits)


def test_saturating_sums_and_carries():
    a, b = pairs()
    got = apply("add.int", {"type": "s32", "sat": "sat"}, a, b)
    want = np.clip(a.view(np.int32).astype(np.int64) + b.view(np.int32), -(2**31), 2**31 - 1)
    assert (got.view(np.int32) == want).all()
    carry = np.arange(a.size) % 2 == 1
    total, flag = apply("add.carry", {"type": "u32", "cc": "cc", "reads": "reads"}, a, b, carry, outputs=2)
    exact = a.astype(np.uint64) + b + carry
    assert (total == exact.astype(np.uint32)).all()
    assert (flag == (exact >> np.uint64(32)).astype(bool)).all()
    total, flag = apply("sub.carry", {"type": "u32", "cc": "cc", "reads": "reads"}, a, b, carry, outputs=2)
    difference = a.astype(np.int64) - b.astype(np.int64) - ~carry
    assert (total == (difference & 0xFFFFFFFF)).all()
    assert (flag == (difference >= 0)).all()
    total, flag = apply("sub.carry", {"type": "u32", "cc": "cc"}, a, b, outputs=2)
    assert (total == a - b).all()
    assert (flag == (a >= b)).all()


def test_packed_and_relu_extremes():
    a, b = np.array([0x0001FFFF], np.uint32), np.array([0xFFFE0002], np.uint32)
    assert apply("max.int", {"type": "s16x2"}, a, b)[0] == 0x00010002
    assert apply("max.int", {"type": "u16x2"}, a, b)[0] == 0xFFFEFFFF
    assert apply("min.int", {"type": "s16x2", "relu": "relu"}, a, b)[0] == 0
    assert apply("add.int", {"type": "u16x2"}, a, b)[0] == 0xFFFF0001


def test_dot_products():
    a, b, c = (np.array([x], np.uint32) for x in (0xFF010203, 0x02FF0405, 10))
    assert apply("dp4a", {"atype": "s32", "btype": "u32"}, a, b, c)[0] == (-2 + 255 + 8 + 15 + 10)
    high = apply("dp2a", {"atype": "s32", "btype": "s32", "part": "hi"}, a, b, c)
    assert high.view(np.int32)[0] == (0xFF01 - 0x10000) * 2 - 0x203 + 10


@pytest.mark.parametrize("lut", [0x00, 0x17, 0x96, 0xB1, 0xCA, 0xF8, 0xFF])
def test_lop3_reads_any_table(lut):
    a, b, c = (np.array([x], np.uint32) for x in (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA))
    assert apply("lop3", {"type": "b32"}, a, b, c, np.array(lut, np.uint32))[0] == lut * 0x01010101


@pytest.mark.parametrize(
    ("meaning", "kind"), [("shl", "b32"), ("shl", "b64"), ("shr", "u32"), ("shr", "s32"), ("shr", "s64")]
)
def test_shift_amounts_are_clamped(meaning, kind):
    bits = int(kind[1:])
    a, _ = pairs(bits)
    amounts = np.array([0, 1, bits - 1, bits, bits + 1, 0x80000000, 0xFFFFFFFF] * (a.size // 7 + 1), np.uint32)[
        : a.size
    ]
    got = apply(meaning, {"type": kind}, a, amounts, out=a.dtype)
    for x, n, z in zip(a.tolist(), amounts.tolist(), got.tolist(), strict=True):
        n = min(n, bits)
        value = signed(x, bits) if kind[0] == "s" else x
        assert z == (value << n if meaning == "shl" else value >> n) & ((1 << bits) - 1)


words = st.integers(0, 2**32 - 1)


@settings(max_examples=sampled.examples(60, 150))
@given(words, words, words)
def test_bit_fields(a, b, c):
    one = np.array([a], np.uint32)
    position, length = np.array([b], np.uint32), np.array([c], np.uint32)
    start, count = b & 0xFF, c & 0xFF
    sign = count and (a >> min(start + count - 1, 31)) & 1
    want = sum(((a >> (start + i) & 1) if i < count and start + i < 32 else sign) << i for i in range(32))
    assert apply("bfe", {"type": "s32"}, one, position, length)[0] == want
    mask = (((1 << count) - 1) << start) & 0xFFFFFFFF
    inserted = apply("bfi", {"type": "b32"}, one, np.array([~a & 0xFFFFFFFF], np.uint32), position, length)[0]
    assert inserted == (~a & ~mask & 0xFFFFFFFF) | ((a << start) & mask)
    both = b << 32 | a
    wrapped = apply("shf", {"dir": "l", "mode": "wrap"}, one, position, length)[0]
    assert wrapped == ((both << (c & 31)) >> 32) & 0xFFFFFFFF
    assert apply("shf", {"dir": "r", "mode": "clamp"}, one, position, length)[0] == (both >> min(c, 32)) & 0xFFFFFFFF
    picked = [(a | b << 32) >> 8 * (c >> 4 * i & 7) & 0xFF for i in range(4)]
    picked = [(0xFF if x >> 7 else 0) if c >> 4 * i & 8 else x for i, x in enumerate(picked)]
    assert apply("prmt", {"type": "b32"}, one, position, length)[0] == sum(x << 8 * i for i, x in enumerate(picked))
    assert apply("popc", {"type": "b32"}, one)[0] == a.bit_count()
    assert apply("clz", {"type": "b32"}, one)[0] == 32 - a.bit_length()
    assert apply("brev", {"type": "b32"}, one)[0] == int(f"{a:032b}"[::-1], 2)
    assert apply("bfind", {"type": "u32"}, one)[0] == (a.bit_length() - 1) & 0xFFFFFFFF


def test_selection_and_comparison():
    a, b = pairs()
    less = np.empty(a.size, bool)
    operation("setp", {"cmp": "lt", "type": "s32"})(a, b, less)
    assert (less == (a.view(np.int32) < b.view(np.int32))).all()
    flags, other = np.empty(a.size, bool), np.empty(a.size, bool)
    operation("setp", {"cmp": "hi", "type": "u32", "bool": "and"})(a, b, less, flags, other)
    assert (flags == ((a > b) & less)).all()
    assert (other == (~(a > b) & less)).all()
    assert (apply("selp", {"type": "b32"}, a, b, less) == np.where(less, a, b)).all()
    assert (apply("set", {"cmp": "eq", "dtype": "f32", "type": "u32"}, a, b) == np.where(a == b, 0x3F800000, 0)).all()


@pytest.mark.parametrize(
    ("name", "on_nan"),
    [("eq", False), ("ne", False), ("neu", True), ("ltu", True), ("ge", False), ("num", False), ("nan", True)],
)
def test_float_comparisons_with_nan(name, on_nan):
    a, b = (np.array(x, np.float32).view(np.uint32) for x in ([1.0, np.nan, np.nan, -0.0], [2.0, 1.0, np.nan, 0.0]))
    result = np.empty(4, bool)
    operation("setp", {"cmp": name, "type": "f32"})(a, b, result)
    assert result[1] == result[2] == on_nan
    assert result[3] == (name in ("eq", "ge", "num"))
