"""Prefill attention: a plan for prompts of given lengths, and the operator `kernbench::prefill`."""

from collections.abc import Sequence

import torch

from kernbench.common.errors import MisuseError
from kernbench.kernels.prefill import PrefillKernel, PrefillShape
from kernbench.kernels.prefill import PrefillPlan as Cut
from kernbench.kernels.prefill.arguments import default_scale, factors, maps_of
from kernbench.torch.launches import Built, Operation, Tensors, direct, sms_of
from kernbench.torch.library import operator
from kernbench.torch.tensors import check, check_inference, dtype_name, from_array

RECORD = 8


class PrefillPlan:
    """The tiles of prompts of given lengths, one after the other; `key_lengths` where keys came before the queries."""

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
        self._cut = Cut.of(shape, query_lengths, key_lengths, sms_of(where))
        self.ctas = self._cut.ctas
        self.records = from_array(self._cut.records).to(where)
        self.queries, self.keys = sum(self._cut.query_lengths), sum(self._cut.key_lengths)

    def check(self, q: torch.Tensor, k: torch.Tensor) -> None:
        """Raise MisuseError for tensors with other numbers of tokens than the plan has."""
        for name, tensor, wanted in (("q", q, self.queries), ("k", k, self.keys)):
            if tensor.shape[0] != wanted:
                raise MisuseError(f"{name} has {tensor.shape[0]} tokens, and the plan has {wanted}")

    def explain(self) -> str:
        """The cut in words."""
        return self._cut.explain()


def prefill(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, plan: PrefillPlan, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Attention of whole prompts: q and the output [tokens, heads, size], k and v [tokens, KV heads, size]."""
    check_inference(q, k, v)
    shape = plan.shape
    if not torch.compiler.is_compiling():
        plan.check(q, k)
    if out is None:
        out = torch.empty_like(q)
    options = (plan.ctas, shape.causal, shape.window, shape.softcap, plan.scale)
    run = _run if direct(q, k, v, out) else torch.ops.kernbench.prefill
    run(q, k, v, plan.records, *options, out)
    return out


def _run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    records: torch.Tensor,
    ctas: int,
    causal: bool,
    window: int,
    softcap: float,
    scale: float,
    out: torch.Tensor,
) -> None:
    _OPERATION({"q": q, "k": k, "v": v, "out": out, "records": records}, ctas, causal, window, softcap, scale)


def _build(tensors: Tensors, ctas: int, causal: bool, window: int, softcap: float, scale: float) -> Built:
    """Check everything, and build the kernel."""
    q, k, v, out, records = (tensors[name] for name in ("q", "k", "v", "out", "records"))
    for name, tensor in (("q", q), ("k", k), ("v", v), ("out", out)):
        if tensor.dim() != 3:
            raise MisuseError(f"{name} has shape {list(tensor.shape)}, and [tokens, heads, head size] is wanted")
        check(name, tensor, q.device, q.dtype)
    check("records", records, q.device, torch.int32)
    shape = PrefillShape(q.shape[1], k.shape[1], q.shape[2], dtype_name(q.dtype), causal, window, softcap)
    if k.shape != v.shape or k.shape[2] != q.shape[2] or out.shape != q.shape:
        sizes = ", ".join(f"{name} {list(tensors[name].shape)}" for name in ("q", "k", "v", "out"))
        raise MisuseError(f"{sizes}: k and v are alike, q and out are alike, and all have one head size")
    if records.dim() != 2 or records.shape[1] != RECORD or records.shape[0] % shape.heads:
        raise MisuseError("the plan was made for other heads than q has")

    numbers = (records.shape[0], *factors(shape, scale))
    kernel = PrefillKernel(shape)
    built, pointers = kernel.build(lines=False), (("out", 0), ("records", 0))
    return Built(built, kernel.threads, ctas, pointers, numbers, kernel.shared_bytes, maps_of(shape), ("out",))


_OPERATION = Operation(_build)
operator(
    "prefill(Tensor q, Tensor k, Tensor v, Tensor records, int ctas, bool causal, int window, float softcap, "
    "float scale, Tensor(a!) out) -> ()",
    _run,
)
