"""What a launch of the prefill kernel is given, on any device."""

from collections.abc import Callable
from functools import partial
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
    arrays = {"q": q, "k": k, "v": v, "out": out}
    maps = [made(device, arrays[name]) for name, made in maps_of(shape).items()]
    records = device.array(plan.records, "records")
    return [*maps, out, records, len(plan.records), *factors(shape, default_scale(shape, scale))]


def default_scale(shape: PrefillShape, scale: float | None) -> float:
    """What scores are multiplied with: without `scale`, one over the root of a head's size."""
    return 1 / sqrt(shape.head_size) if scale is None else scale


def factors(shape: PrefillShape, scale: float) -> tuple[float, float]:
    """What a score is multiplied with before its tanh (or nothing), and before ex2."""
    return (scale / shape.softcap, shape.softcap * LOG2_E) if shape.softcap else (1.0, scale * LOG2_E)


def maps_of(shape: PrefillShape) -> dict[str, Callable[[Maker, DeviceArray], TensorMap]]:
    """Who makes the maps that the kernel begins with, in its order."""
    boxes = {"q": ROWS, "k": shape.keys, "v": shape.keys}
    made = {name: partial(_rows, box=box, spans=shape.spans) for name, box in boxes.items()}
    return {**made, "out": partial(_rows, box=GROUP_ROWS, spans=1)}


def _rows(device: Maker, array: DeviceArray, box: int, spans: int) -> TensorMap:
    """A map of [rows, heads, size]: the box is `spans` spans of `box` rows of one head."""
    rows, heads, size = array.shape
    row = heads * size * ELEMENT_BYTES
    dims, strides = (SPAN, rows, size // SPAN, heads), (row, ROW_BYTES, size * ELEMENT_BYTES)
    return device.tensor_map(array, dims, strides, (SPAN, box, spans, 1), "128B")
