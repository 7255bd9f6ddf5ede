// The softmax of 8 rows of 64 numbers on a vector core, round after round.
#include <cstdint>
#include <pto/pto-inst.hpp>

#include "tensor.h"

using namespace pto;

#include "pipe_sync.h"

#ifndef __gm__
#define __gm__
#endif
#ifndef __aicore__
#define __aicore__ [aicore]
#endif

constexpr int R = 8, C = 64;
using Rows = GlobalTensor<float, Shape<1, 1, 1, R, C>, Stride<1, 1, 1, C, 1>>;
using Block = Tile<TileType::Vec, float, R, C>;
using Column = Tile<TileType::Vec, float, R, 1, BLayout::ColMajor, R, 1>;

extern "C" __aicore__ void kernel_entry(__gm__ int64_t *args) {
    __gm__ ChipTensor *in = reinterpret_cast<__gm__ ChipTensor *>(args[0]);
    __gm__ ChipTensor *out = reinterpret_cast<__gm__ ChipTensor *>(args[1]);
    __gm__ float *source = reinterpret_cast<__gm__ float *>(in->buffer.addr) + in->start_offset;
    __gm__ float *target = reinterpret_cast<__gm__ float *>(out->buffer.addr) + out->start_offset;
    const int rounds = static_cast<int>(in->shapes[0]) / R;

    Block x, scratch;
    Column largest, sum;
    TASSIGN(x, 0x0);
    TASSIGN(scratch, 0x800);
    TASSIGN(largest, 0x1000);
    TASSIGN(sum, 0x1020);
    for (int i = 0; i < rounds; ++i) {
        Rows from(source + i * R * C), to(target + i * R * C);
        TLOAD(x, from);
        set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
        wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
        TROWMAX(largest, x, scratch);
        pipe_barrier(PIPE_V);
        TROWEXPANDSUB(x, x, largest);
        pipe_barrier(PIPE_V);
        TEXP(x, x);
        pipe_barrier(PIPE_V);
        TROWSUM(sum, x, scratch);
        pipe_barrier(PIPE_V);
        TROWEXPANDDIV(x, x, sum);
        set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
        wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
        TSTORE(to, x);
    }
    pipe_sync();
}
