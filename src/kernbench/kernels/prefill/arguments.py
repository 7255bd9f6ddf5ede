"""What a launch of the prefill kernel is given, on any device."""

from math import sqrt

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker
from kernbench.kernels.attention import ELEMENT_BYTES, LOG2_E, ROW_BYTES, SPAN
from kernbench.kernels.prefill.plan import PrefillPlan
from kernbench.kernels.prefill.shape import GROUP_ROWS, ROWS, PrefillShape
from kernbench.ptx.launching.device_base import DeviceArray
from kernbench.ptx.launching.tensor_map import TensorMap


def arguments(
    device: Maker,
    plan: PrefillPlan,
    q: DeviceArray,
    k: DeviceArray,
    v: DeviceArray,
    out: DeviceArray,
    *,
    scale: float | None = None,
) -> list[object]:
    """The kernel's arguments: q and out [tokens, heads, size], k and v [tokens, KV heads, size] on a device."""
    shape = plan.shape
    queries, keys = (sum(lengths) for lengths in (plan.query_lengths, plan.key_lengths))
    wanted = {"q": (queries, shape.heads), "out": (queries, shape.heads), "k": (keys, shape.kv_heads)}
    wanted["v"] = wanted["k"]
    for name, array in (("q", q), ("out", out), ("k", k), ("v", v)):
        size = (*wanted[name], shape.head_size)
        if tuple(array.shape) != size:
            raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(size)} is wanted")
    maps = [_rows(device, one, rows, shape) for one, rows in ((q, ROWS), (k, shape.keys), (v, shape.keys))]
    maps.append(_rows(device, out, GROUP_ROWS, shape, spans=1))
    factor = 1 / sqrt(shape.head_size) if scale is None else scale
    return [*maps, out, device.array(plan.records, "records"), len(plan.records), *_factors(shape, factor)]


def _factors(shape: PrefillShape, scale: float) -> tuple[float, float]:
    """What a score is multiplied with before its tanh (or nothing), and before ex2."""
    return (scale / shape.softcap, shape.softcap * LOG2_E) if shape.softcap else (1.0, scale * LOG2_E)


def _rows(device: Maker, array: DeviceArray, box: int, shape: PrefillShape, spans: int | None = None) -> TensorMap:
    """A map of [rows, heads, size]: the box is `box` rows of one head, or so many spans of them."""
    rows, heads, size = array.shape
    row = heads * size * ELEMENT_BYTES
    dims, strides = (SPAN, rows, shape.spans, heads), (row, ROW_BYTES, size * ELEMENT_BYTES)
    return device.tensor_map(array, dims, strides, (SPAN, box, spans or shape.spans, 1), "128B")
