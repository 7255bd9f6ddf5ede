// The sum of n floats: a tree in shared memory, one atomic a block.
extern "C" __global__ void sum_tree(const float *x, float *total, int n)
{
    __shared__ float part[256];
    float own = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) own += x[i];
    part[threadIdx.x] = own;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, part[0]);
}

// The same with loads of 16 bytes and shuffles.
extern "C" __global__ void sum_shuffle(const float4 *x, float *total, int n)
{
    __shared__ float part[8];
    float own = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n / 4; i += gridDim.x * 256) {
        float4 v = x[i];
        own += v.x + v.y + v.z + v.w;
    }
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x < 32) {
        own = threadIdx.x < 8 ? part[threadIdx.x] : 0;
        for (int step = 4; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
        if (threadIdx.x == 0) atomicAdd(total, own);
    }
}
