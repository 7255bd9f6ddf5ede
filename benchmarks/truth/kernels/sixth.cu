// Kernels of the sixth set: none of them was in a set before.
#include <cuda_pipeline.h>

// Rows of a sparse matrix times a vector, a warp a row: rows have different lengths, from one number to the next.
extern "C" __global__ void ragged_rows(const int *begin, const int *column, const float *value, const float *x, float *y,
                                       int rows)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float own = 0;
    for (int i = begin[row] + lane; i < begin[row + 1]; i += 32) own += value[i] * x[column[i]];
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if (lane == 0) y[row] = own;
}

// A matrix of 4-bit weights, eight in a word, a scale for each 64 of them, times a vector: a warp a row.
extern "C" __global__ void nibbles(const uint4 *w, const float *scales, const float4 *x, float *y, int words)
{
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float own = 0;
    for (int i = lane; i < words; i += 32) {
        uint4 four = w[(size_t)row * words + i];
        unsigned each[4] = {four.x, four.y, four.z, four.w};
        float part = 0;
        for (int j = 0; j < 4; j++) {
            float4 low = x[i * 8 + j * 2], high = x[i * 8 + j * 2 + 1];
            unsigned u = each[j];
            part += ((int)(u & 15) - 8) * low.x + ((int)(u >> 4 & 15) - 8) * low.y;
            part += ((int)(u >> 8 & 15) - 8) * low.z + ((int)(u >> 12 & 15) - 8) * low.w;
            part += ((int)(u >> 16 & 15) - 8) * high.x + ((int)(u >> 20 & 15) - 8) * high.y;
            part += ((int)(u >> 24 & 15) - 8) * high.z + ((int)(u >> 28) - 8) * high.w;
        }
        own += part * scales[((size_t)row * words + i) / 2];
    }
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if (lane == 0) y[row] = own;
}

// Rows of 128 numbers are added to rows of a table, by number: a warp a row.
extern "C" __global__ void add_rows(const float4 *x, const int *at, float *table, int rows)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float4 u = x[(size_t)row * 32 + lane];
    float *to = table + (size_t)at[row] * 128 + lane;
    atomicAdd(to, u.x);
    atomicAdd(to + 32, u.y);
    atomicAdd(to + 64, u.z);
    atomicAdd(to + 96, u.w);
}

// How many steps a number takes to 1, by halving it and by tripling it and adding one: larger numbers take more.
extern "C" __global__ void halvings(int *steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, count = 0;
    if (i >= n) return;
    for (unsigned long long u = (unsigned long long)i * i / 64 + 1; u != 1; count++) u = u & 1 ? 3 * u + 1 : u / 2;
    steps[i] = count;
}

// The nearest of 256 words of 128 bits by the bits in which they differ: a thread a word.
extern "C" __global__ void nearest_bits(const uint4 *x, const uint4 *others, int *y, int n)
{
    __shared__ uint4 held[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x, best = 129, found = 0;
    held[threadIdx.x] = others[threadIdx.x];
    __syncthreads();
    uint4 own = x[i];
    for (int j = 0; j < 256; j++) {
        uint4 u = held[j];
        int apart = __popc(own.x ^ u.x) + __popc(own.y ^ u.y) + __popc(own.z ^ u.z) + __popc(own.w ^ u.w);
        if (apart < best) {
            best = apart;
            found = j;
        }
    }
    y[i] = found;
}

// A 3 x 3 filter for each channel of an image, the same number of points out: a tile with its edge in shared memory.
extern "C" __global__ void filter_3x3(const float *x, const float *w, float *y, int side)
{
    __shared__ float tile[10][34];
    const float *plane = x + (size_t)blockIdx.z * side * side;
    int left = blockIdx.x * 32 - 1, top = blockIdx.y * 8 - 1, t = threadIdx.y * 32 + threadIdx.x;
    for (int i = t; i < 340; i += 256) {
        int a = top + i / 34, b = left + i % 34;
        tile[i / 34][i % 34] = a >= 0 && a < side && b >= 0 && b < side ? plane[a * side + b] : 0;
    }
    __syncthreads();
    float total = 0;
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) total += tile[threadIdx.y + a][threadIdx.x + b] * w[blockIdx.z * 9 + a * 3 + b];
    y[(size_t)blockIdx.z * side * side + (blockIdx.y * 8 + threadIdx.y) * side + blockIdx.x * 32 + threadIdx.x] = total;
}

