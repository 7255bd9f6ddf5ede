// Kernels of the seventh set. nvcc -arch=sm_90a -ptx seventh.cu -o ../ptx/seventh.ptx
#include <cuda_fp16.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t turned(uint32_t x, int by) { return __funnelshift_l(x, x, by); }

#define QUARTER(a, b, c, d)                        \
    a += b, d = turned(d ^ a, 16);                 \
    c += d, b = turned(b ^ c, 12);                 \
    a += b, d = turned(d ^ a, 8);                  \
    c += d, b = turned(b ^ c, 7);

// The stream of ChaCha with 20 rounds: 64 bytes a thread.
extern "C" __global__ void key_stream(uint4 *out, uint32_t key, uint32_t nonce)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, x[16], first[16];
    for (int n = 0; n < 16; n++) first[n] = n < 4 ? 0x61707865u + n : n < 12 ? key + n : n == 12 ? i : nonce + n;
    for (int n = 0; n < 16; n++) x[n] = first[n];
    for (int turn = 0; turn < 10; turn++) {
        QUARTER(x[0], x[4], x[8], x[12]) QUARTER(x[1], x[5], x[9], x[13])
        QUARTER(x[2], x[6], x[10], x[14]) QUARTER(x[3], x[7], x[11], x[15])
        QUARTER(x[0], x[5], x[10], x[15]) QUARTER(x[1], x[6], x[11], x[12])
        QUARTER(x[2], x[7], x[8], x[13]) QUARTER(x[3], x[4], x[9], x[14])
    }
    for (int n = 0; n < 4; n++)
        out[(size_t)i * 4 + n] = make_uint4(x[4 * n] + first[4 * n], x[4 * n + 1] + first[4 * n + 1],
                                            x[4 * n + 2] + first[4 * n + 2], x[4 * n + 3] + first[4 * n + 3]);
}

__device__ float below(float d)
{
    float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
    float tail = k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
    tail *= 0.39894228f * expf(-0.5f * d * d);
    return d > 0 ? 1.0f - tail : tail;
}

// Prices of options by Black and Scholes.
extern "C" __global__ void options(const float *spot, const float *strike, const float *years, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = fabsf(spot[i]) + 1.0f, k = fabsf(strike[i]) + 1.0f, t = fabsf(years[i]) + 0.25f;
    float root = sqrtf(t), d1 = (logf(s / k) + (0.02f + 0.5f * 0.09f) * t) / (0.3f * root), d2 = d1 - 0.3f * root;
    out[i] = s * below(d1) - k * expf(-0.02f * t) * below(d2);
}

// How many of a sorted table's numbers are smaller than each key.
extern "C" __global__ void searched(const int *table, const int *keys, int *at, int count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int key = keys[i], low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (table[middle] < key) low = middle + 1; else high = middle;
    }
    at[i] = low;
}

