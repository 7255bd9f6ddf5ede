// The largest element of each row, a block a row.
extern "C" __global__ void row_max(const float *x, float *y, int columns)
{
    __shared__ float part[8];
    const float *row = x + (size_t)blockIdx.x * columns;
    float most = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += 256) most = fmaxf(most, row[i]);
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; i++) most = fmaxf(most, part[i]);
        y[blockIdx.x] = most;
    }
}

// Sums of columns: a thread a column over all rows, or over some of them with an atomic at the end.
extern "C" __global__ void column_sum(const float *x, float *y, int rows, int columns)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int share = rows / gridDim.y;
    float own = 0;
    for (int row = blockIdx.y * share; row < (blockIdx.y + 1) * share; row++) own += x[(size_t)row * columns + column];
    atomicAdd(&y[column], own);
}

// y = A x, a warp a row.
extern "C" __global__ void matvec(const float4 *a, const float4 *x, float *y, int columns)
{
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    const float4 *own = a + (size_t)row * columns / 4;
    float sum = 0;
    for (int i = lane; i < columns / 4; i += 32) {
        float4 u = own[i], v = x[i];
        sum += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) y[row] = sum;
}

// x^T in halves of words: tiles of 64 x 64.
extern "C" __global__ void transpose_halves(const unsigned short *x, unsigned short *y, int n)
{
    __shared__ unsigned short tile[64][66];
    int column = blockIdx.x * 64, row = blockIdx.y * 64;
    for (int i = threadIdx.x; i < 4096; i += 256) tile[i / 64][i % 64] = x[(size_t)(row + i / 64) * n + column + i % 64];
    __syncthreads();
    for (int i = threadIdx.x; i < 4096; i += 256) y[(size_t)(column + i / 64) * n + row + i % 64] = tile[i % 64][i / 64];
}

// C = A B in tiles of 128 x 128, 64 results a thread.
extern "C" __global__ void __launch_bounds__(256) gemm_128(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[8][132], right[8][128];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16, row = blockIdx.y * 128, column = blockIdx.x * 128;
    float sum[8][8] = {};
    for (int k = 0; k < n; k += 8) {
        float4 u = *(const float4 *)&a[(size_t)(row + threadIdx.x / 2) * n + k + threadIdx.x % 2 * 4];
        float4 v = *(const float4 *)&b[(size_t)(k + threadIdx.x / 32) * n + column + threadIdx.x % 32 * 4];
        int at = threadIdx.x % 2 * 4, of = threadIdx.x / 2;
        left[at][of] = u.x; left[at + 1][of] = u.y; left[at + 2][of] = u.z; left[at + 3][of] = u.w;
        *(float4 *)&right[threadIdx.x / 32][threadIdx.x % 32 * 4] = v;
        __syncthreads();
#pragma unroll
        for (int d = 0; d < 8; d++) {
            float p[8], q[8];
#pragma unroll
            for (int i = 0; i < 8; i++) { p[i] = left[d][ty * 8 + i]; q[i] = right[d][tx * 8 + i]; }
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] += p[i] * q[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j += 4)
            *(float4 *)&c[(size_t)(row + ty * 8 + i) * n + column + tx * 8 + j] =
                make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
}
