// A product of scaled blocks: operands of 8 or 4 bits, and scales in blocks of 16 by 2.
#include <cstdint>
#include <pto/pto-inst.hpp>
#include <pto/common/constants.hpp>
#include <pto/npu/a5/utils.hpp>

#include "tensor.h"

using namespace pto;

#include "pipe_sync.h"

constexpr int M = 32, K = 128, N = 64, S = K / 32;
using Scale = float8_e8m0_t;

template <class T> static T *first(int64_t *args, int position) {
    ChipTensor *tensor = reinterpret_cast<ChipTensor *>(args[position]);
    return reinterpret_cast<T *>(tensor->buffer.addr) + tensor->start_offset;
}

template <class Operand, bool ordered> static void product(int64_t *args) {
    GlobalTensor<Operand, Shape<1, 1, 1, M, K>, Stride<M * K, M * K, M * K, K, 1>> a(first<Operand>(args, 0));
    GlobalTensor<Operand, Shape<1, 1, 1, K, N>, Stride<K * N, K * N, K * N, N, 1>> b(first<Operand>(args, 2));
    using Left = GlobalTensor<Scale, TileShape2D<Scale, M, S, Layout::MX_A_ZZ>, BaseShape2D<Scale, M, S, Layout::MX_A_ZZ>,
                              Layout::MX_A_ZZ>;
    using Right = GlobalTensor<Scale, TileShape2D<Scale, S, N, Layout::MX_B_NN>, BaseShape2D<Scale, S, N, Layout::MX_B_NN>,
                               Layout::MX_B_NN>;
    Left a_scale(first<Scale>(args, 1));
    Right b_scale(first<Scale>(args, 3));
    GlobalTensor<float, TileShape2D<float, M, N>, BaseShape2D<float, M, N>> out(first<float>(args, 4));

    Tile<TileType::Mat, Operand, M, K, BLayout::ColMajor, M, K, SLayout::RowMajor, 512> a_near;
    Tile<TileType::Mat, Operand, K, N, BLayout::ColMajor, K, N, SLayout::RowMajor, 512> b_near;
    using LeftNear = Tile<TileType::Mat, Scale, M, S, BLayout::RowMajor, M, S, SLayout::RowMajor, 32>;
    using RightNear = Tile<TileType::Mat, Scale, S, N, BLayout::ColMajor, S, N, SLayout::ColMajor, 32>;
    LeftNear a_scale_near;
    RightNear b_scale_near;
    TASSIGN(a_near, 0x0);
    TASSIGN(b_near, 0x2000);
    TASSIGN(a_scale_near, 0x4000);
    TASSIGN(b_scale_near, 0x5000);
    TileLeft<Operand, M, K> left;
    TileRight<Operand, K, N> right;
    TileLeftScale<Scale, M, S> left_scale;
    TileRightScale<Scale, S, N> right_scale;
    TileAcc<float, M, N> sum;
    TASSIGN(left, 0x0);
    TASSIGN(right, 0x0);
    TASSIGN(sum, 0x0);
    TASSIGN(left_scale, GetScaleAddr(left.data()));
    TASSIGN(right_scale, GetScaleAddr(right.data()));

    TLOAD(a_near, a);
    TLOAD(b_near, b);
    TFILLPAD(b_near, b_near);
    TLOAD<LeftNear, Left>(a_scale_near, a_scale);
    TLOAD<RightNear, Right>(b_scale_near, b_scale);
    set_flag(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
    wait_flag(PIPE_MTE2, PIPE_MTE1, EVENT_ID0);
    TMOV(left, a_near);
    TMOV(right, b_near);
    if (!ordered) {
        set_flag(PIPE_MTE1, PIPE_M, EVENT_ID0);
        wait_flag(PIPE_MTE1, PIPE_M, EVENT_ID0);
    }
    TMOV(left_scale, a_scale_near);
    TMOV(right_scale, b_scale_near);
    if (ordered) {
        set_flag(PIPE_MTE1, PIPE_M, EVENT_ID0);
        wait_flag(PIPE_MTE1, PIPE_M, EVENT_ID0);
    }
    TMATMUL_MX(sum, left, left_scale, right, right_scale);
    set_flag(PIPE_M, PIPE_FIX, EVENT_ID0);
    wait_flag(PIPE_M, PIPE_FIX, EVENT_ID0);
    TSTORE(out, sum);
    pipe_sync();
}

extern "C" void scaled(int64_t *args) { product<float8_e4m3_t, true>(args); }
extern "C" void early(int64_t *args) { product<float8_e4m3_t, false>(args); }
extern "C" void scaled_e2m1(int64_t *args) { product<float4_e2m1x2_t, true>(args); }
extern "C" void early_e2m1(int64_t *args) { product<float4_e2m1x2_t, false>(args); }
extern "C" void scaled_e1m2(int64_t *args) { product<float4_e1m2x2_t, true>(args); }
