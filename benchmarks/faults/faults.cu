// Textbook faults of CUDA kernels, each beside the kernel in which it is mended; `python -m benchmarks.faults.build`
// makes faults.ptx of them.
#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>
#include <mma.h>

#define KERNEL extern "C" __global__ void
typedef unsigned char byte;

KERNEL transpose_direct(const float *__restrict__ x, float *__restrict__ y, int n)
{
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
    for (int i = 0; i < 32; i += 8) y[column * n + row + i] = x[(row + i) * n + column];
}

KERNEL transpose_tile(const float *__restrict__ x, float *y, int n)
{
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
#pragma unroll
    for (int i = 0; i < 32; i += 8) tile[threadIdx.y + i][threadIdx.x] = x[(row + i) * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) y[(row + i) * n + column] = tile[threadIdx.x][threadIdx.y + i];
}

// sums of 64 numbers each, a thread a sum
KERNEL rows_by_thread(const float *x, float *y, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < 64; i++) sum += x[row * 64 + i];
    y[row] = sum;
}

KERNEL columns_by_thread(const float *x, float *y, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 8
    for (int i = 0; i < 64; i++) sum += x[i * n + row];
    y[row] = sum;
}

KERNEL every_fourth(const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[4 * i];
}

struct Particle { float x, y, z, mass, u, v, w, charge; };

KERNEL one_field(const Particle *p, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * p[i].mass;
}

KERNEL each(const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.0f * x[i];
}

// every 32nd number of rows in shared memory that begin `PITCH` numbers apart
template <int PITCH> __device__ void rows_of_tile(const float *x, float *y)
{
    __shared__ float tile[32 * PITCH + 256 * 32];
    float first = x[threadIdx.x], sum = 0;
    for (int i = threadIdx.x; i < 32 * PITCH + 256 * 32; i += blockDim.x) tile[i] = first;
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; turn < 4; turn++)
#pragma unroll 8
        for (int i = 0; i < 256; i++) sum = sum * 0.5f + tile[threadIdx.x % 32 * PITCH + i * 32];
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
KERNEL pitch_2(const float *x, float *y) { rows_of_tile<2>(x, y); }
KERNEL pitch_3(const float *x, float *y) { rows_of_tile<3>(x, y); }
KERNEL pitch_8(const float *x, float *y) { rows_of_tile<8>(x, y); }
KERNEL pitch_9(const float *x, float *y) { rows_of_tile<9>(x, y); }
KERNEL pitch_32(const float *x, float *y) { rows_of_tile<32>(x, y); }
KERNEL pitch_33(const float *x, float *y) { rows_of_tile<33>(x, y); }

// a walk through a table of 65,536 numbers, all of them `same`, with `LIVE` sums at a time
template <int LIVE> __device__ void walk(const int *next, int *y, int same)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x, sums[LIVE];
    unsigned at = thread % 65536u;
    for (int j = 0; j < LIVE; j++) sums[j] = thread * j;
#pragma unroll 1
    for (int turn = 0; turn < 192 / LIVE; turn++)
#pragma unroll
        for (int j = 0; j < LIVE; j++) {
            at = (at + next[at] - same + 128) % 65536u;
            sums[j] = sums[j] * 3 + at;
        }
    int all = 0;
    for (int j = 0; j < LIVE; j++) all = (all ^ sums[j]) * 5;
    y[thread] = all;
}
KERNEL walk_96(const int *next, int *y, int same) { walk<96>(next, y, same); }
KERNEL walk_24(const int *next, int *y, int same) { walk<24>(next, y, same); }

// neighbours by way of shared memory
KERNEL smooth(const float *x, float *y, int n)
{
    extern __shared__ float tile[];
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) {
        tile[threadIdx.x] = x[i];
        __syncthreads();
        y[i] = tile[threadIdx.x] + 0.5f * tile[(threadIdx.x + 1) % 128];
        __syncthreads();
    }
}

KERNEL scaled(const float *x, float *y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float a = x[i];
#pragma unroll 1
        for (int j = 0; j < 16; j++) a = a * a + 0.25f;
        y[i] = a;
    }
}

