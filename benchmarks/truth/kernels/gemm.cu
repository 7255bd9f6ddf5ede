// C = A B of n x n floats. Tiles of 32 x 32, an element a thread.
extern "C" __global__ void gemm_tile(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[32][32], right[32][32];
    int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 32 + x, row = blockIdx.y * 32 + y;
    float sum = 0;
    for (int k = 0; k < n; k += 32) {
        left[y][x] = a[(size_t)row * n + k + x];
        right[y][x] = b[(size_t)(k + y) * n + column];
        __syncthreads();
        for (int i = 0; i < 32; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[(size_t)row * n + column] = sum;
}

// Tiles of 64 x 64 and 16 deep, 4 x 4 elements a thread, 256 threads.
extern "C" __global__ void gemm_registers(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[16][68], right[16][64];
    int t = threadIdx.x, x = t % 16 * 4, y = t / 16 * 4;
    const float *from_a = a + (size_t)blockIdx.y * 64 * n, *from_b = b + blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        for (int i = t; i < 1024; i += 256) {
            left[i % 16][i / 16] = from_a[(size_t)(i / 16) * n + k + i % 16];
            right[i / 64][i % 64] = from_b[(size_t)(k + i / 64) * n + i % 64];
        }
        __syncthreads();
        for (int d = 0; d < 16; d++)
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] += left[d][y + i] * right[d][x + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) c[(size_t)(blockIdx.y * 64 + y + i) * n + blockIdx.x * 64 + x + j] = sum[i][j];
}
