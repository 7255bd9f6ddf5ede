"""All launches of the benchmark, in the order of the table."""

from collections.abc import Callable
from functools import partial

from .case import Case, Work
from .kernels import atomics, attention, decode, elementwise, products, reductions

SM_80, SM_90 = "sm_80", "sm_90a"
# groups of the table; reductions, scans and sorts count as element-wise
ELEMENTWISE, PRODUCTS, ATOMICS = "elementwise", "products", "atomics"
GROUPS = (ELEMENTWISE, PRODUCTS, ATOMICS)

Given = tuple[object, ...]
# kernel, its group, what makes its work, and its launches: architecture and sizes
TABLE: list[tuple[str, str, Callable[..., Work], list[tuple[str, Given]]]] = [
    ("swiglu", ELEMENTWISE, elementwise.swiglu, [(SM_80, (512, 2048)), (SM_80, (1024, 4096))]),
    ("gelu", ELEMENTWISE, elementwise.gelu, [(SM_80, (1 << 20,)), (SM_90, (1 << 21,))]),
    ("rotary", ELEMENTWISE, elementwise.rotary, [(SM_80, (1024, 16, 128)), (SM_90, (4096, 8, 64))]),
    ("add", ELEMENTWISE, elementwise.add, [(SM_80, (1 << 21,)), (SM_80, (1 << 23,))]),
    ("clamp", ELEMENTWISE, elementwise.clamp, [(SM_80, (1_000_003,)), (SM_80, (3_000_001,))]),
    ("dropout", ELEMENTWISE, elementwise.dropout, [(SM_80, (1 << 19,)), (SM_80, (1 << 21,))]),
    ("softmax", ELEMENTWISE, reductions.softmax, [(SM_80, (2048, 1000)), (SM_80, (512, 4000))]),
    ("layer_norm", ELEMENTWISE, reductions.layer_norm, [(SM_80, (1024, 1024)), (SM_90, (1024, 4096))]),
    ("rms_norm", ELEMENTWISE, reductions.rms_norm, [(SM_80, (1024, 2048)), (SM_80, (512, 8192))]),
    ("cross_entropy", ELEMENTWISE, reductions.cross_entropy, [(SM_80, (64, 32000)), (SM_90, (32, 128256))]),
    ("column_sums", ELEMENTWISE, reductions.column_sums, [(SM_80, (1000, 2048)), (SM_80, (4096, 4096))]),
    ("argmax", ELEMENTWISE, reductions.argmax, [(SM_80, (1024, 1000)), (SM_80, (512, 4096))]),
    ("cumsum", ELEMENTWISE, reductions.cumsum, [(SM_80, (512, 1024)), (SM_80, (128, 16384))]),
    ("sort", ELEMENTWISE, reductions.sort, [(SM_80, (2048, 128)), (SM_80, (512, 512))]),
    ("transpose", ELEMENTWISE, reductions.transpose, [(SM_80, (1024, 1024)), (SM_90, (2000, 3000))]),
    ("matmul", PRODUCTS, products.matmul, [(SM_80, (1024, 1024, 512, "f16")), (SM_90, (2000, 1536, 1024, "bf16"))]),
    ("mapped", PRODUCTS, products.mapped, [(SM_90, (1024, 1024, 1024)), (SM_90, (2048, 2048, 1024))]),
    ("grouped", PRODUCTS, products.grouped, [(SM_80, (8, 512, 512)), (SM_90, (8, 2048, 1024))]),
    ("grouped", PRODUCTS, products.grouped, [(SM_80, (8, 1024, 512))]),
    ("small", PRODUCTS, products.small, [(SM_80, (2048, 64)), (SM_80, (4096, 32)), (SM_90, (2048, 64))]),
    ("scaled", PRODUCTS, products.scaled, [(SM_80, (512, 1024, 1024, "e5m2")), (SM_90, (1024, 2048, 1024, "e4m3"))]),
    ("flash", PRODUCTS, attention.flash, [(SM_80, (8, 1024, 64, "causal")), (SM_90, (16, 1024, 64, "causal"))]),
    ("flash", PRODUCTS, attention.flash, [(SM_80, (2, 1024, 128, "full"))]),
    ("flash_bf16", PRODUCTS, attention.flash_bf16, [(SM_90, (4, 1024, 128, "full"))]),
    ("window", PRODUCTS, attention.window, [(SM_80, (8, 2048, 64, 256)), (SM_90, (16, 1500, 128, 128))]),
    ("linear", PRODUCTS, attention.linear, [(SM_80, (32, 1024, 64)), (SM_90, (32, 2048, 64))]),
    ("paged", PRODUCTS, decode.paged, [(SM_80, (64, 512, 8, 4)), (SM_90, (32, 1024, 4, 8))]),
    ("latent", PRODUCTS, decode.latent, [(SM_80, (16, 1024, 16)), (SM_90, (16, 1024, 64))]),
    ("split", PRODUCTS, decode.split, [(SM_80, (16, 2048, 8)), (SM_90, (32, 4096, 16))]),
    ("embedding_back", ATOMICS, atomics.embedding_back, [(SM_80, (128, 512, 64, "acq_rel"))]),
    ("embedding_back", ATOMICS, atomics.embedding_back, [(SM_90, (512, 1024, 4096, "acq_rel"))]),
    ("embedding_back", ATOMICS, atomics.embedding_back, [(SM_80, (2048, 1024, 4096, "relaxed"))]),
    ("embedding_back", ATOMICS, atomics.embedding_back, [(SM_90, (2048, 512, 64, "relaxed"))]),
    ("histogram", ATOMICS, atomics.histogram, [(SM_80, (1 << 16, 256, "acq_rel"))]),
    ("histogram", ATOMICS, atomics.histogram, [(SM_80, (1 << 21, 4096, "relaxed"))]),
    ("split_product", ATOMICS, atomics.split_product, [(SM_80, (128, 256, 4096, 8)), (SM_90, (256, 512, 4096, 4))]),
]


def cases() -> list[Case]:
    """Every launch."""
    return [
        Case(kernel, group, arch, "x".join(map(str, given)), partial(make, *given))
        for kernel, group, make, launches in TABLE
        for arch, given in launches
    ]


def chosen(pattern: str) -> list[Case]:
    """Launches in whose name one of some words stands, which commas divide; all, if there is no word."""
    words = [word for word in pattern.split(",") if word]
    return [case for case in cases() if not words or any(word in case.name for word in words)]
