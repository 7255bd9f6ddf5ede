// One kernel for all cores of a cluster: the cube sends products to the vector cores, which round them to bf16 and send
// them back to be multiplied once more. The slots are tensors of i32, as the runtime makes them.
#include <cstdint>
#include <pto/pto-inst.hpp>
#include <pto/common/fifo.hpp>

#include "tensor.h"

using namespace pto;

#include "intrinsic.h"
#include "pipe_sync.h"

constexpr int N = 16;
#ifdef PTO_NPU_ARCH_A5
using Down = TPipe<0, Direction::DIR_C2V_GM, N * N * sizeof(float), 2>;
using Up = TPipe<2, Direction::DIR_V2C_GM, N * N * sizeof(bfloat16_t), 2>;
#else
using Down = TPipe<0, Direction::DIR_C2V, N * N * sizeof(float), 2>;
using Up = TPipe<2, Direction::DIR_V2C, N * N * sizeof(bfloat16_t), 2>;
#endif
#include "products.h"

[[maybe_unused]] static void cube(int64_t *args, Down &down, Up &up, int rounds) {
    Stored a, b, back;
    Left left;
    Right right;
    Sum sum;
    TASSIGN(a, 0x0);
    TASSIGN(b, 0x1000);
    TASSIGN(left, 0x0);
    TASSIGN(right, 0x0);
    TASSIGN(sum, 0x0);
    Square given(first<bfloat16_t>(args, 1));
    TLOAD(b, given);
    for (int i = 0; i < rounds; ++i) {
        Square source(first<bfloat16_t>(args, 0) + i * N * N);
        TLOAD(a, source);
        set_flag(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
        wait_flag(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
        multiply(left, right, sum, a, b);
        TPUSH<Down, Sum, TileSplitAxis::TILE_UP_DOWN>(down, sum);
        pipe_barrier(PIPE_ALL);
        TPOP<Up, Stored, TileSplitAxis::TILE_UP_DOWN>(up, back);
        set_flag(PIPE_MTE2, PIPE_MTE1, EVENT_ID1);
        wait_flag(PIPE_MTE2, PIPE_MTE1, EVENT_ID1);
        multiply(left, right, sum, back, b);
        Result target(first<float>(args, 4) + i * N * N);
        TSTORE(target, sum);
        pipe_barrier(PIPE_ALL);
    }
}

[[maybe_unused]] static void vector(int64_t *args, Down &down, Up &up, int rounds) {
#ifndef PTO_NPU_ARCH_A5
    // the chip's own register does not say which of the two it is
    const int lane = get_sub_block_id(args);
    down.cons.setEntryOffset(lane * N / 2 * N * static_cast<int>(sizeof(float)));
    up.prod.setEntryOffset(lane * N / 2 * N * static_cast<int>(sizeof(bfloat16_t)));
#endif
    // the mistake: what was sent is read without a wait for it
    down.cons.setWaitStatus(args[6] == 0);
    Half taken;
    Rounded rounded;
    TASSIGN(rounded, 0x4000);
    for (int i = 0; i < rounds; ++i) {
        TPOP<Down, Half, TileSplitAxis::TILE_UP_DOWN>(down, taken);
        set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
        wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
        TCVT(rounded, taken, RoundMode::CAST_RINT);
        set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
        wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
        TPUSH<Up, Rounded, TileSplitAxis::TILE_UP_DOWN>(up, rounded);
        pipe_barrier(PIPE_ALL);
    }
}

extern "C" __aicore__ void kernel_entry(int64_t *args) {
    Down down(first<void *>(args, 2), 0x0, 0x0);
    Up up(first<void *>(args, 3), 0x0, 0x4000);
    const int rounds = static_cast<int>(args[5]);
#ifdef __DAV_CUBE__
    cube(args, down, up, rounds);
#else
    vector(args, down, up, rounds);
#endif
}
