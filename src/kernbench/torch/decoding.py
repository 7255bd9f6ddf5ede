"""Decode attention: a plan for sequences of given lengths, and the operator `kernbench::decode`."""

from collections.abc import Sequence

import numpy as np
import torch

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.kernels.attention import NARROW
from kernbench.kernels.caches import PagedCache
from kernbench.kernels.decode import DecodeKernel, DecodeShape, Scales
from kernbench.kernels.decode import DecodePlan as Cut
from kernbench.kernels.decode.arguments import factors
from kernbench.kernels.decode.plan import BEGIN, RECORD
from kernbench.kernels.decode.shape import POINTERS
from kernbench.torch.launches import Built, Tensors, sms_of
from kernbench.torch.library import operator
from kernbench.torch.tensors import cache_of, check, check_inference, check_table, dtype_name, from_array

WORD = 4


class DecodePlan:
    """How the work of sequences of given lengths is divided over CTAs, and the workspace of a launch.

    A plan is made for a number of sequences; `update` changes their lengths in the same memory, so that a captured CUDA
    graph stays valid. `rows` are the sequences' first rows in a dense cache; by default sequences are contiguous.
    """

    def __init__(
        self,
        shape: DecodeShape,
        lengths: Sequence[int],
        *,
        rows: Sequence[int] | None = None,
        scale: float | Scales | None = None,
        device: torch.device | str = "cuda",
    ):
        where = torch.empty(0, device=device).device
        # factors that the kernel applies to scores, and to 8-bit values
        self.shape, (self.score_factor, self.value_factor) = shape, (*factors(shape, scale), 1.0)[:2]
        self.layout = shape.cache.layout if isinstance(shape.cache, PagedCache) else ""
        self.options = (self.layout, self.score_factor, self.value_factor)
        # the launches whose tensors are known to be large enough for the lengths, from the last call
        self.checked: object = None
        self._cut = Cut.of(shape, _numbers(lengths), sms_of(where), fixed=True)
        self._held = sum(_parts(shape, len(self.lengths), self.ctas)[:2])
        counters = np.zeros(self._cut.counters, np.uint32)
        self.integers = from_array(np.concatenate([self._records(rows), counters])).to(where)
        floats = sum(_floats(shape, self.ctas))
        self.floats = torch.empty(floats, dtype=torch.float32, device=where)
        if where.type == "cpu":
            self.floats.zero_()

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of keys of each sequence."""
        return self._cut.lengths

    @property
    def ctas(self) -> int:
        """Number of CTAs of a launch."""
        return self._cut.ctas

    def update(self, lengths: Sequence[int], rows: Sequence[int] | None = None) -> None:
        """New lengths for the same number of sequences, from the next launch on this stream on."""
        if len(lengths) != len(self.lengths):
            raise MisuseError(f"{len(lengths)} lengths for a plan of {len(self.lengths)} sequences: make another plan")
        self._cut, self.checked = Cut.of(self.shape, _numbers(lengths), self.ctas, fixed=True), None
        self.integers[: self._held].copy_(from_array(self._records(rows)))

    def _records(self, rows: Sequence[int] | None) -> Array:
        records = self._cut.records(rows)
        self.rows_end = int((records[:, 3].astype(np.int64) + records[:, 2]).max())
        return np.concatenate([self._cut.begins(records).ravel(), records.ravel()])

    def check(self, k: torch.Tensor, table: torch.Tensor | None, entries: bool = False) -> None:
        """Raise MisuseError if a cache or a table is too small for the lengths.

        With `entries` also if the table names pages that do not exist; for a table on a GPU this synchronises.
        """
        if isinstance(self.shape.cache, PagedCache):
            check_table(self.shape.cache, self.lengths, k, table, entries)
        elif self.rows_end > k.shape[0]:
            raise MisuseError(f"the sequences' rows end at {self.rows_end}, and the cache has {k.shape[0]}")

    def explain(self) -> str:
        """How the work is divided, in words."""
        return self._cut.explain()


def _numbers(lengths: Sequence[int] | torch.Tensor) -> list[int]:
    return [int(length) for length in (lengths.tolist() if isinstance(lengths, torch.Tensor) else lengths)]


def _parts(shape: DecodeShape, sequences: int, ctas: int) -> tuple[int, int, int]:
    """Sizes of the arrays of begins, records and counters, which are contiguous in one tensor."""
    return ctas * BEGIN, sequences * RECORD, sequences * shape.kv_heads


def _floats(shape: DecodeShape, ctas: int) -> tuple[int, int]:
    """Sizes of the arrays of partial sums and of their softmax states, which are contiguous in one tensor."""
    rows = 2 * ctas * shape.group
    return rows * shape.head_size, rows * 2


def decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: DecodePlan,
    *,
    table: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of one query token for each sequence: q and the output [sequences, heads, head size].

    k and v are the cache: [rows, KV heads, size], or pages with a `table` [sequences, pages] of int32. With `lse`
    [sequences, heads], f32, the natural logarithms of the softmax's sums are written there.
    """
    check_inference(q, k, v)
    if out is None:
        out = torch.empty_like(q)
    tensors = q, k, v, table, plan.integers, plan.floats, out, lse
    known = _RUN.known(tensors, plan.options)
    if (known is None or known.ready is not plan.checked) and not torch.compiler.is_compiling():
        # compiled graphs serve all lengths, so they check none
        plan.check(k, table, entries=not q.is_cuda)
        plan.checked = known and known.ready
    if known is None:
        torch.ops.kernbench.decode(*tensors, *plan.options)
    else:
        known.launch()
    return out