// the same work in as many pieces as there are blocks
KERNEL iterated(const float *x, float *y, int turns)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i % 1024], b = 0.5f * a;
#pragma unroll 8
    for (int j = 0; j < turns; j++) { a = a * a + 0.25f; b = b * b + 0.125f; }
    y[i] = a + b;
}

// many sums at a time
template <int LIVE> __device__ void moments(const float *x, float *y, int n)
{
    float sums[LIVE];
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < LIVE; j++) sums[j] = 0;
    for (int i = 0; i < 16; i++) {
        float a = x[(i * gridDim.x * blockDim.x + thread) % n];
#pragma unroll
        for (int j = 0; j < LIVE; j++) sums[j] = sums[j] * a + 0.5f * j;
    }
    float all = 0;
    for (int j = 0; j < LIVE; j++) all = all * 0.5f + sums[j];
    y[thread] = all;
}
KERNEL __launch_bounds__(512, 4) moments_few(const float *x, float *y, int n) { moments<48>(x, y, n); }
KERNEL __launch_bounds__(512, 1) moments_enough(const float *x, float *y, int n) { moments<48>(x, y, n); }

// how often each of 16 numbers occurs, for each thread: 8 of them in each of 8 words
KERNEL counts_local(const unsigned *__restrict__ x, int *__restrict__ y, int n)
{
    int counts[16], thread = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int j = 0; j < 16; j++) counts[j] = 0;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        unsigned word = x[i * n + thread];
#pragma unroll
        for (int j = 0; j < 8; j++) counts[word >> 4 * j & 15]++;
    }
#pragma unroll 4
    for (int j = 0; j < 16; j++) y[j * n + thread] = counts[j];
}

KERNEL counts_shared(const unsigned *__restrict__ x, int *__restrict__ y, int n)
{
    __shared__ int counts[16][128];
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int j = 0; j < 16; j++) counts[j][threadIdx.x] = 0;
#pragma unroll 1
    for (int i = 0; i < 8; i++) {
        unsigned word = x[i * n + thread];
#pragma unroll
        for (int j = 0; j < 8; j++) counts[word >> 4 * j & 15][threadIdx.x]++;
    }
#pragma unroll 4
    for (int j = 0; j < 16; j++) y[j * n + thread] = counts[j][threadIdx.x];
}

KERNEL sum_by_one(const float *__restrict__ x, float *y, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
#pragma unroll 1
    for (int i = thread; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    y[thread] = sum;
}

KERNEL sum_by_four(const float *__restrict__ x, float *y, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    float sum = 0;
#pragma unroll 1
    for (int i = thread; i < n; i += 4 * step) sum += x[i] + x[i + step] + x[i + 2 * step] + x[i + 3 * step];
    y[thread] = sum;
}

KERNEL bytes_each(const byte *x, byte *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

KERNEL bytes_sixteen(const uint4 *x, uint4 *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

KERNEL add_by_each(const float *x, float *y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(y, x[i]);
}

KERNEL add_by_block(const float *x, float *y, int n)
{
    __shared__ float sums[8];
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int j = 16; j; j /= 2) sum += __shfl_down_sync(~0u, sum, j);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int j = 1; j < 8; j++) sum += sums[j];
        atomicAdd(y, sum);
    }
}

KERNEL counted_in_memory(const byte *x, int *y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(y + x[i] % 64, 1);
}

