// A convolution with 33 weights: a tile and its edges in shared memory.
extern "C" __global__ void convolve(const float *x, const float *w, float *y, int n)
{
    __shared__ float tile[512 + 32], weights[33];
    int first = blockIdx.x * 512;
    for (int i = threadIdx.x; i < 544; i += 256) {
        int at = first + i - 16;
        tile[i] = at >= 0 && at < n ? x[at] : 0.0f;
    }
    if (threadIdx.x < 33) weights[threadIdx.x] = w[threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.x; i < 512; i += 256) {
        float sum = 0;
        for (int k = 0; k < 33; k++) sum += weights[k] * tile[i + k];
        y[first + i] = sum;
    }
}

// Pulls of all bodies on each other: x, y, z and mass, tiles of 256 in shared memory.
extern "C" __global__ void bodies(const float4 *at, float4 *pull, int n)
{
    __shared__ float4 tile[256];
    float4 own = at[blockIdx.x * 256 + threadIdx.x];
    float ax = 0, ay = 0, az = 0;
    for (int start = 0; start < n; start += 256) {
        tile[threadIdx.x] = at[start + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 256; j++) {
            float dx = tile[j].x - own.x, dy = tile[j].y - own.y, dz = tile[j].z - own.z;
            float near = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float force = tile[j].w * near * near * near;
            ax += dx * force; ay += dy * force; az += dz * force;
        }
        __syncthreads();
    }
    pull[blockIdx.x * 256 + threadIdx.x] = make_float4(ax, ay, az, 0.0f);
}

// Pieces of 1024 elements sorted in shared memory.
extern "C" __global__ void sort_pieces(const float *x, float *y)
{
    __shared__ float own[1024];
    int base = blockIdx.x * 1024;
    for (int i = threadIdx.x; i < 1024; i += 512) own[i] = x[base + i];
    for (int size = 2; size <= 1024; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            __syncthreads();
            int low = 2 * threadIdx.x - (threadIdx.x & (step - 1)), high = low + step;
            bool up = !(low & size);
            float a = own[low], b = own[high];
            if ((a > b) == up) { own[low] = b; own[high] = a; }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += 512) y[base + i] = own[i];
}

// How many elements are positive: counted by warps, added up in one word.
extern "C" __global__ void count_positive(const float *x, unsigned *count, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned found = __popc(__ballot_sync(~0u, x[i] > 0.0f));
        if (threadIdx.x % 32 == 0) atomicAdd(count, found);
    }
}

// Counts of the lowest six bits, a table for each warp.
extern "C" __global__ void histogram_warps(const unsigned *x, unsigned *bins, int n)
{
    __shared__ unsigned own[8][64];
    int warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < 512; i += 256) own[i / 64][i % 64] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&own[warp][x[i] & 63], 1u);
    __syncthreads();
    if (threadIdx.x < 64) {
        unsigned sum = 0;
        for (int i = 0; i < 8; i++) sum += own[i][threadIdx.x];
        atomicAdd(&bins[threadIdx.x], sum);
    }
}
