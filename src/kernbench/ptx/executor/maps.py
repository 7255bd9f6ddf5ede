"""Tensor maps as rows of numbers, for the copies of boxes."""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.asynchronous.copies.tensors import Box
from kernbench.ptx.emulator.engine.launch import Launch
from kernbench.ptx.executor.ops import bulk_copies as words
from kernbench.ptx.executor.ops import layout
from kernbench.ptx.launching.tensor_map import SWIZZLES

# marks of swizzles: 1 and those of descriptors of wgmma (`ops.warpgroups.swizzle_of`); others have none
_MARKS = {"none": 1, "32B": 2, "64B": 3, "128B": 4}
_OTHER = 254


def map_row(launch: Launch, arrays: Array, address: int) -> Array:
    """The row of the tensor map at an address; an address of 0 if there is none that the executor can use.

    One in memory that the launch may write (`arrays`, its table of them) may become another.
    """
    row: Array = np.zeros(words.MAP_WORDS, np.int64)
    holding = (arrays[:, layout.LOW] <= address) & (address < arrays[:, layout.HIGH])
    if (arrays[holding, layout.FLAGS] & layout.TRACKED).any():
        return row
    try:
        box = launch.tensor_maps.at(address)
    except MisuseError:
        return row
    if not _is_plain(box):
        return row
    description, rank = box.description, box.rank
    mask, shift, _, pitch = box.swizzle[:4].tolist()
    row[words.MAP_ADDRESS : words.DIMS] = (
        address,
        box.base,
        rank,
        box.element,
        mask,
        shift,
        pitch,
        _MARKS.get(description.swizzle, _OTHER),
    )
    for first, part in ((words.DIMS, 0), (words.STRIDES, 1), (words.BOX, 2)):
        row[first : first + rank] = box.shape[part]
    return row


def _is_plain(box: Box) -> bool:
    """Whether boxes are whole rows of 16 bytes, elements next to each other, with zeros outside of the tensor."""
    description = box.description
    return (
        not description.im2col
        and description.grain == 1
        and description.filled == 16
        and description.oob_fill == "zero"
        and not description.element.startswith("tf32")
        and description.element != "f32.ftz"
        and not box.swizzle[2]
        and (box.shape[3] == 1).all()
        and box.inner % 16 == 0
        and (SWIZZLES[description.swizzle] == 0 or box.inner <= SWIZZLES[description.swizzle])
    )
