// Kernels of the fifth set: none of them was in a set before.

// A step of an optimizer that keeps two moments: four arrays are read, three written.
extern "C" __global__ void moments(float *w, float *m, float *v, const float *g, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float d = g[i], a = 0.9f * m[i] + 0.1f * d, b = 0.999f * v[i] + 0.001f * d * d;
    m[i] = a;
    v[i] = b;
    w[i] -= 0.001f * a * rsqrtf(b + 1e-8f);
}

// Rows of a sparse matrix times a vector: a warp a row of so many numbers, columns by number.
extern "C" __global__ void sparse_rows(const int *column, const float *value, const float *x, float *y, int rows, int each)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float own = 0;
    for (int i = row * each + lane; i < (row + 1) * each; i += 32) own += value[i] * x[column[i]];
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if (lane == 0) y[row] = own;
}

// Each row by its largest absolute value: integers of 8 bits and a scale; a block a row, which it reads twice.
extern "C" __global__ void narrowed(const float4 *x, float *scales, char4 *y, int columns)
{
    __shared__ float parts[8];
    const float4 *row = x + (size_t)blockIdx.x * columns;
    float most = 0;
    for (int i = threadIdx.x; i < columns; i += 256) {
        float4 u = row[i];
        most = fmaxf(fmaxf(fmaxf(most, fabsf(u.x)), fmaxf(fabsf(u.y), fabsf(u.z))), fabsf(u.w));
    }
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = most;
    __syncthreads();
    most = parts[0];
    for (int i = 1; i < 8; i++) most = fmaxf(most, parts[i]);
    float scale = most / 127.0f, by = __frcp_rn(scale);
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int i = threadIdx.x; i < columns; i += 256) {
        float4 u = row[i];
        char4 made = make_char4(__float2int_rn(u.x * by), __float2int_rn(u.y * by), __float2int_rn(u.z * by),
                                __float2int_rn(u.w * by));
        y[(size_t)blockIdx.x * columns + i] = made;
    }
}

// How soon points of a plane leave a circle, by at most so many steps: lanes take different numbers of them.
extern "C" __global__ void escapes(int *count, int side, int most)
{
    int i = blockIdx.x * 16 + threadIdx.x % 16, j = blockIdx.y * 16 + threadIdx.x / 16;
    float cx = __fadd_rn(-2.0f, __fdiv_rn(__fmul_rn(2.5f, i), side)), x = 0;
    float cy = __fadd_rn(-1.25f, __fdiv_rn(__fmul_rn(2.5f, j), side)), y = 0;
    int steps = 0;
    while (steps < most) {
        float xx = __fmul_rn(x, x), yy = __fmul_rn(y, y);
        if (__fadd_rn(xx, yy) >= 4.0f) break;
        y = __fadd_rn(__fmul_rn(__fadd_rn(x, x), y), cy);
        x = __fadd_rn(__fsub_rn(xx, yy), cx);
        steps++;
    }
    count[j * side + i] = steps;
}

// Three numbers of a point, side by side, become three arrays.
extern "C" __global__ void apart(const float *points, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = points[3 * i], y = points[3 * i + 1], z = points[3 * i + 2];
    out[i] = x;
    out[n + i] = y;
    out[2 * n + i] = z;
}

// Rows of integers of 8 bits times a vector of them, four products an instruction; a warp a row.
extern "C" __global__ void fours(const int *w, const int *x, int *y, int columns)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, own = 0;
    const int4 *at = (const int4 *)(w + (size_t)row * columns), *vector = (const int4 *)x;
    for (int i = lane; i < columns / 4; i += 32) {
        int4 a = at[i], b = vector[i];
        own = __dp4a(a.x, b.x, own);
        own = __dp4a(a.y, b.y, own);
        own = __dp4a(a.z, b.z, own);
        own = __dp4a(a.w, b.w, own);
    }
    for (int step = 16; step; step /= 2) own += __shfl_xor_sync(~0u, own, step);
    if (lane == 0) y[row] = own;
}

// Bytes by a table of 256 numbers in shared memory.
extern "C" __global__ void looked_up(const uchar4 *x, const float *table, float4 *y, int n)
{
    __shared__ float kept[256];
    kept[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        uchar4 u = x[i];
        y[i] = make_float4(kept[u.x], kept[u.y], kept[u.z], kept[u.w]);
    }
}

// Random angles, their sines and cosines: nothing is read.
extern "C" __global__ void angles(float *y, int n, int steps)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned state = i * 747796405u + 2891336453u;
    float sum = 0;
    for (int k = 0; k < steps; k++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        float angle = (state >> 8) * 3.7450704e-7f, s = __sinf(angle), c = __cosf(angle);
        sum += s * s * c;
    }
    y[i] = sum;
}
