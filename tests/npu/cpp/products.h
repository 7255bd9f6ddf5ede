// Tiles of N x N products of bf16, where an argument begins, and one product: for kernels that stream them between cores.
// N is defined before.
#pragma once

using Square = GlobalTensor<bfloat16_t, Shape<1, 1, 1, N, N>, Stride<1, 1, 1, N, 1>>;
using Result = GlobalTensor<float, Shape<1, 1, 1, N, N>, Stride<1, 1, 1, N, 1>>;
using Stored = Tile<TileType::Mat, bfloat16_t, N, N, BLayout::ColMajor, N, N, SLayout::RowMajor, 512>;
using Left = TileLeft<bfloat16_t, N, N>;
using Right = TileRight<bfloat16_t, N, N>;
using Sum = TileAcc<float, N, N>;
using Half = Tile<TileType::Vec, float, N / 2, N, BLayout::RowMajor, N / 2, N>;
using Rounded = Tile<TileType::Vec, bfloat16_t, N / 2, N, BLayout::RowMajor, N / 2, N>;

template <class T> T *first(int64_t *args, int position) {
    ChipTensor *tensor = reinterpret_cast<ChipTensor *>(args[position]);
    return reinterpret_cast<T *>(tensor->buffer.addr) + tensor->start_offset;
}

[[maybe_unused]] static void multiply(Left &left, Right &right, Sum &sum, Stored &a, Stored &b) {
    TMOV(left, a);
    TMOV(right, b);
    set_flag(PIPE_MTE1, PIPE_M, EVENT_ID0);
    wait_flag(PIPE_MTE1, PIPE_M, EVENT_ID0);
    TMATMUL(sum, left, right);
    set_flag(PIPE_M, PIPE_FIX, EVENT_ID0);
    wait_flag(PIPE_M, PIPE_FIX, EVENT_ID0);
}
