// c = a + s b, an element a thread.
extern "C" __global__ void triad(const float *a, const float *b, float *c, float s, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + s * b[i];
}

// y = x in pairs, by a grid that stays.
extern "C" __global__ void copy_pairs(const float2 *x, float2 *y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];
}

// The product of two vectors: four elements a load, shuffles, an atomic for each warp.
extern "C" __global__ void dot(const float4 *a, const float4 *b, float *total, int n)
{
    float own = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 u = a[i], v = b[i];
        own += u.x * v.x + u.y * v.y + u.z * v.z + u.w * v.w;
    }
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, own);
}

// Sums of 1024 elements, each with all before it, by shuffles and one pass through shared memory.
extern "C" __global__ void scan_block(const float *x, float *y)
{
    __shared__ float sums[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = blockIdx.x * 1024 + threadIdx.x;
    float own = x[i];
    for (int step = 1; step < 32; step *= 2) {
        float other = __shfl_up_sync(~0u, own, step);
        if (lane >= step) own += other;
    }
    if (lane == 31) sums[warp] = own;
    __syncthreads();
    if (warp == 0) {
        float sum = sums[lane];
        for (int step = 1; step < 32; step *= 2) {
            float other = __shfl_up_sync(~0u, sum, step);
            if (lane >= step) sum += other;
        }
        sums[lane] = sum;
    }
    __syncthreads();
    y[i] = own + (warp ? sums[warp - 1] : 0.0f);
}

// Words by number: read from anywhere, and written anywhere.
extern "C" __global__ void gather_words(const float *x, const int *at, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[at[i]];
}

extern "C" __global__ void scatter_words(const float *x, const int *at, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[at[i]] = x[i];
}

// 256 steps of x = r x (1 - x).
extern "C" __global__ void logistic(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = 0.25f + 0.5f / (1.0f + x[i] * x[i]);
    for (int step = 0; step < 256; step++) v = 2.5f * v * (1.0f - v);
    y[i] = v;
}

// A polynomial of degree 31 in double precision.
extern "C" __global__ void polynomial(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i] * 0.1f, sum = 1.0;
    for (int k = 31; k > 0; k--) sum = sum * v / k + 1.0;
    y[i] = (float)sum;
}
