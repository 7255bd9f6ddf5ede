// FIFOs from one core's memory into another's: the cube puts products into the UB of the vector cores, which round them
// to bf16 and put them into its L1, to be multiplied once more. What is popped lies in its slot until it is freed.
#include <cstdint>
#include <pto/pto-inst.hpp>
#include <pto/common/fifo.hpp>

#include "tensor.h"

using namespace pto;

#include "intrinsic.h"
#include "pipe_sync.h"

constexpr int N = 32;
using Down = TPipe<0, Direction::DIR_C2V, N / 2 * N * sizeof(float), 2>;
using Up = TPipe<2, Direction::DIR_V2C, N * N * sizeof(bfloat16_t), 2>;
#include "products.h"

enum Mistake { NONE, NO_WAIT, NO_FLAG };

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
        multiply(left, right, sum, back, b);
        TFREE<Up, TileSplitAxis::TILE_UP_DOWN>(up);
        Result target(first<float>(args, 2) + i * N * N);
        TSTORE(target, sum);
        pipe_barrier(PIPE_ALL);
    }
}

[[maybe_unused]] static void vector(int64_t *args, Down &down, Up &up, int rounds, int mistake) {
    down.cons.setWaitStatus(mistake != NO_WAIT);
    Half taken;
    Rounded rounded;
    TASSIGN(rounded, 0x4000);
    for (int i = 0; i < rounds; ++i) {
        TPOP<Down, Half, TileSplitAxis::TILE_UP_DOWN>(down, taken);
        TCVT(rounded, taken, RoundMode::CAST_RINT);  // the message is read
        TFREE<Down, TileSplitAxis::TILE_UP_DOWN>(down);
        if (mistake != NO_FLAG) {
            set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
            wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
        }
        TPUSH<Up, Rounded, TileSplitAxis::TILE_UP_DOWN>(up, rounded);  // the reply
        set_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
        wait_flag(PIPE_MTE3, PIPE_V, EVENT_ID0);
    }
}

extern "C" __aicore__ void kernel_entry(int64_t *args) {
    Down down(nullptr, 0x0, 0x0);
    Up up(nullptr, 0x0, 0x4000);
    const int rounds = static_cast<int>(args[3]);
#ifdef __DAV_CUBE__
    cube(args, down, up, rounds);
#else
    vector(args, down, up, rounds, static_cast<int>(args[4]));
#endif
}
