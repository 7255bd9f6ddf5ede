"""Prefill attention: a plan for prompts of given lengths, and the operator `kernbench::prefill`."""

from collections.abc import Sequence

import torch

from kernbench.common.errors import MisuseError
from kernbench.kernels.caches import PagedCache
from kernbench.kernels.prefill import PrefillKernel, PrefillShape
from kernbench.kernels.prefill import PrefillPlan as Cut
from kernbench.kernels.prefill.arguments import default_scale, factors, maps_of
from kernbench.torch.launches import Built, Tensors, sms_of
from kernbench.torch.library import operator
from kernbench.torch.tensors import cache_of, check, check_inference, check_table, dtype_name, from_array

RECORD = 8


class PrefillPlan:
    """The tiles of prompts of given lengths, packed; `key_lengths` if there are keys before the queries."""

    def __init__(
        self,
        shape: PrefillShape,
        query_lengths: Sequence[int],
        key_lengths: Sequence[int] | None = None,
        *,
        scale: float | None = None,
        device: torch.device | str = "cuda",
    ):
        where = torch.empty(0, device=device).device
        self.shape, self.scale = shape, default_scale(shape, scale)
        self.layout = shape.cache.layout if isinstance(shape.cache, PagedCache) else ""
        self._cut = Cut.of(shape, query_lengths, key_lengths, sms_of(where))
        self.ctas = self._cut.ctas
        self.records = from_array(self._cut.records).to(where)
        self.options = (self.ctas, shape.causal, shape.window, shape.softcap, self.scale, self.layout)
        # the launches whose tensors are known to fit the plan, from the last call
        self.checked: object = None
        self.queries, self.keys = sum(self._cut.query_lengths), sum(self._cut.key_lengths)

    def check(self, q: torch.Tensor, k: torch.Tensor, table: torch.Tensor | None, entries: bool = False) -> None:
        """Raise MisuseError if the tensors' numbers of tokens differ from the plan's, or a table does not fit.

        With `entries` also if the table names pages that do not exist; for a table on a GPU this synchronises.
        """
        if isinstance(self.shape.cache, PagedCache):
            check_table(self.shape.cache, self._cut.key_lengths, k, table, entries)
        elif k.shape[0] != self.keys:
            raise MisuseError(f"k has {k.shape[0]} tokens, and the plan has {self.keys}")
        if q.shape[0] != self.queries:
            raise MisuseError(f"q has {q.shape[0]} tokens, and the plan has {self.queries}")

    def explain(self) -> str:
        """How the work is divided, in words."""
        return self._cut.explain()


def prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    plan: PrefillPlan,
    *,
    table: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of whole prompts: q and the output [tokens, heads, size], k and v [tokens, KV heads, size] or pages.

    A plan with pages needs their `table` [sequences, pages] of int32. With `lse` [tokens, heads], f32, the natural
    logarithms of the softmax's sums are written there.
    """
    check_inference(q, k, v)
    if out is None:
        out = torch.empty_like(q)
    tensors = q, k, v, table, plan.records, out, lse
    known = _RUN.known(tensors, plan.options)
    if (known is None or known.ready is not plan.checked) and not torch.compiler.is_compiling():
        plan.check(q, k, table, entries=not q.is_cuda)
        plan.checked = known and known.ready
    if known is None:
        torch.ops.kernbench.prefill(*tensors, *plan.options)
    else:
        known.launch()
    return out


def _build(tensors: Tensors, ctas: int, causal: bool, window: int, softcap: float, scale: float, layout: str) -> Built:
    """Check all tensors and build the kernel."""
    shape = _shape(tensors, causal, window, softcap, layout)
    _check(tensors, shape)
    numbers: list[object] = [tensors["records"].shape[0]]
    if "table" in tensors:
        numbers += [tensors["table"].shape[1], tensors["k"].shape[0]]
    kernel, pointers = PrefillKernel(shape), [(name, 0) for name in shape.pointers]
    return Built(
        kernel.build(lines=False),
        kernel.threads,
        (ctas, 1, 1),
        pointers,
        (*numbers, *factors(shape, scale)),
        kernel.shared_bytes,
        maps_of(shape),
        ("out", "lse"),
    )


def _shape(tensors: Tensors, causal: bool, window: int, softcap: float, layout: str) -> PrefillShape:
    """The kernel's shape, derived from the tensors."""
    q = tensors["q"]
    if q.dim() != 3:
        raise MisuseError(f"q has shape {list(q.shape)}, and [tokens, heads, head size] is wanted")
    cache, heads = cache_of(tensors["k"], layout if "table" in tensors else None)
    kind, lse = dtype_name(q.dtype), "lse" in tensors
    return PrefillShape(q.shape[1], heads, q.shape[2], kind, causal, window, softcap, cache, lse)


def _check(tensors: Tensors, shape: PrefillShape) -> None:
    """Check types, devices and sizes of all tensors."""
    q, k, records = (tensors[name] for name in ("q", "k", "records"))
    kinds = {"records": torch.int32, "table": torch.int32, "lse": torch.float32}
    wanted = {"out": q.shape, "lse": q.shape[:2], "v": k.shape}
    for name, tensor in tensors.items():
        check(name, tensor, q.device, kinds.get(name, q.dtype))
        if name in ("k", "v"):
            shape.cache.check(tensor, shape.kv_heads, shape.head_size)
        if name in wanted and tensor.shape != wanted[name]:
            raise MisuseError(f"{name} has shape {list(tensor.shape)}, and {list(wanted[name])} is wanted")
    if records.dim() != 2 or records.shape[1] != RECORD or records.shape[0] % shape.heads:
        raise MisuseError("the plan was made for other heads than q has")


_RUN = operator(
    "prefill",
    {
        "q": "Tensor",
        "k": "Tensor",
        "v": "Tensor",
        "table": "Tensor?",
        "records": "Tensor",
        "out": "Tensor(a!)",
        "lse": "Tensor(b!)?",
    },
    "int ctas, bool causal, int window, float softcap, float scale, str layout",
    _build,
)
