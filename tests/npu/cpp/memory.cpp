// Kernels that scatter to device memory, and that count and poll values in it past the cache.
#include <cstdint>
#include <pto/pto-inst.hpp>

#include "tensor.h"

using namespace pto;

#include "intrinsic.h"
#include "pipe_sync.h"

constexpr int R = 8, C = 32;
using Values = Tile<TileType::Vec, float, R, C, BLayout::RowMajor, R, C>;
using Places = Tile<TileType::Vec, int32_t, R, C, BLayout::RowMajor, R, C>;
using RowPlaces = Tile<TileType::Vec, int32_t, 1, R, BLayout::RowMajor, 1, R>;

template <class T> static T *first(int64_t *args, int position) {
    ChipTensor *tensor = reinterpret_cast<ChipTensor *>(args[position]);
    return reinterpret_cast<T *>(tensor->buffer.addr) + tensor->start_offset;
}

template <class Index, class IndexShape, Coalesce mode, ScatterAtomicOp atomic, bool ordered>
static void scatter_by(int64_t *args) {
    GlobalTensor<float, Shape<1, 1, 1, R, C>, Stride<1, 1, 1, C, 1>> source(first<float>(args, 0));
    GlobalTensor<int32_t, IndexShape, Stride<1, 1, 1, C, 1>> wanted(first<int32_t>(args, 1));
    GlobalTensor<float, Shape<1, 1, 1, R, C>, Stride<1, 1, 1, C, 1>> target(first<float>(args, 2));
    Values values;
    Index places;
    TASSIGN(values, 0x0);
    TASSIGN(places, 0x1000);
    TLOAD(values, source);
    TLOAD(places, wanted);
    if (ordered) {
        set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
        wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);
    }
    MSCATTER<mode, atomic, ScatterOOB::Undefined>(target, values, places);
    pipe_barrier(PIPE_ALL);
}

using Whole = Shape<1, 1, 1, R, C>;
using Line = Shape<1, 1, 1, 1, R>;
extern "C" void elements(int64_t *args) {
    scatter_by<Places, Whole, Coalesce::Elem, ScatterAtomicOp::None, true>(args);
}
extern "C" void added(int64_t *args) { scatter_by<Places, Whole, Coalesce::Elem, ScatterAtomicOp::Add, true>(args); }
extern "C" void unordered(int64_t *args) {
    scatter_by<Places, Whole, Coalesce::Elem, ScatterAtomicOp::None, false>(args);
}
extern "C" void rows(int64_t *args) {
    scatter_by<RowPlaces, Line, Coalesce::Row, ScatterAtomicOp::None, true>(args);
}

// Each block stores its row of numbers, tells the others, waits for all, and copies the row of the block after it.
template <bool counts> static void pass_on(int64_t *args, int missing) {
    float *from = first<float>(args, 0), *to = first<float>(args, 2);
    int32_t *signals = first<int32_t>(args, 1);
    const int here = get_block_idx(args), count = get_block_num(args);
    using Row = GlobalTensor<float, Shape<1, 1, 1, 1, C>, Stride<1, 1, 1, C, 1>>;
    Tile<TileType::Vec, float, 1, C, BLayout::RowMajor, 1, C> row;
    TASSIGN(row, 0x0);
    Row own(from + here * C), next(from + (here + 1) % count * C), out(to + here * C);
    TEXPANDS(row, static_cast<float>(here));
    set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);
    TSTORE(own, row);
    set_flag(PIPE_MTE3, PIPE_S, EVENT_ID0);
    wait_flag(PIPE_MTE3, PIPE_S, EVENT_ID0);
    dsb(DSB_DDR);
    if (counts) {
        set_st_atomic_cfg(ATOMIC_S32, ATOMIC_SUM);
        st_atomic<int32_t>(1, signals);
        while (static_cast<int32_t>(ld_dev(reinterpret_cast<uint32_t *>(signals), 0)) < count - missing) {
        }
    } else {
        st_dev(1, reinterpret_cast<uint32_t *>(signals), here * 4);
        for (int other = 0; other < count - missing; ++other)
            while (ld_dev(reinterpret_cast<uint32_t *>(&signals[other]), 0) != 1) {
            }
    }
    set_flag(PIPE_S, PIPE_MTE2, EVENT_ID0);
    wait_flag(PIPE_S, PIPE_MTE2, EVENT_ID0);
    TLOAD(row, next);
    set_flag(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    wait_flag(PIPE_MTE2, PIPE_MTE3, EVENT_ID0);
    TSTORE(out, row);
    pipe_sync();
}
extern "C" void counted(int64_t *args) { pass_on<true>(args, 0); }
extern "C" void counted_short(int64_t *args) { pass_on<true>(args, 1); }
extern "C" void counted_long(int64_t *args) { pass_on<true>(args, -1); }
extern "C" void slots(int64_t *args) { pass_on<false>(args, 0); }