KERNEL counted_in_block(const byte *x, int *y, int n)
{
    __shared__ int counts[64];
    if (threadIdx.x < 64) counts[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(counts + x[i] % 64, 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(y + threadIdx.x, counts[threadIdx.x]);
}

// a pipeline of copies, `STAGES` of them
template <int STAGES> __device__ void staged(const float *x, float *y, int n)
{
    __shared__ float tile[STAGES][1024];
    const float *from = x + (size_t)blockIdx.x * n * 1024 + threadIdx.x;
    float sum = 0;
    for (int i = 0; i < STAGES - 1; i++) {
        __pipeline_memcpy_async(&tile[i][threadIdx.x], from + i * 1024, 4);
        __pipeline_commit();
    }
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        int ahead = i + STAGES - 1;
        if (ahead < n) __pipeline_memcpy_async(&tile[ahead % STAGES][threadIdx.x], from + ahead * 1024, 4);
        __pipeline_commit();
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        sum = sum * 0.5f + tile[i % STAGES][threadIdx.x ^ 32];
        __syncthreads();
    }
    y[blockIdx.x * 1024 + threadIdx.x] = sum;
}
KERNEL staged_1(const float *x, float *y, int n) { staged<1>(x, y, n); }
KERNEL staged_2(const float *x, float *y, int n) { staged<2>(x, y, n); }
KERNEL staged_3(const float *x, float *y, int n) { staged<3>(x, y, n); }

// products of bf16, tiles of 64 x 64
KERNEL product_by_fma(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int n, int depth)
{
    __shared__ __nv_bfloat16 left[64][16], right[16][64];
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float sums[4][4] = {};
#pragma unroll 1
    for (int k = 0; k < depth; k += 16) {
        int i = threadIdx.x / 4, j = threadIdx.x % 4 * 4;
        *(uint2 *)&left[i][j] = *(const uint2 *)&a[(blockIdx.y * 64 + i) * depth + k + j];
        i = threadIdx.x / 16, j = threadIdx.x % 16 * 4;
        *(uint2 *)&right[i][j] = *(const uint2 *)&b[(k + i) * n + blockIdx.x * 64 + j];
        __syncthreads();
#pragma unroll 2
        for (int t = 0; t < 16; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sums[i][j] += __bfloat162float(left[y * 4 + i][t]) * __bfloat162float(right[t][j * 16 + x]);
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) c[(blockIdx.y * 64 + y * 4 + i) * n + blockIdx.x * 64 + j * 16 + x] = sums[i][j];
}

KERNEL product_by_mma(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int n, int depth)
{
    using namespace nvcuda::wmma;
    __shared__ __nv_bfloat16 left[64][24], right[16][72];
    int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 32;
    fragment<accumulator, 16, 16, 16, float> sums[2];
    for (int j = 0; j < 2; j++) fill_fragment(sums[j], 0.0f);
#pragma unroll 1
    for (int k = 0; k < depth; k += 16) {
        int i = threadIdx.x / 4, j = threadIdx.x % 4 * 4;
        *(uint2 *)&left[i][j] = *(const uint2 *)&a[(blockIdx.y * 64 + i) * depth + k + j];
        i = threadIdx.x / 16, j = threadIdx.x % 16 * 4;
        *(uint2 *)&right[i][j] = *(const uint2 *)&b[(k + i) * n + blockIdx.x * 64 + j];
        __syncthreads();
        fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> of_a;
        fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> of_b;
        load_matrix_sync(of_a, &left[row][0], 24);
        for (int j = 0; j < 2; j++) {
            load_matrix_sync(of_b, &right[0][column + j * 16], 72);
            mma_sync(sums[j], of_a, of_b, sums[j]);
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; j++)
        store_matrix_sync(&c[(blockIdx.y * 64 + row) * n + blockIdx.x * 64 + column + j * 16], sums[j], n, mem_row_major);
}

KERNEL series_double(const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i], sum = 0;
#pragma unroll 8
    for (int j = 0; j < 64; j++) sum = sum * a * 0.3 + 0.7;
    y[i] = sum;
}

KERNEL series_single(const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = x[i], sum = 0;
#pragma unroll 8
    for (int j = 0; j < 64; j++) sum = sum * a * 0.3f + 0.7f;
    y[i] = sum;
}

// 64 numbers of each warp
KERNEL fenced(float *y, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 4
    for (int i = 0; i < 64; i++) {
        if (threadIdx.x % 32 == 0) y[i * n + thread / 32] = 0.5f * thread;
        __threadfence();
    }
}

KERNEL unfenced(float *y, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 4
    for (int i = 0; i < 64; i++)
        if (threadIdx.x % 32 == 0) y[i * n + thread / 32] = 0.5f * thread;
}
