"""The types of arrays and numbers that the emulator works on, by their elements; for any elements, `Array`."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Float32s = NDArray[np.float32]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
# unsigned words of one width or another, as registers and memory are read and written; and one of them
Words = NDArray[np.unsignedinteger]
Word = np.unsignedinteger

# a whole number in a compiled loop: a constant of the source, or an element of an array
Int = int | np.int64
# what a comparison of such numbers gives
Flag = bool | np.bool_
