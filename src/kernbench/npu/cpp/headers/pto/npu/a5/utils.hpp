// What kernels for a5 take from here: the place of an operand's scales.
#pragma once

#include "pto/pto-inst.hpp"

namespace pto {

// scales lie in a memory of their own, at a sixteenth of the operand's address
inline uint64_t GetScaleAddr(uint64_t operand) { return operand >> 4; }

}  // namespace pto
