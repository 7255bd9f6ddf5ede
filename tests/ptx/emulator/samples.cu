// Small kernels of many shapes, compiled to PTX by the tests and run on the emulator.
#include <cuda_fp16.h>

extern "C" __global__ void block_reduce(const float *x, float *out, int n) {
    __shared__ float part[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void warp_reduce(const float *x, float *out, int n) {
    float total = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) total += x[i];
    for (int step = 16; step > 0; step /= 2) total += __shfl_down_sync(0xffffffff, total, step);
    __shared__ float warps[32];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 32) {
        total = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
        for (int step = 16; step > 0; step /= 2) total += __shfl_down_sync(0xffffffff, total, step);
        if (threadIdx.x == 0) *out = total;
    }
}

extern "C" __global__ void scan(const int *x, int *out, int n) {
    extern __shared__ int buffer[];
    int t = threadIdx.x, from = 0, to = 1;
    buffer[t] = t < n ? x[t] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        to = 1 - from;
        buffer[to * blockDim.x + t] = buffer[from * blockDim.x + t] + (t >= step ? buffer[from * blockDim.x + t - step] : 0);
        __syncthreads();
        from = to;
    }
    if (t < n) out[t] = buffer[from * blockDim.x + t];
}

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float ta[16][16], tb[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        ta[threadIdx.y][threadIdx.x] = row < n && k + threadIdx.x < n ? a[row * n + k + threadIdx.x] : 0;
        tb[threadIdx.y][threadIdx.x] = column < n && k + threadIdx.y < n ? b[(k + threadIdx.y) * n + column] : 0;
        __syncthreads();
        for (int j = 0; j < 16; j++) sum += ta[threadIdx.y][j] * tb[j][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}

extern "C" __global__ void softmax(const float *x, float *out, int columns) {
    const float *row = x + (size_t)blockIdx.x * columns;
    __shared__ float shared[32];
    float most = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, row[i]);
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, step));
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; w++) most = fmaxf(most, shared[w]);
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - most);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < blockDim.x / 32; w++) sum += shared[w];
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[(size_t)blockIdx.x * columns + i] = expf(row[i] - most) / sum;
}

extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, int n) {
    __shared__ unsigned mine[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], mine[i]);
}

extern "C" __global__ void collatz(const unsigned *x, unsigned *steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned value = x[i], count = 0;
    while (value != 1) {
        if (value % 2) {
            value = 3 * value + 1;
            if (count > 500) break;
        } else {
            value /= 2;
        }
        count++;
    }
    steps[i] = count;
}

extern "C" __global__ void choose(const int *kind, const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    switch (kind[i]) {
        case 0: v = v + 1; break;
        case 1: v = v * v; break;
        case 2: v = sqrtf(fabsf(v)); break;
        case 3: v = -v; break;
        case 4: for (int k = 0; k < i % 7; k++) v = v * 0.5f + k; break;
        case 5: v = sinf(v); break;
        case 6: v = 1.0f / (1.0f + v * v); break;
        default: v = 0;
    }
    out[i] = v;
}

__device__ __noinline__ int gcd(int a, int b) {
    while (b) { int t = a % b; a = b; b = t; }
    return a;
}
struct Pair { int low, high; double mean; };
__device__ __noinline__ Pair order(int a, int b) {
    Pair p; p.low = min(a, b); p.high = max(a, b); p.mean = 0.5 * (a + b); return p;
}
extern "C" __global__ void calls(const int *a, const int *b, int *out, double *means, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Pair p = order(a[i], b[i]);
    out[i] = i % 2 ? gcd(p.high, p.low) : gcd(p.low, p.high) + 1000;
    means[i] = p.mean;
}

__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
extern "C" __global__ void recursion(unsigned *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 11); }

typedef int (*Function)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ Function table[2] = {plus, times};
extern "C" __global__ void pointers(const int *which, int *out, int n) {
    int i = threadIdx.x;
    if (i < n) out[i] = table[which[i]](i, 3);
}

extern "C" __global__ void local_array(const int *x, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int values[16];
    for (int k = 0; k < 16; k++) values[k] = x[(i * 16 + k) % n];
    for (int k = 1; k < 16; k++)
        for (int j = k; j > 0 && values[j - 1] > values[j]; j--) { int t = values[j]; values[j] = values[j - 1]; values[j - 1] = t; }
    for (int k = 0; k < 16; k++) out[i * 16 + k] = values[k];
}

extern "C" __global__ void last_block(const float *x, float *parts, float *out, unsigned *ticket, int n) {
    __shared__ float part[128];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = part[0];
        __threadfence();
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        sum = 0;
        __threadfence();
        for (int b = 0; b < gridDim.x; b++) sum += ((volatile float *)parts)[b];
        *out = sum;
    }
}

extern "C" __global__ void grid_barrier(volatile int *arrived, int *data, int *out) {
    data[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd((int *)arrived, 1);
        while (*arrived < gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = data[(blockIdx.x + 1) % gridDim.x * blockDim.x + threadIdx.x];
}

extern "C" __global__ void spin_lock(int *lock, int *counter) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)counter = *(volatile int *)counter + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

extern "C" __global__ void half_math(const half2 *a, const half2 *b, half2 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __hfma2(a[i], b[i], __hadd2(a[i], b[i]));
}

extern "C" __global__ void votes(const int *x, unsigned *ballots, int *counts) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool odd = x[i] % 2;
    unsigned ballot = __ballot_sync(0xffffffff, odd);
    if (odd) {
        unsigned together = __match_any_sync(ballot, x[i] % 8);
        counts[i] = __popc(together) + 100 * __any_sync(ballot, x[i] > 90);
    } else {
        counts[i] = __reduce_add_sync(~ballot, 1);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ballots[i / 32] = ballot;
}

extern "C" __global__ void long_division(const long long *a, const long long *b, long long *out, double *root, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = b[i] ? a[i] / b[i] : 0;
        root[i] = sqrt((double)(a[i] < 0 ? -a[i] : a[i])) + exp((double)(i % 10));
    }
}

__constant__ float weights[5] = {1, 4, 6, 4, 1};
extern "C" __global__ void stencil(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = -2; k <= 2; k++) {
        int j = min(max(i + k, 0), n - 1);
        sum += weights[k + 2] * x[j];
    }
    if (i < n) out[i] = sum / 16;
}