def _build(tensors: Tensors, layout: str, score_factor: float, value_factor: float) -> Built:
    """Check all tensors and build the kernel."""
    shape = _shape(tensors, layout)
    ctas = _check(tensors, shape)
    begins, records, _ = _parts(shape, tensors["q"].shape[0], ctas)
    partial, _ = _floats(shape, ctas)
    size = (tensors["table"].shape[1], tensors["k"].shape[0]) if "table" in tensors else (0, 0)
    inside = {
        "begins": ("integers", 0),
        "records": ("integers", begins * WORD),
        "counters": ("integers", (begins + records) * WORD),
        "partial": ("floats", 0),
        "stats": ("floats", partial * WORD),
        "table": ("table" if "table" in tensors else "", 0),
    }
    pointers = [inside.get(name, (name, 0)) for name in (*POINTERS, *(("lse",) if shape.lse else ()))]
    kernel = DecodeKernel(shape)
    maps = {"k": shape.tensor_map, "v": shape.tensor_map}
    written = ("out", "lse", "integers")
    numbers = (*size, score_factor, *([value_factor] if shape.narrow else []))
    built = kernel.build(lines=False)
    return Built(built, kernel.threads, (ctas, 1, 1), pointers, numbers, kernel.shared_bytes, maps, written)


def _shape(tensors: Tensors, layout: str) -> DecodeShape:
    """The kernel's shape, derived from the tensors."""
    q, k = tensors["q"], tensors["k"]
    if q.dim() != 3:
        raise MisuseError(f"q has shape {list(q.shape)}, and [sequences, heads, head size] is wanted")
    cache, heads = cache_of(k, layout if "table" in tensors else None)
    narrow = NARROW if k.dtype == torch.float8_e4m3fn else ""
    return DecodeShape(q.shape[1], heads, q.shape[2], dtype_name(q.dtype), cache, "lse" in tensors, narrow)


def _check(tensors: Tensors, shape: DecodeShape) -> int:
    """Check types, devices and sizes of all tensors; returns the number of CTAs that the plan has memory for."""
    q, integers, floats = (tensors[name] for name in ("q", "integers", "floats"))
    kinds = {"table": torch.int32, "integers": torch.int32, "floats": torch.float32, "lse": torch.float32}
    if shape.narrow:
        kinds |= {"k": torch.float8_e4m3fn, "v": torch.float8_e4m3fn}
    wanted = {"out": q.shape, "lse": q.shape[:2]}
    for name, tensor in tensors.items():
        check(name, tensor, q.device, kinds.get(name, q.dtype))
        if name in ("k", "v"):
            shape.cache.check(tensor, shape.kv_heads, shape.head_size)
        if name in wanted and tensor.shape != wanted[name]:
            raise MisuseError(f"{name} has shape {list(tensor.shape)}, and {list(wanted[name])} is wanted")
    if "table" in tensors and (tensors["table"].dim() != 2 or tensors["table"].shape[0] != q.shape[0]):
        raise MisuseError(f"table has shape {list(tensors['table'].shape)}, and [{q.shape[0]}, pages] is wanted")
    _, *others = _parts(shape, q.shape[0], 0)
    ctas, left = divmod(integers.numel() - sum(others), BEGIN)
    if left or ctas < 1 or floats.numel() != sum(_floats(shape, ctas)):
        raise MisuseError("the plan was made for other heads or another number of sequences than q and k have")
    return int(ctas)


_RUN = operator(
    "decode",
    {
        "q": "Tensor",
        "k": "Tensor",
        "v": "Tensor",
        "table": "Tensor?",
        "integers": "Tensor(a!)",
        "floats": "Tensor(b!)",
        "out": "Tensor(c!)",
        "lse": "Tensor(d!)?",
    },
    "str layout, float score_factor, float value_factor",
    _build,
)
