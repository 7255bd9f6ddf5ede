"""New keys and values in a paged cache: where they belong, and nowhere else."""

import numpy as np
import pytest
from tests.kernels.decode.problem import NUMPY

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.kernels.append import AppendKernel, AppendShape, arguments
from kernbench.kernels.caches import PagedCache


def run(shape, slots, pages=5, tokens=None, schedule="canonical", scales=(1.0, 1.0)):
    """Caches before and after, and what was new."""
    rng, device = np.random.default_rng(0), ptx.EmulatedDevice("sm_90a")
    kind, page = NUMPY[shape.dtype], shape.cache.page_size
    inner = (page, shape.kv_heads) if shape.cache.tokens_first else (shape.kv_heads, page)
    before = rng.standard_normal((2, pages, *inner, shape.head_size)).astype(NUMPY[shape.cache_dtype or shape.dtype])
    new = rng.standard_normal((2, len(slots), shape.kv_heads, shape.head_size)).astype(kind)
    k, v = (device.array(one, name) for one, name in zip(before, "kv", strict=True))
    k_new, v_new = (device.array(one) for one in new)
    kernel = AppendKernel(shape)
    given = arguments(shape, k_new, v_new, k, v, device.array(np.array(slots, np.int64)), scales=scales)
    done = device.launch(kernel.build(), kernel.ctas(tokens or len(slots)), kernel.threads, given, schedule=schedule)
    assert not done.findings, done.findings[0]
    return before, new, np.stack([k.numpy(), v.numpy()])


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize(
    ("heads", "size", "dtype", "page"),
    [(8, 128, "bf16", 16), (3, 64, "f16", 32), (1, 256, "bf16", 64), (20, 128, "f16", 16)],
)
def test_every_token_goes_to_its_slot(heads, size, dtype, page, layout):
    shape = AppendShape(heads, size, dtype, PagedCache(page, layout))
    slots = [3, 2 * page - 1, 4 * page, -1, page, 5 * page, 1 << 40]
    before, new, after = run(shape, slots)
    wanted = before.copy()
    seen = wanted if layout == "NHD" else wanted.transpose(0, 1, 3, 2, 4)
    for token, slot in enumerate(slots):
        if 0 <= slot < 5 * page:
            seen[:, slot // page, slot % page] = new[:, token]
    np.testing.assert_array_equal(after, wanted)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_pages_of_8_bits(layout):
    shape, scales = AppendShape(3, 64, "bf16", PagedCache(16, layout), "e4m3"), (0.01, 2.0)
    before, new, after = run(shape, [5, -1, 40], scales=scales)
    wanted = before.copy()
    seen = wanted if layout == "NHD" else wanted.transpose(0, 1, 3, 2, 4)
    # divided by 0.01 some are past 448, the largest there is
    exact = np.clip(new.astype(np.float32) * (1 / np.array(scales, np.float32))[:, None, None, None], -448, 448)
    for token, slot in ((0, 5), (2, 40)):
        seen[:, slot // 16, slot % 16] = exact[:, token].astype(wanted.dtype)
    np.testing.assert_array_equal(after.view(np.uint8), wanted.view(np.uint8))


def test_more_ctas_than_tokens():
    """A captured launch has as many as there may be."""
    before, new, after = run(AppendShape(2, 64, "f16", PagedCache(16)), [20], tokens=4)
    assert (after != before).any(axis=(0, 3, 4)).sum() == 1
    np.testing.assert_array_equal(after[:, 1, 4], new[:, 0])


def test_refusals():
    shape = AppendShape(2, 64, "f16", PagedCache(16))
    new, cache, slots = np.zeros((3, 2, 64)), np.zeros((4, 16, 2, 64)), np.zeros(3)
    with pytest.raises(MisuseError, match=r"v_new has shape \[3, 2, 64\], and \[2, 2, 64\] is wanted"):
        arguments(shape, new[:2], new, cache, cache, slots[:2])
    with pytest.raises(MisuseError, match=r"the cache has shape \[4, 2, 16, 64\], and \[4, 16, 2, 64\] is wanted"):
        arguments(shape, new, new, cache.reshape(4, 2, 16, 64), cache, slots)
    with pytest.raises(MisuseError, match="scales of keys and values are for pages of 8 bits, and these have f16"):
        arguments(shape, new, new, cache, cache, slots, scales=(2.0, 1.0))
    with pytest.raises(MisuseError, match="cache_dtype = 'e5m2': f16 as new keys are, or e4m3"):
        AppendShape(2, 64, "f16", PagedCache(16), "e5m2")
    with pytest.raises(MisuseError, match="k has 4 pages and v has 3"):
        arguments(shape, new, new, cache, cache[:3], slots)
