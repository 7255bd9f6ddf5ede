"""Element types of arrays of PTX kernels: those of all targets, and further widths and unsigned types."""

import numpy as np

from kernbench.common.dtypes import DTYPES, dtype_name
from kernbench.common.errors import MisuseError, unknown

MORE_TYPES: dict[str, np.dtype[np.generic]] = {
    "f64": np.dtype(np.float64),
    "i16": np.dtype(np.int16),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
}


def storage_type(dtype: object) -> np.dtype[np.generic]:
    """The NumPy type of `dtype`: a kernbench name, an alias, or a NumPy type or its name."""
    name = _numpy_name(dtype)
    more = next((kind for short, kind in MORE_TYPES.items() if name in (short, kind.name)), None)
    if more is not None:
        return more
    try:
        return DTYPES[dtype_name(dtype)].numpy
    except MisuseError:
        raise MisuseError(unknown("element type", name, [*DTYPES, *MORE_TYPES])) from None


def _numpy_name(dtype: object) -> str:
    return np.dtype(dtype).name if isinstance(dtype, (np.dtype, type)) else str(dtype)
