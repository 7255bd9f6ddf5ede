// Names of layouts, modes and pipes that kernels use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernbench/numbers.h"

namespace pto {

enum class TileType { Vec, Mat, Left, Right, Acc, Bias, Scaling, ScaleLeft, ScaleRight };
enum class BLayout { RowMajor = 0, ColMajor = 1 };
enum class SLayout { NoneBox = 0, RowMajor = 1, ColMajor = 2 };
enum class Layout { ND, DN, NZ, SCALE, MX_A_ZZ, MX_A_ND, MX_A_DN, MX_B_NN, MX_B_ND, MX_B_DN, NCHW, NHWC, NC1HWC0, MAX };
enum class CompactMode { Null, Normal, RowPlusOne };
enum class CmpMode : uint8_t { EQ, NE, LT, LE, GT, GE };
enum class RoundMode : uint8_t {
    CAST_NONE, CAST_RINT, CAST_ROUND, CAST_FLOOR, CAST_CEIL, CAST_TRUNC, CAST_ODD
};
enum class SaturationMode : uint8_t { ON = 0, OFF = 1 };
enum class AtomicType : uint8_t { AtomicNone = 0, AtomicAdd = 1, AtomicMax = 2, AtomicMin = 3 };
enum class AccPhase : uint8_t { Unspecified = 0, Unknown = 0, Partial = 2, Final = 3 };
enum class STPhase : uint8_t { Unspecified = 0, Partial = 2, Final = 3 };
enum class ReluPreMode : uint8_t { NoRelu = 0, NormalRelu = 1 };
enum class AccToVecMode : uint8_t { SingleModeVec0, SingleModeVec1, DualModeSplitM, DualModeSplitN };
enum class MaskPattern : uint8_t { P0101 = 1, P1010, P0001, P0010, P0100, P1000, P1111 };
enum class PadValue : uint64_t { Null = 0, Zero = 1, Max = 2, Min = 3, CustomBase = 0x100000000ULL };
enum class ScatterAtomicOp : uint8_t { None, Add, Max, Min };
enum class ScatterOOB : uint8_t { Undefined, Skip, Clamp, Wrap };
enum class ScatterConflict : uint8_t { Last, Default };
enum class GatherOOB : uint8_t { Undefined, Clamp, Wrap, Zero };
enum class Coalesce : uint8_t { Row, Elem };
enum class TFillPadMode : uint8_t { Normal, InPlace, Expand };
enum class SyncAllMode : uint8_t { Hard, Soft };
enum class SyncCoreType : uint8_t { AIVOnly, AICOnly, Mix };

constexpr int DYNAMIC = -1;
// bytes of one row of a fractal block
constexpr int C0_SIZE_BYTE = 32, BLOCK_BYTE_SIZE = 32;

enum GlobalTensorDim : int { DIM_0, DIM_1, DIM_2, DIM_3, DIM_4, TOTAL_DIM };

struct TileConfig {
    static constexpr int alignedSize = 32, fixedRowSize = 16, fixedColSize = 16, fixedMxRowSize = 16;
    static constexpr int fixedMxColSize = 2, fractalABSize = 512, fractalCSize = 1024, fractalMxSize = 32;
};

// what an operation gives back where a program would wait for it by name; waits are written as flags here
struct RecordEvent {};

}  // namespace pto

enum pipe_t : int { PIPE_S, PIPE_V, PIPE_M, PIPE_MTE1, PIPE_MTE2, PIPE_MTE3, PIPE_FIX, PIPE_ALL };
enum event_t : int {
    EVENT_ID0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7
};
enum class cache_line_t : int { SINGLE_CACHE_LINE = 0, ENTIRE_DATA_CACHE = 1 };
enum class dcci_dst_t : int { CACHELINE_ALL = 0, CACHELINE_UB = 1, CACHELINE_OUT = 2, CACHELINE_ATOMIC = 3 };
constexpr cache_line_t SINGLE_CACHE_LINE = cache_line_t::SINGLE_CACHE_LINE;
constexpr cache_line_t ENTIRE_DATA_CACHE = cache_line_t::ENTIRE_DATA_CACHE;
constexpr dcci_dst_t CACHELINE_ALL = dcci_dst_t::CACHELINE_ALL;
constexpr dcci_dst_t CACHELINE_OUT = dcci_dst_t::CACHELINE_OUT;
enum mem_dsb_t : int { DSB_ALL = 0, DSB_DDR = 1, DSB_UB = 2, DSB_SEQ = 3 };
