"""The launches of a forward pass with their arguments, on any device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker, MapMaker, Shaped
from kernbench.kernels.attention import ELEMENT_BYTES, ROW_BYTES, SPAN
from kernbench.kernels.gated_delta_rule.chain import POINTERS as CHAIN_POINTERS
from kernbench.kernels.gated_delta_rule.chain import ChainKernel
from kernbench.kernels.gated_delta_rule.forward import ForwardKernel
from kernbench.kernels.gated_delta_rule.inverse import POINTERS as INVERSE_POINTERS
from kernbench.kernels.gated_delta_rule.inverse import InverseKernel
from kernbench.kernels.gated_delta_rule.shape import CHUNK, ForwardPlan, ForwardShape
from kernbench.ptx.launching.device_base import DeviceArray, Extent
from kernbench.ptx.launching.tensor_map import TensorMap

# the arrays of a plan
TABLES = ("chunks", "segments", "inner", "chains")
# intermediate arrays between kernels; the last three if sequences are cut
BETWEEN = ("gates", "inverses", "states", "transfers", "starts")


@dataclass(frozen=True)
class Launch:
    """A kernel, its grid, and the names of the arrays behind its maps and pointers; "" is an unused array."""

    kernel: InverseKernel | ForwardKernel | ChainKernel
    grid: Extent
    maps: Sequence[str]
    pointers: Sequence[str]
    scaled: bool = False


def launches(shape: ForwardShape, sizes: Mapping[str, int], optional: Sequence[str], sms: int) -> list[Launch]:
    """In order, for tables of these sizes: inverses; if sequences are cut, their segments and the chain; the outputs.

    `optional` has which of "initial" and "final" are given; `sms` is the number of SMs, 0 if unknown.
    """
    inverse, forward = InverseKernel(shape), ForwardKernel.fitting(shape, sizes["segments"], sms)
    made = [Launch(inverse, inverse.grid(sizes["chunks"]), ("k", "inverses"), INVERSE_POINTERS)]
    given = {name: name if name in optional else "" for name in ("initial", "final")}
    begins = given["initial"]
    if sizes["inner"]:
        for kind in ("states", "transfers"):
            part = ForwardKernel.fitting(shape, sizes["inner"], sms, kind)
            made.append(Launch(part, part.grid(sizes["inner"]), part.maps, part.pointers))
        chain = ChainKernel(shape)
        names = [given.get(name, name) for name in CHAIN_POINTERS]
        made.append(Launch(chain, chain.grid(sizes["chains"]), (), names))
        begins = "starts"
    names = [{**given, "initial": begins}.get(name, name) for name in forward.pointers]
    return [*made, Launch(forward, forward.grid(sizes["segments"]), forward.maps, names, scaled=True)]


def between(plan: ForwardPlan) -> dict[str, tuple[tuple[int, ...], str]]:
    """Intermediate arrays by name: shapes, and types as kernels name them."""
    shape, keys = plan.shape, plan.shape.key_size
    made: dict[str, tuple[tuple[int, ...], str]] = {
        "gates": ((plan.tokens, shape.v_heads), "f32"),
        "inverses": ((len(plan.chunks) * shape.v_heads, CHUNK, CHUNK), shape.dtype),
    }
    if plan.cut:
        inner = (len(plan.inner), shape.v_heads)
        made["states"] = ((*inner, shape.value_size, keys), "f32")
        made["transfers"] = ((*inner, keys, keys), "f32")
        made["starts"] = ((len(plan.segments), shape.v_heads, shape.value_size, keys), "f32")
    return made


def check_arrays(shape: ForwardShape, tokens: int, sequences: int, arrays: Mapping[str, Shaped]) -> None:
    """Raise MisuseError for arrays of wrong shapes."""
    queries, values = (tokens, shape.heads, shape.key_size), (tokens, shape.v_heads, shape.value_size)
    states = (sequences, shape.v_heads, shape.value_size, shape.key_size)
    wanted = {"q": queries, "k": queries, "v": values, "out": values, "initial": states, "final": states}
    wanted |= {"g": values[:2], "beta": values[:2]}
    for name, size in wanted.items():
        if name in arrays and tuple(arrays[name].shape) != size:
            raise MisuseError(f"{name} has shape {list(arrays[name].shape)}, and {list(size)} is wanted")


class ForwardPass:
    """A plan on a device, with the intermediate arrays.

    `arguments` returns each launch with its arguments, for arrays q, k, v, g, beta, out and optionally initial and
    final.
    """

    def __init__(self, device: Maker, plan: ForwardPlan, numpy_types: Mapping[str, object]):
        self.device, self.plan = device, plan
        self._own = {name: device.array(getattr(plan, name), name) for name in TABLES if len(getattr(plan, name))}
        for name, (size, kind) in between(plan).items():
            self._own[name] = device.array(np.zeros(size, numpy_types[kind]), name)  # type: ignore[call-overload]

    def arguments(
        self, arrays: Mapping[str, DeviceArray], scale: float | None = None
    ) -> list[tuple[Launch, list[object]]]:
        """Launches in order."""
        plan = self.plan
        check_arrays(plan.shape, plan.tokens, len(plan.lengths), arrays)
        given = {**arrays, **self._own}
        factor = 1 / sqrt(plan.shape.key_size) if scale is None else scale
        made: list[tuple[Launch, list[object]]] = []
        sizes = {name: len(getattr(plan, name)) for name in TABLES}
        for launch in launches(plan.shape, sizes, list(arrays), plan.sms):
            maps = [MAP_MAKERS[name](self.device, given[name]) for name in launch.maps]
            pointers = [given[name] if name else 0 for name in launch.pointers]
            made.append((launch, [*maps, *pointers, *([factor] if launch.scaled else [])]))
        return made


def _rows(device: Maker, array: DeviceArray, spans: int | None = None) -> TensorMap:
    """A map of [rows, heads, size]: the box is 64 rows of one head, or `spans` spans of them."""
    rows, heads, size = array.shape
    row = heads * size * ELEMENT_BYTES
    dims, strides = (SPAN, rows, size // SPAN, heads), (row, ROW_BYTES, size * ELEMENT_BYTES)
    return device.tensor_map(array, dims, strides, (SPAN, CHUNK, spans or size // SPAN, 1), "128B")


def _squares(device: Maker, array: DeviceArray) -> TensorMap:
    """A map of [items, 64, 64]: the box is one item."""
    items, rows, columns = array.shape
    strides = (columns * ELEMENT_BYTES, rows * columns * ELEMENT_BYTES)
    return device.tensor_map(array, (columns, rows, items), strides, (columns, rows, 1), "128B")


MAP_MAKERS: dict[str, MapMaker] = {
    "q": _rows,
    "k": _rows,
    "v": partial(_rows, spans=1),
    "inverses": _squares,
    "out": partial(_rows, spans=1),
}
