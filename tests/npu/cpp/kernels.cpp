// Small kernels: one that is right, and the mistakes that must be found, each in a function of its own.
#include <cstdint>
#include <pto/pto-inst.hpp>

#include "tensor.h"

using namespace pto;

#include "intrinsic.h"
#include "pipe_sync.h"

#ifndef __gm__
#define __gm__
#endif
#ifndef __aicore__
#define __aicore__ [aicore]
#endif

constexpr int R = 8, C = 64;
using Row = GlobalTensor<float, Shape<1, 1, 1, R, C>, Stride<1, 1, 1, C, 1>>;
using Block = Tile<TileType::Vec, float, R, C, BLayout::RowMajor, -1, -1>;
using Column = Tile<TileType::Vec, float, R, 1, BLayout::ColMajor, R, 1>;

static __aicore__ __gm__ float *first(__gm__ int64_t *args, int position) {
    __gm__ ChipTensor *tensor = reinterpret_cast<__gm__ ChipTensor *>(args[position]);
    return reinterpret_cast<__gm__ float *>(tensor->buffer.addr) + tensor->start_offset;
}

static __aicore__ float number(int64_t bits) {
    union {
        uint64_t whole;
        float part;
    } both;
    both.whole = static_cast<uint64_t>(bits);
    return both.part;
}

// out = in * factor, 8 rows for each block
extern "C" __aicore__ void scale(__gm__ int64_t *args) {
    const int at = get_block_idx(args) * R * C;
    Row source(first(args, 0) + at), target(first(args, 1) + at);
    Block tile(R, C);
    TASSIGN(tile, 0x0);
    TLOAD(tile, source);
    set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
    wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
    TMULS(tile, tile, number(args[2]));
    set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    TSTORE(target, tile);
    pipe_sync();
}

extern "C" __aicore__ void kernel_entry(__gm__ int64_t *args) { scale(args); }

// each row minus its largest element, as exponents; the column of results is loaded again as one row
extern "C" __aicore__ void exponents(__gm__ int64_t *args) {
    Row source(first(args, 0)), target(first(args, 1));
    Block tile(R, C), scratch(R, C);
    Column largest;
    TASSIGN(tile, 0x0);
    TASSIGN(scratch, 0x1000);
    TASSIGN(largest, 0x2000);
    TLOAD(tile, source);
    set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
    wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
    TROWMAX(largest, tile, scratch);
    pipe_barrier(PIPE_V);
    TROWEXPANDSUB(tile, tile, largest);
    pipe_barrier(PIPE_V);
    TEXP(tile, tile);
    set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    TSTORE(target, tile);
    pipe_sync();
}

extern "C" __aicore__ void no_flag(__gm__ int64_t *args) {
    Row source(first(args, 0)), target(first(args, 1));
    Block tile(R, C);
    TASSIGN(tile, 0x0);
    TLOAD(tile, source);
    TMULS(tile, tile, 2.0f);  // the race
    set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    TSTORE(target, tile);
    pipe_sync();
}

static __aicore__ void copy(Row &source, Row &target, int address) {
    Block tile(R, C);
    TASSIGN(tile, address);  // where it lies
    TLOAD(tile, source);
    set_flag(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    TSTORE(target, tile);  // the copy's store
    pipe_sync();
}

extern "C" __aicore__ void past_the_tensor(__gm__ int64_t *args) {
    Row source(first(args, 0)), target(first(args, 1) + C);
    copy(source, target, 0);
}

extern "C" __aicore__ void past_the_memory(__gm__ int64_t *args) {
    Row source(first(args, 0)), target(first(args, 1));
    copy(source, target, 192 * 1024 - 32);
}

// tiles that overlap in part: what was loaded into the first is gone
extern "C" __aicore__ void overlapping(__gm__ int64_t *args) {
    Row source(first(args, 0)), target(first(args, 1));
    Block one(R, C), two(R, C);
    TASSIGN(one, 0x0);
    TASSIGN(two, 0x400);
    TLOAD(one, source);
    TLOAD(two, source);
    set_flag(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    TSTORE(target, one);  // torn
    pipe_sync();
}

extern "C" __aicore__ void endless(__gm__ int64_t *args) {
    volatile int64_t turns = 1;
    while (turns) turns = turns + 1 > 0 ? 1 : turns;  // for ever
    (void)args;
}

extern "C" __aicore__ void chatty(__gm__ int64_t *args) {
    for (;;) pipe_barrier(PIPE_V);  // for ever, with operations
}

extern "C" __aicore__ void crash(__gm__ int64_t *args) {
    volatile int *nowhere = reinterpret_cast<volatile int *>(16);
    *nowhere = 1;  // the crash
    (void)args;
}

// reads where its part begins, writes what it saw behind it
extern "C" __aicore__ void indirect(__gm__ int64_t *args) {
    __gm__ ChipTensor *table = reinterpret_cast<__gm__ ChipTensor *>(args[2]);
    __gm__ int32_t *entries = reinterpret_cast<__gm__ int32_t *>(table->buffer.addr);
    const int32_t row = entries[1];  // the entry
    Row source(first(args, 0) + row * C), target(first(args, 1));
    copy(source, target, 0);
    entries[2] = row + 1;
    if (args[3]) dcci(&entries[2], SINGLE_CACHE_LINE);
}
