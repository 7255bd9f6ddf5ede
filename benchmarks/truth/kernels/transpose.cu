// y = x^T of an n x n matrix, blocks of 32 x 8 threads.
extern "C" __global__ void transpose_naive(const float *x, float *y, int n)
{
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) y[(size_t)column * n + row + i] = x[(size_t)(row + i) * n + column];
}

template <int PITCH> __device__ void through_shared(const float *x, float *y, int n, float (*tile)[PITCH])
{
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) tile[threadIdx.y + i][threadIdx.x] = x[(size_t)(row + i) * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x;
    row = blockIdx.x * 32 + threadIdx.y;
    for (int i = 0; i < 32; i += 8) y[(size_t)(row + i) * n + column] = tile[threadIdx.x][threadIdx.y + i];
}

// Every column of the tile lies in one bank.
extern "C" __global__ void transpose_conflicts(const float *x, float *y, int n)
{
    __shared__ float tile[32][32];
    through_shared<32>(x, y, n, tile);
}

extern "C" __global__ void transpose_padded(const float *x, float *y, int n)
{
    __shared__ float tile[32][33];
    through_shared<33>(x, y, n, tile);
}
