// Counts of bytes: every thread adds to global memory.
extern "C" __global__ void histogram_global(const unsigned *x, unsigned *bins, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned four = x[i];
        for (int part = 0; part < 32; part += 8) atomicAdd(&bins[four >> part & 255], 1u);
    }
}

// Counts of a block in shared memory first.
extern "C" __global__ void histogram_shared(const unsigned *x, unsigned *bins, int n)
{
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned four = x[i];
        for (int part = 0; part < 32; part += 8) atomicAdd(&own[four >> part & 255], 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) if (own[i]) atomicAdd(&bins[i], own[i]);
}
