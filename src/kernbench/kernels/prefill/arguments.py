"""The arguments of a launch of the prefill kernel, on any device."""

from functools import partial
from math import sqrt

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker, MapMaker, Shaped
from kernbench.kernels.attention import ELEMENT_BYTES, LOG2_E, ROW_BYTES, SPAN
from kernbench.kernels.caches import PagedCache
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
    table: Shaped | None = None,
    scale: float | None = None,
    lse: Shaped | None = None,
) -> list[object]:
    """The kernel's arguments: q and out [tokens, heads, size], k and v [tokens, KV heads, size] or pages on a device.

    `table` [sequences, pages] of a paged cache; `lse` [tokens, heads] of a shape with lse.
    """
    shape = plan.shape
    queries, keys = (sum(lengths) for lengths in (plan.query_lengths, plan.key_lengths))
    wanted = {"q": (queries, shape.heads, shape.head_size), "lse": (queries, shape.heads)}
    wanted["out"] = wanted["q"]
    if not shape.paged:
        wanted["k"] = wanted["v"] = (keys, shape.kv_heads, shape.head_size)
    given = {"q": q, "k": k, "v": v, "out": out, **({} if lse is None else {"lse": lse})}
    for name, array in given.items():
        if name in wanted and tuple(array.shape) != wanted[name]:
            raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(wanted[name])} is wanted")
    if (lse is not None) != shape.lse:
        raise MisuseError(f"a shape with lse=True, and no other, is given an array lse {list(wanted['lse'])}")
    if table is not None and not shape.paged:
        raise MisuseError("a dense cache has no table of pages")
    numbers: list[object] = [len(plan.records)]
    if isinstance(shape.cache, PagedCache):
        numbers += [shape.cache.check_table(plan.key_lengths, table), k.shape[0]]
    arrays = {"q": q, "k": k, "v": v, "out": out}
    maps = [made(device, arrays[name]) for name, made in maps_of(shape).items()]
    pointers = {"out": out, "records": device.array(plan.records, "records"), "table": table, "lse": lse}
    factor = factors(shape, default_scale(shape, scale))
    return [*maps, *(pointers[name] for name in shape.pointers), *numbers, *factor]


def default_scale(shape: PrefillShape, scale: float | None) -> float:
    """The factor of scores; by default one over the root of a head's size."""
    return 1 / sqrt(shape.head_size) if scale is None else scale


def factors(shape: PrefillShape, scale: float) -> tuple[float, float]:
    """The factor of a score before its tanh (or 0 without), and before ex2."""
    return (scale / shape.softcap, shape.softcap * LOG2_E) if shape.softcap else (1.0, scale * LOG2_E)


def maps_of(shape: PrefillShape) -> dict[str, MapMaker]:
    """Functions that make the kernel's tensor maps, in order."""
    keys: MapMaker = partial(_rows, box=shape.keys, spans=shape.spans)
    if isinstance(shape.cache, PagedCache):
        keys = partial(shape.cache.tensor_map, heads=shape.kv_heads, size=shape.head_size, tile=shape.keys, spans=1)
    queries = partial(_rows, box=ROWS, spans=shape.spans)
    return {"q": queries, "k": keys, "v": keys, "out": partial(_rows, box=GROUP_ROWS, spans=1)}


def _rows(device: Maker, array: DeviceArray, box: int, spans: int) -> TensorMap:
    """A map of [rows, heads, size]: the box is `spans` spans of `box` rows of one head."""
    rows, heads, size = array.shape
    row = heads * size * ELEMENT_BYTES
    dims, strides = (SPAN, rows, size // SPAN, heads), (row, ROW_BYTES, size * ELEMENT_BYTES)
    return device.tensor_map(array, dims, strides, (SPAN, box, spans, 1), "128B")
