"""The gated delta rule, for one token of each sequence and for whole sequences.

Operators `kernbench::gated_delta_step` and `kernbench::gated_delta_rule`.
"""

from collections.abc import Sequence
from math import sqrt

import torch

from kernbench.common.errors import MisuseError
from kernbench.kernels.gated_delta_rule import ForwardPlan, ForwardShape, Launch, StepKernel, StepShape, step_arguments
from kernbench.kernels.gated_delta_rule.arguments import (
    BETWEEN,
    MAP_MAKERS,
    TABLES,
    between,
    check_arrays,
    launches,
)
from kernbench.torch.launches import Built, Tensors, sms_of
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
    """The output [sequences, value heads, value size] of one token of each sequence; states are updated in place.

    q and k [sequences, heads, key size], v [sequences, value heads, value size]; gates g (natural logarithms) and beta
    [sequences, value heads] in f32; states [slots, value heads, value size, key size] in f32, and each sequence's slot,
    int32, all different. A slot that does not exist, such as -1, means a sequence without a state: zeros.
    """
    check_inference(q, k, v, g, beta, states)
    if out is None:
        out = torch.empty_like(v)
    found = 1 / sqrt(q.shape[-1]) if scale is None else scale
    tensors, options = (q, k, v, g, beta, states, slots, out), (found, normalise)
    known = _RUN.known(tensors, options)
    if known is None:
        torch.ops.kernbench.gated_delta_step(*tensors, *options)
    else:
        known.launch()
    return out


def _build(tensors: Tensors, scale: float, normalise: bool) -> Built:
    """Check all tensors and build the kernel."""
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
    """The chunks of sequences of given lengths, and the workspace that the kernels pass to each other.

    With too few sequences for the GPU's SMs, long ones are divided into segments that are processed in parallel.
    """

    def __init__(self, shape: ForwardShape, lengths: Sequence[int], *, device: torch.device | str = "cuda"):
        where = torch.empty(0, device=device).device
        self.shape = shape
        self._cut = ForwardPlan.of(shape, [int(length) for length in lengths], sms_of(where))
        self.tables = [from_array(getattr(self._cut, name)).to(where) for name in TABLES]
        kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
        made = between(self._cut)
        # zeros, since an emulated launch copies all of it in and out
        self.between = [
            torch.zeros(*made[name][0], dtype=kinds[made[name][1]], device=where) if name in made else None
            for name in BETWEEN
        ]

    @property
    def tokens(self) -> int:
        """Number of tokens of all sequences."""
        return self._cut.tokens

    def explain(self) -> str:
        """How the work is divided, in words."""
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
    """The output [tokens, value heads, value size] of whole sequences, packed one after the other.

    q and k [tokens, heads, key size], v [tokens, value heads, value size]; gates g (natural logarithms, not positive)
    and beta [tokens, value heads] in f32; optional initial and final states [sequences, value heads, value size, key
    size] in f32. Queries and keys are not normalised here.
    """
    check_inference(q, k, v, g, beta, initial)
    if out is None:
        out = torch.empty_like(v)
    found = 1 / sqrt(q.shape[-1]) if scale is None else scale
    tensors = (q, k, v, g, beta, *plan.tables, *plan.between, initial, final, out)
    known = _FORWARD.known(tensors, (found,))
    if known is None:
        torch.ops.kernbench.gated_delta_rule(*tensors, found)
    else:
        known.launch()
    return out


def _build_forward(tensors: Tensors, scale: float) -> list[Built]:
    """Check all tensors and build the kernels."""
    q, v, chains = (tensors[name] for name in ("q", "v", "chains"))
    for name, rank in (("q", 3), ("v", 3)):
        if tensors[name].dim() != rank:
            raise MisuseError(f"{name} has shape {list(tensors[name].shape)}, and {rank} dimensions are wanted")
    kinds = dict.fromkeys(TABLES, torch.int32)
    kinds |= dict.fromkeys(("g", "beta", "gates", "states", "transfers", "starts", "initial", "final"), torch.float32)
    for name, tensor in tensors.items():
        check(name, tensor, q.device, kinds.get(name, q.dtype))
    shape = ForwardShape(q.shape[1], v.shape[1], q.shape[2], v.shape[2], dtype_name(q.dtype))
    check_arrays(shape, q.shape[0], chains.shape[0], tensors)
    if tensors["gates"].shape != (q.shape[0], shape.v_heads):
        raise MisuseError(
            f"the plan was made for {list(tensors['gates'].shape)} tokens and heads, not {list(v.shape[:2])}"
        )
    sizes = {name: tensors[name].shape[0] for name in TABLES}
    return [_built(launch, scale) for launch in launches(shape, sizes, list(tensors), sms_of(q.device))]


def _built(launch: Launch, scale: float) -> Built:
    kernel = launch.kernel
    return Built(
        kernel.build(lines=False),
        kernel.threads,
        launch.grid,
        [(name, 0) for name in launch.pointers],
        (scale,) if launch.scaled else (),
        kernel.shared_bytes,
        {name: MAP_MAKERS[name] for name in launch.maps},
        (*BETWEEN, "final", "out"),
    )


_FORWARD = operator(
    "gated_delta_rule",
    {
        **dict.fromkeys(("q", "k", "v", "g", "beta", *TABLES), "Tensor"),
        **{name: f"Tensor({chr(ord('a') + i)}!){'?' if i > 1 else ''}" for i, name in enumerate(BETWEEN)},
        "initial": "Tensor?",
        "final": "Tensor(y!)?",
        "out": "Tensor(z!)",
    },
    "float scale",
    _build_forward,
)