// A product of 8-bit integers, rows of both sides side by side: tiles of 64 x 64, four numbers in a word.
extern "C" __global__ void eight_bits(const int *a, const int *b, int *c, int n, int words)
{
    __shared__ int left[64][17], right[64][17];
    int i = threadIdx.x / 16, j = threadIdx.x % 16, total[4][4] = {};
    const int *rows = a + (size_t)blockIdx.y * 64 * words, *columns = b + (size_t)blockIdx.x * 64 * words;
    for (int first = 0; first < words; first += 16) {
        for (int part = 0; part < 4; part++) {
            left[part * 16 + i][j] = rows[(size_t)(part * 16 + i) * words + first + j];
            right[part * 16 + i][j] = columns[(size_t)(part * 16 + i) * words + first + j];
        }
        __syncthreads();
        for (int k = 0; k < 16; k++)
            for (int u = 0; u < 4; u++)
                for (int v = 0; v < 4; v++) total[u][v] = __dp4a(left[i + u * 16][k], right[j + v * 16][k], total[u][v]);
        __syncthreads();
    }
    for (int u = 0; u < 4; u++)
        for (int v = 0; v < 4; v++)
            c[(size_t)(blockIdx.y * 64 + i + u * 16) * n + blockIdx.x * 64 + j + v * 16] = total[u][v];
}

// Means of rows that pass through shared memory, four pieces of 1024 numbers under way: a block a row at a time.
extern "C" __global__ void piped_means(const float4 *x, float *y, int rows, int pieces)
{
    __shared__ float4 held[4][256];
    __shared__ float parts[8];
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float4 *from = x + (size_t)row * pieces * 256 + threadIdx.x;
        for (int i = 0; i < 3; i++) {
            if (i < pieces) __pipeline_memcpy_async(&held[i][threadIdx.x], from + i * 256, 16);
            __pipeline_commit();
        }
        float own = 0;
        for (int i = 0; i < pieces; i++) {
            if (i + 3 < pieces) __pipeline_memcpy_async(&held[(i + 3) % 4][threadIdx.x], from + (i + 3) * 256, 16);
            __pipeline_commit();
            __pipeline_wait_prior(3);
            float4 u = held[i % 4][threadIdx.x];
            own += u.x + u.y + u.z + u.w;
        }
        for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 1; i < 8; i++) own += parts[i];
            y[row] = own / (pieces * 1024);
        }
        __syncthreads();
    }
}

// The four largest numbers of each row, largest first: a warp a row, each lane with four of its own.
extern "C" __global__ void top_four(const float *x, float *y, int columns)
{
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    float a = -1e30f, b = -1e30f, c = -1e30f, d = -1e30f;
    for (int i = lane; i < columns; i += 32) {
        float u = x[(size_t)row * columns + i];
        if (u > d) {
            d = fminf(c, fmaxf(d, u));
            float v = fmaxf(c, u);
            c = fminf(b, v);
            v = fmaxf(b, v);
            b = fminf(a, v);
            a = fmaxf(a, v);
        }
    }
    for (int k = 0; k < 4; k++) {
        float most = a;
        for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        if (lane == 0) y[row * 4 + k] = most;
        unsigned have = __ballot_sync(~0u, a == most);
        if (lane == __ffs(have) - 1) {
            a = b;
            b = c;
            c = d;
            d = -1e30f;
        }
    }
}
