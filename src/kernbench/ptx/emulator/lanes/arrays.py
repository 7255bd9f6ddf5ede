"""The types of the emulator's arrays and numbers, by element; `Array` has any elements."""

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Float32s = NDArray[np.float32]
Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
# registers and memory as unsigned words of any width, and one such word
Words = NDArray[np.unsignedinteger]
Word = np.unsignedinteger

# an integer in a compiled loop: a constant of the source, or an element of an array
Int = int | np.int64
# the result of comparing such integers
Flag = bool | np.bool_
