"""The gated delta rule: one token a sequence, and whole sequences by the two kernels of a plan.

Operators `kernbench::gated_delta_step`, `kernbench::gated_delta_inverse` and `kernbench::gated_delta_forward`.
"""

from collections.abc import Sequence
from math import sqrt

import torch

from kernbench.common.errors import MisuseError
from kernbench.kernels.gated_delta_rule import (
    ForwardKernel,
    ForwardPlan,
    ForwardShape,
    InverseKernel,
    StepKernel,
    StepShape,
    step_arguments,
)
from kernbench.kernels.gated_delta_rule.arguments import MAP_MAKERS
from kernbench.kernels.gated_delta_rule.shape import CHUNK
from kernbench.torch.launches import Built, Tensors, direct, sms_of
from kernbench.torch.library import operator
from kernbench.torch.tensors import check, check_inference, dtype_name, from_array


def gated_delta_step(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    states: torch.Tensor,
    slots: torch.Tensor,
    *,
    scale: float | None = None,
    normalise: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The output [sequences, value heads, value size] of one token a sequence; states are updated in place.

    q and k [sequences, heads, key size], v [sequences, value heads, value size]; gates g (natural logarithms) and beta
    [sequences, value heads] in f32; states [slots, value heads, value size, key size] in f32, and the slot of each
    sequence, int32, all different. A slot that is not there, such as -1, is a sequence without a state: zeros.
    """
    check_inference(q, k, v, g, beta, states)
    if out is None:
        out = torch.empty_like(v)
    found = 1 / sqrt(q.shape[-1]) if scale is None else scale
    run = _RUN if direct(q, k, v, states) else torch.ops.kernbench.gated_delta_step
    run(q, k, v, g, beta, states, slots, out, found, normalise)
    return out


def _build(tensors: Tensors, scale: float, normalise: bool) -> Built:
    """Check everything, and build the kernel."""
    q, v = tensors["q"], tensors["v"]
    for name, rank in (("q", 3), ("v", 3), ("states", 4), ("slots", 1)):
        if tensors[name].dim() != rank:
            raise MisuseError(f"{name} has shape {list(tensors[name].shape)}, and {rank} dimensions are wanted")
    kinds = {"g": torch.float32, "beta": torch.float32, "states": torch.float32, "slots": torch.int32}
    for name, tensor in tensors.items():
        check(name, tensor, q.device, kinds.get(name, q.dtype))
    shape = StepShape(q.shape[1], v.shape[1], q.shape[2], v.shape[2], dtype_name(q.dtype), normalise)
    numbers = step_arguments(shape, **tensors, scale=scale)[len(tensors) :]
    kernel = StepKernel.fitting(shape, q.shape[0], sms_of(q.device))
    pointers = [(name, 0) for name in tensors]
    grid = kernel.grid(q.shape[0])
    return Built(kernel.build(lines=False), kernel.threads, grid, pointers, numbers, written=("states", "out"))


_RUN = operator(
    "gated_delta_step",
    {
        "q": "Tensor",
        "k": "Tensor",
        "v": "Tensor",
        "g": "Tensor",
        "beta": "Tensor",
        "states": "Tensor(a!)",
        "slots": "Tensor",
        "out": "Tensor(b!)",
    },
    "float scale, bool normalise",
    _build,
)


class GatedDeltaPlan:
    """The chunks of sequences of given lengths, one after the other, and memory between the two kernels."""

    def __init__(self, shape: ForwardShape, lengths: Sequence[int], *, device: torch.device | str = "cuda"):
        where = torch.empty(0, device=device).device
        self.shape, self._cut = shape, ForwardPlan.of(shape, [int(length) for length in lengths])
        kinds = {"f16": torch.float16, "bf16": torch.bfloat16}
        self.chunks, self.sequences = (from_array(one).to(where) for one in (self._cut.chunks, self._cut.sequences))
        items = len(self._cut.chunks) * shape.v_heads
        self.inverses = torch.zeros(items, CHUNK, CHUNK, dtype=kinds[shape.dtype], device=where)
        self.gates = torch.zeros(self._cut.tokens, shape.v_heads, dtype=torch.float32, device=where)

    @property
    def tokens(self) -> int:
        """Of all sequences."""
        return self._cut.tokens

    def explain(self) -> str:
        """The cut in words."""
        return self._cut.explain()


def gated_delta_rule(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    plan: GatedDeltaPlan,
    *,
    initial: torch.Tensor | None = None,
    final: torch.Tensor | None = None,
    scale: float | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """The output [tokens, value heads, value size] of whole sequences, one after the other.

    q and k [tokens, heads, key size], v [tokens, value heads, value size]; gates g (natural logarithms, not positive)
    and beta [tokens, value heads] in f32; initial and final states [sequences, value heads, value size, key size] in
    f32, where they are given. Queries and keys are taken as they are: normalise them before.
    """
    check_inference(q, k, v, g, beta, initial)
    if out is None:
        out = torch.empty_like(v)
    found = 1 / sqrt(q.shape[-1]) if scale is None else scale
    listens = not direct(q, k, v, g)
    inverse = torch.ops.kernbench.gated_delta_inverse if listens else _INVERSE
    forward = torch.ops.kernbench.gated_delta_forward if listens else _FORWARD
    inverse(k, plan.chunks, g, beta, plan.gates, plan.inverses)
    forward(q, k, v, plan.inverses, out, plan.sequences, plan.gates, initial, final, found)
    return out


def _build_inverse(tensors: Tensors) -> Built:
    """Check everything, and build the kernel."""
    k, chunks, gates = (tensors[name] for name in ("k", "chunks", "gates"))
    kinds = {"chunks": torch.int32, "g": torch.float32, "beta": torch.float32, "gates": torch.float32}
    for name, tensor in tensors.items():
        check(name, tensor, k.device, kinds.get(name, k.dtype))
    shape = _forward_shape(k, gates.shape[-1], CHUNK)
    tokens, items = (k.shape[0], gates.shape[1]), (chunks.shape[0] * gates.shape[1], CHUNK, CHUNK)
    wanted = {"g": tokens, "beta": tokens, "gates": tokens, "inverses": items}
    _check_sizes(tensors, wanted)
    kernel = InverseKernel(shape)
    pointers = [(name, 0) for name in ("chunks", "g", "beta", "gates", "inverses")]
    return Built(
        kernel.build(lines=False),
        kernel.threads,
        kernel.grid(chunks.shape[0]),
        pointers,
        (),
        kernel.shared_bytes,
        {"k": MAP_MAKERS["k"]},
        ("gates", "inverses"),
    )


def _build_forward(tensors: Tensors, scale: float) -> Built:
    """Check everything, and build the kernel."""
    q, v, sequences = (tensors[name] for name in ("q", "v", "sequences"))
    kinds = {"sequences": torch.int32, "gates": torch.float32, "initial": torch.float32, "final": torch.float32}
    for name, tensor in tensors.items():
        check(name, tensor, q.device, kinds.get(name, q.dtype))
    if v.dim() != 3 or sequences.dim() != 2:
        raise MisuseError(f"v has shape {list(v.shape)}, and [tokens, value heads, value size] is wanted")
    shape = _forward_shape(q, v.shape[1], v.shape[2])
    states = (sequences.shape[0], shape.v_heads, shape.value_size, shape.key_size)
    wanted = {"k": tuple(q.shape), "v": (q.shape[0], *v.shape[1:]), "out": tuple(v.shape), "initial": states}
    wanted |= {"final": states, "gates": (q.shape[0], shape.v_heads)}
    _check_sizes(tensors, wanted)
    kernel = ForwardKernel(shape)
    names = ("sequences", "gates", "initial", "final", "out")
    pointers = [(name if name in tensors else "", 0) for name in names]
    grid = kernel.grid(sequences.shape[0])
    built = kernel.build(lines=False)
    return Built(built, kernel.threads, grid, pointers, (scale,), kernel.shared_bytes, MAP_MAKERS, ("out", "final"))


def _forward_shape(k: torch.Tensor, v_heads: int, value_size: int) -> ForwardShape:
    if k.dim() != 3:
        raise MisuseError(f"queries or keys have shape {list(k.shape)}, and [tokens, heads, key size] is wanted")
    return ForwardShape(k.shape[1], v_heads, k.shape[2], value_size, dtype_name(k.dtype))


def _check_sizes(tensors: Tensors, wanted: dict[str, tuple[int, ...]]) -> None:
    for name, size in wanted.items():
        if name in tensors and tuple(tensors[name].shape) != size:
            raise MisuseError(f"{name} has shape {list(tensors[name].shape)}, and {list(size)} is wanted")


_INVERSE = operator(
    "gated_delta_inverse",
    {
        "k": "Tensor",
        "chunks": "Tensor",
        "g": "Tensor",
        "beta": "Tensor",
        "gates": "Tensor(a!)",
        "inverses": "Tensor(b!)",
    },
    "",
    _build_inverse,
)
_FORWARD = operator(
    "gated_delta_forward",
    {
        "q": "Tensor",
        "k": "Tensor",
        "v": "Tensor",
        "inverses": "Tensor",
        "out": "Tensor(a!)",
        "sequences": "Tensor",
        "gates": "Tensor",
        "initial": "Tensor?",
        "final": "Tensor(b!)?",
    },
    "float scale",
    _build_forward,
)