// Fourier transforms of 1024 complex numbers: a block each, in shared memory.
extern "C" __global__ void transformed(const float2 *x, float2 *y)
{
    __shared__ float2 held[2][1024];
    const float2 *from = x + (size_t)blockIdx.x * 1024;
    for (int i = threadIdx.x; i < 1024; i += 256) held[0][i] = from[i];
    __syncthreads();
    int now = 0;
    for (int length = 1; length < 1024; length *= 2, now ^= 1) {
        for (int i = threadIdx.x; i < 512; i += 256) {
            int within = i % length;
            float s, c;
            sincospif(-(float)within / length, &s, &c);
            float2 u = held[now][i], v = held[now][i + 512];
            float2 w = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
            int to = (i - within) * 2 + within;
            held[now ^ 1][to] = make_float2(u.x + w.x, u.y + w.y);
            held[now ^ 1][to + length] = make_float2(u.x - w.x, u.y - w.y);
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < 1024; i += 256) y[(size_t)blockIdx.x * 1024 + i] = held[now][i];
}

// How many letters of a word must change to make another of it: words of 128 letters, a block a pair, diagonals in turn.
extern "C" __global__ void changes(const int *one, const int *other, int *out)
{
    __shared__ int diagonal[3][129], letters[128];
    int row = threadIdx.x, mine = one[blockIdx.x * 128 + row];
    letters[row] = other[blockIdx.x * 128 + row];
    for (int k = 0; k < 3; k++) diagonal[k][row + 1] = 0;
    if (row == 0) diagonal[0][0] = 0, diagonal[1][0] = 1, diagonal[1][1] = 1;
    __syncthreads();
    for (int step = 2; step <= 256; step++) {
        int *next = diagonal[step % 3], *last = diagonal[(step + 2) % 3], *before = diagonal[(step + 1) % 3];
        int column = step - row - 1;
        if (row == 0 && step <= 128) next[0] = step;
        if (column == 0) next[row + 1] = step;
        if (column >= 1 && column <= 128) {
            int changed = before[row] + (mine != letters[column - 1]);
            next[row + 1] = min(changed, min(last[row], last[row + 1]) + 1);
        }
        __syncthreads();
    }
    if (row == 127) out[blockIdx.x] = diagonal[256 % 3][128];
}

// An image of twice the width and height, between its points by two lines.
extern "C" __global__ void resized(const float *x, float *y, int side)
{
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    float u = fminf(fmaxf(0.5f * column - 0.25f, 0.0f), side - 1.0f), v = fminf(fmaxf(0.5f * row - 0.25f, 0.0f), side - 1.0f);
    int left = (int)u, top = (int)v, right = min(left + 1, side - 1), bottom = min(top + 1, side - 1);
    float a = u - left, b = v - top;
    float upper = x[(size_t)top * side + left] * (1 - a) + x[(size_t)top * side + right] * a;
    float lower = x[(size_t)bottom * side + left] * (1 - a) + x[(size_t)bottom * side + right] * a;
    y[(size_t)row * 2 * side + column] = upper * (1 - b) + lower * b;
}

// Bytes as numbers, less a mean and scaled by channel: four channels.
extern "C" __global__ void channels(const uchar4 *x, float4 *y, float scale, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uchar4 u = x[i];
    y[i] = make_float4((u.x - 124.0f) * scale, (u.y - 117.0f) * scale, (u.z - 104.0f) * scale, (u.w - 128.0f) * scale);
}

// A polynomial of 32 steps in pairs of f16.
extern "C" __global__ void half_steps(const __half2 *x, __half2 *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 u = x[i], w = __float2half2_rn(0.5f), least = __float2half2_rn(-0.5f), most = __float2half2_rn(0.5f);
    u = __hmax2(__hmin2(u, most), least);
    for (int k = 0; k < 32; k++) w = __hfma2(w, u, __float2half2_rn(0.25f + 0.0078125f * k));
    y[i] = w;
}

// A matrix of doubles by a vector: a warp a row.
extern "C" __global__ void double_rows(const double2 *w, const double2 *x, double *y, int pairs)
{
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    double own = 0;
    for (int i = lane; i < pairs; i += 32) {
        double2 a = w[(size_t)row * pairs + i], b = x[i];
        own += a.x * b.x + a.y * b.y;
    }
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if (lane == 0) y[row] = own;
}

// Rows of 4096 numbers in 8 bits by the largest of each row.
extern "C" __global__ void in_eight_bits(const float4 *x, char4 *y)
{
    __shared__ float parts[8];
    const float4 *from = x + (size_t)blockIdx.x * 1024;
    float4 held[4];
    float most = 0;
    for (int i = 0; i < 4; i++) {
        held[i] = from[i * 256 + threadIdx.x];
        most = fmaxf(fmaxf(most, fmaxf(fabsf(held[i].x), fabsf(held[i].y))), fmaxf(fabsf(held[i].z), fabsf(held[i].w)));
    }
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
    __syncthreads();
    for (int i = 0; i < 8; i++) most = fmaxf(most, parts[i]);
    float scale = 127.0f / most;
    for (int i = 0; i < 4; i++)
        y[(size_t)blockIdx.x * 1024 + i * 256 + threadIdx.x] =
            make_char4(__float2int_rn(held[i].x * scale), __float2int_rn(held[i].y * scale),
                       __float2int_rn(held[i].z * scale), __float2int_rn(held[i].w * scale));
}

// Squares of 32 x 32 bits, turned: a warp each.
extern "C" __global__ void turned_bits(const uint32_t *x, uint32_t *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    if (i >= n) return;
    uint32_t u = x[i], own = 0;
    for (int bit = 0; bit < 32; bit++) {
        uint32_t row = __ballot_sync(~0u, u >> bit & 1);
        if (lane == bit) own = row;
    }
    y[i] = own;
}

// Of points at random how many lie in a quarter of a circle: 64 a thread.
extern "C" __global__ void in_circle(int *out)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, x = i * 2654435761u + 12345u;
    int count = 0;
    for (int step = 0; step < 64; step++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        float u = x * 2.3283064e-10f;
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        float v = x * 2.3283064e-10f;
        count += u * u + v * v < 1.0f;
    }
    out[i] = count;
}

// The largest of 33 neighbours, from shared memory.
extern "C" __global__ void largest_near(const float *x, float *y, int n)
{
    __shared__ float held[288];
    int first = blockIdx.x * 256;
    for (int i = threadIdx.x; i < 288; i += 256) held[i] = first + i < n ? x[first + i] : -INFINITY;
    __syncthreads();
    float most = held[threadIdx.x];
    for (int i = 1; i < 33; i++) most = fmaxf(most, held[threadIdx.x + i]);
    y[first + threadIdx.x] = most;
}
