"""What launches of the forward kernels are given, on any device."""

from dataclasses import dataclass
from functools import partial
from math import sqrt

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker, MapMaker, Shaped
from kernbench.kernels.attention import ELEMENT_BYTES, ROW_BYTES, SPAN
from kernbench.kernels.gated_delta_rule.shape import CHUNK, ForwardPlan
from kernbench.ptx.launching.device_base import DeviceArray
from kernbench.ptx.launching.tensor_map import TensorMap


@dataclass(frozen=True)
class Arrays:
    """Arrays of a forward pass: what it reads, what it writes, and `gates` and `inverses` between its two kernels.

    gates [tokens, v_heads] are f32, inverses [chunks * v_heads, 64, 64] of the shape's type.
    """

    q: DeviceArray
    k: DeviceArray
    v: DeviceArray
    g: DeviceArray
    beta: DeviceArray
    out: DeviceArray
    gates: DeviceArray
    inverses: DeviceArray
    initial: DeviceArray | None = None
    final: DeviceArray | None = None

    def check(self, plan: ForwardPlan) -> None:
        """Raise MisuseError for an array of another shape than the plan's."""
        shape, tokens = plan.shape, plan.tokens
        queries, values = (tokens, shape.heads, shape.key_size), (tokens, shape.v_heads, shape.value_size)
        states = (len(plan.lengths), shape.v_heads, shape.value_size, shape.key_size)
        wanted = {"q": queries, "k": queries, "v": values, "out": values, "initial": states, "final": states}
        wanted |= dict.fromkeys(("g", "beta", "gates"), values[:2])
        wanted["inverses"] = (len(plan.chunks) * shape.v_heads, CHUNK, CHUNK)
        for name, size in wanted.items():
            array: Shaped | None = getattr(self, name)
            if array is not None and tuple(array.shape) != size:
                raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(size)} is wanted")


def arguments(
    device: Maker, plan: ForwardPlan, arrays: Arrays, scale: float | None = None
) -> tuple[list[object], list[object]]:
    """Arguments of the inverse kernel, and of the forward kernel."""
    arrays.check(plan)
    maps = {name: made(device, getattr(arrays, name)) for name, made in MAP_MAKERS.items()}
    first = [maps["k"], device.array(plan.chunks, "chunks"), arrays.g, arrays.beta, arrays.gates, arrays.inverses]
    states = [0 if state is None else state for state in (arrays.initial, arrays.final)]
    sequences = device.array(plan.sequences, "sequences")
    factor = 1 / sqrt(plan.shape.key_size) if scale is None else scale
    return first, [*maps.values(), sequences, arrays.gates, *states, arrays.out, factor]


def _rows(device: Maker, array: DeviceArray, spans: int | None = None) -> TensorMap:
    """A map of [rows, heads, size]: the box is 64 rows of one head, or so many spans of them."""
    rows, heads, size = array.shape
    row = heads * size * ELEMENT_BYTES
    dims, strides = (SPAN, rows, size // SPAN, heads), (row, ROW_BYTES, size * ELEMENT_BYTES)
    return device.tensor_map(array, dims, strides, (SPAN, CHUNK, spans or size // SPAN, 1), "128B")


def _squares(device: Maker, array: DeviceArray) -> TensorMap:
    """A map of [items, 64, 64]: the box is one item."""
    items, rows, columns = array.shape
    strides = (columns * ELEMENT_BYTES, rows * columns * ELEMENT_BYTES)
    return device.tensor_map(array, (columns, rows, items), strides, (columns, rows, 1), "128B")


# maps of the forward kernel, in its order; that of k serves the other kernel, too
MAP_MAKERS: dict[str, MapMaker] = {
    "q": _rows,
    "k": _rows,
    "v": _rows,
    "inverses": _squares,
    "out": partial(_rows, spans=1),
}
