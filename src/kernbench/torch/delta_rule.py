"""One token of the gated delta rule: the operator `kernbench::gated_delta_step`."""

from math import sqrt

import torch

from kernbench.common.errors import MisuseError
from kernbench.kernels.gated_delta_rule import StepKernel, StepShape, step_arguments
from kernbench.torch.launches import Built, Tensors, direct, sms_of
from kernbench.torch.library import operator
from kernbench.torch.tensors import check, check_inference, dtype_name


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
