"""How decode work is cut: every tile has one CTA, and shared heads know who shares them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.errors import MisuseError
from kernbench.kernels.decode import DecodePlan, DecodeShape, PagedCache, Scales, arguments
from kernbench.kernels.decode.arguments import factors


@given(st.lists(st.integers(0, 700), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 40), st.booleans())
def test_records_say_where_each_cta_begins(lengths, heads, sms, fixed):
    plan = DecodePlan.of(DecodeShape(heads, heads, 64), lengths, sms, fixed=fixed)
    # one tile after the other, the slow way
    line = [
        (sequence, head, tile)
        for sequence, length in enumerate(lengths)
        for head in range(heads)
        for tile in range(max(1, -(-length // 64)))
    ]
    assert plan.tiles == len(line)
    begins = plan.begins(plan.records())
    assert len(begins) == (sms if fixed else min(sms, len(line)))
    assert [tuple(row[:3]) for row in begins[: plan.working]] == [line[plan.begin(cta)] for cta in range(plan.working)]
    assert [row[8] - row[3] for row in begins] == [plan.begin(i + 1) - plan.begin(i) for i in range(plan.ctas)]
    shares = np.diff([plan.begin(cta) for cta in range(plan.working + 1)])
    assert shares.max() - shares.min() <= 1
    assert shares.sum() == len(line)
    for number, (sequence, head, _) in enumerate(line):
        owner = plan._owner(number)
        assert plan.begin(owner) <= number < plan.begin(owner + 1)
        owners = {plan._owner(i) for i, other in enumerate(line) if other[:2] == (sequence, head)}
        assert plan._parts(sequence * heads + head) == len(owners)


def test_it_explains_itself():
    text = DecodePlan.of(DecodeShape(64, 8), [4096] * 32, 132).explain()
    assert "32 sequences with 131,072 keys, 8 KV heads of 128: 536.9 MB" in text
    assert "16,384 tiles of 64 keys over 132 CTAs, 124 to 125 tiles each" in text


def test_refusals():
    shape = DecodeShape(8, 8, 64)
    with pytest.raises(MisuseError, match="there are no sequences"):
        DecodePlan.of(shape, [], 4)
    with pytest.raises(MisuseError, match="none may be negative"):
        DecodePlan.of(shape, [3, -1], 4)
    with pytest.raises(MisuseError, match="too many for one launch"):
        DecodePlan.of(shape, [1 << 31], 132)
    with pytest.raises(MisuseError, match="1 first rows for 2 sequences"):
        DecodePlan.of(shape, [1, 2], 4).records([0])
    q = np.zeros((2, 8, 64))
    with pytest.raises(MisuseError, match=r"q has shape \[2, 8, 64\], and \[1, 8, 64\] is wanted"):
        arguments(None, DecodePlan.of(shape, [1], 4), q, q, q, q)
    paged = DecodePlan.of(DecodeShape(8, 8, 64, cache=PagedCache(16)), [40, 10], 4)
    with pytest.raises(MisuseError, match=r"a paged cache needs a table \[2, pages\]"):
        arguments(None, paged, q, q, q, q)
    with pytest.raises(MisuseError, match="a sequence of 40 keys, and the table has 2 pages of 16 for each"):
        arguments(None, paged, q, q, q, q, table=np.zeros((2, 2)))
    with pytest.raises(MisuseError, match="scales of keys and values are for a cache of 8 bits, and this one has bf16"):
        factors(shape, Scales(keys=2.0))
    with pytest.raises(MisuseError, match="a dense cache has no table of pages"):
        arguments(None, DecodePlan.of(shape, [1, 1], 4), q, q, q, q, table=q)
