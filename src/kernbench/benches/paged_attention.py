"""Paged attention of one token for each sequence on the npu: staged tasks, or cube and vector cores fused by FIFOs."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

from kernbench import npu
from kernbench.bench import Bench, Expected, ShapesOnly, Size, Variant, normal, param
from kernbench.benches.paged_forms import fused, grouped, staged
from kernbench.benches.paged_forms.shape import Shape
from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError
from kernbench.golden.paged_attention import paged_attention
from kernbench.npu.isa.model import ChipModel
from kernbench.result.run import Run

FORMS = {
    "staged": (staged.orchestrate, "four SPMD tasks for each page, ordered by the tensor map"),
    "fused": (fused.orchestrate, "one mixed task on each cluster; S, P and O stream through FIFOs"),
    "grouped": (
        grouped.orchestrate,
        "scores of many pages wait in UB for one maximum, so O is summed in the cube and leaves it once",
    ),
}


@dataclass(frozen=True)
class Parameters:
    """Problem, kernel form and chip of one panel."""

    form: str = param("fused", "how the work is cut into tasks", choices=tuple(FORMS))
    scores: str = param(
        "f32", "type of S on its way to the vector cores; f16 holds |q k| up to 65,504", choices=("f32", "f16")
    )
    chip: str = param("a2a3", "bundled chip or TOML path")
    B: int = param(1, "sequences", low=1, high=4096)
    H: int = param(16, "query heads", low=1)
    kv_heads: int = param(1, "KV heads; divides H", low=1)
    D: int = param(16, "size of a head: a multiple of 16 up to 256", low=16, high=256)
    page: int = param(16, "keys of a page (block of the cache)", low=1)
    tile: int = param(16, "query heads of a tile", low=1, high=64)
    context: int = param(33, "keys of each sequence, where lengths does not say", low=0)
    lengths: tuple[int, ...] = param((), "keys of each sequence; empty: all have `context`", low=0)
    repeat_pages: bool = param(False, "sequences share pages")

    def __post_init__(self) -> None:
        if self.lengths and len(self.lengths) != self.B:
            raise BenchError(f"B = {self.B} sequences need {self.B} lengths; got {self.lengths}")
        _ = self.shape

    @property
    def contexts(self) -> tuple[int, ...]:
        """Keys of each sequence."""
        return self.lengths or (self.context,) * self.B

    @property
    def shape(self) -> Shape:
        """The static parameters of the kernels."""
        pages = max(1, *(ceil(n / self.page) for n in self.contexts), 1)
        return Shape(self.B, self.H, self.kv_heads, self.D, self.page, pages, self.tile, self.D**-0.5, self.scores)


def inputs(p: Parameters, rng: np.random.Generator | ShapesOnly) -> dict[str, Array]:
    """Normal Q, K and V in bf16, pages in random order; memory outside every context is NaN."""
    pages, spare = p.shape.pages, 3
    count = pages if p.repeat_pages else p.B * pages
    query = normal(rng, (p.B, p.H, p.D), "bf16")
    keys, values = (normal(rng, (count + spare, p.page, p.kv_heads, p.D), "bf16") for _ in range(2))
    order = np.arange(count) if isinstance(rng, ShapesOnly) else rng.permutation(count + spare)[:count]
    rows = np.stack([np.roll(order, b) for b in range(p.B)]) if p.repeat_pages else order.reshape(p.B, pages)
    if not isinstance(rng, ShapesOnly):
        inside = np.zeros(keys.shape[:2], bool)
        for b, length in enumerate(p.contexts):
            for page in range(pages):
                inside[rows[b, page], : max(0, min(p.page, length - page * p.page))] = True
        keys[~inside] = values[~inside] = np.nan
    return {
        "query": query,
        "key_cache": keys,
        "value_cache": values,
        "block_table": rows.astype(np.int32),
        "context_lens": np.array(p.contexts, np.int32),
    }


def golden(p: Parameters, x: Mapping[str, Array]) -> dict[str, Expected]:
    """Attention over the gathered pages in float64; P is rounded to bf16 in the kernel."""
    names = ("query", "key_cache", "value_cache", "block_table", "context_lens")
    query, keys, values, table, lens = (x[name] for name in names)
    return {"out": Expected(paged_attention(query, keys, values, table, lens), compute_dtype="bf16")}


def host(p: Parameters, chip: ChipModel) -> npu.Chip:
    """The chip, with any `chip.*` settings applied."""
    return npu.Chip(chip)


def launch(p: Parameters, x: Mapping[str, Array], *, torch: npu.Chip) -> Run:
    """The orchestration of the chosen form."""
    out = np.broadcast_to(np.zeros((), np.float32), (p.B, p.H, p.D))
    return torch.launch(FORMS[p.form][0], *x.values(), out, p.shape)


def physical_limits(p: Parameters, chip: ChipModel) -> dict[str, int]:
    """Lower bounds of any schedule: keys and values once through memory, products at the cube's peak, exponentials."""
    shape, keys = p.shape, sum(p.contexts)
    nbytes = 2 * keys * p.kv_heads * p.D * 2 + p.B * p.H * p.D * 6
    macs = 2 * keys * p.H * p.D
    cycles = macs / (chip.cube.macs.bf16 * chip.clusters.count)
    exponentials = keys * p.H * 4 / (chip.vector.special * 2 * chip.clusters.count)
    cycle = float(chip.clusters.cycle_ps)
    return {
        "memory": int(nbytes / chip.memory.bytes_per_ps),
        "cube": int(cycles * cycle),
        "exp": int(exponentials * cycle),
        "one task": (chip.tasks.submit_ps + chip.tasks.dispatch_ps) if shape.items else 0,
    }


def variants(p: Parameters) -> dict[str, Variant]:
    """All forms, for the same problem; `grouped` also with S in f16, which moves least and is only as exact as that
    type.
    """
    found = {name: Variant({"form": name}, idea) for name, (_, idea) in FORMS.items()}
    if p.scores == "f32":
        found["grouped_f16"] = Variant({"form": "grouped", "scores": "f16"}, "grouped, with S in f16 on its way")
    return found


_SERVED = {"B": 64, "H": 64, "kv_heads": 8, "D": 128, "page": 128, "context": 8192, "lengths": ()}

bench = Bench(
    name="paged_attention",
    summary=f"paged attention of one token for each sequence on the npu: {', '.join(FORMS)}",
    parameters=Parameters,
    inputs=inputs,
    golden=golden,
    host=host,
    launch=launch,
    limits=physical_limits,
    variants=variants,
    panels={
        "context_33": {"lengths": (33,)},
        "context_128": {"lengths": (128,)},
        "contexts_33_17": {"B": 2, "lengths": (33, 17)},
        "contexts_33_64_48_15": {"B": 4, "lengths": (33, 64, 48, 15)},
        "served": {"B": 3, "H": 32, "kv_heads": 4, "D": 128, "page": 64, "lengths": (200, 0, 129)},
    },
    # a server's batch: too large to carry data
    sizes={"8k": Size({"served": _SERVED}, shapes_only=True)},
)
