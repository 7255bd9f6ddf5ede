// Kernels of the eighth set, none of them in a set before. nvcc -arch=sm_90a -ptx eighth.cu -o ../ptx/eighth.ptx

// The largest of three by three points, every other point and row, of each channel.
extern "C" __global__ void pooled(const float *x, float *y, int side)
{
    int half = side / 2, column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    const float *from = x + (size_t)blockIdx.z * side * side;
    float most = -INFINITY;
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            int r = 2 * row + a - 1, c = 2 * column + b - 1;
            if (r >= 0 && r < side && c >= 0 && c < side) most = fmaxf(most, from[r * side + c]);
        }
    y[(size_t)blockIdx.z * half * half + row * half + column] = most;
}

// The nearest of 64 centres in 16 dimensions, a point a thread; centres lie in shared memory.
extern "C" __global__ void centres(const float4 *x, const float4 *means, int *out, int n)
{
    __shared__ float4 held[64][4];
    held[threadIdx.x / 4][threadIdx.x % 4] = means[threadIdx.x];
    __syncthreads();
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    float4 own[4];
    for (int k = 0; k < 4; k++) own[k] = x[(size_t)i * 4 + k];
    float least = INFINITY;
    int found = 0;
    for (int c = 0; c < 64; c++) {
        float far = 0.0f;
        for (int k = 0; k < 4; k++) {
            float4 m = held[c][k];
            float p = own[k].x - m.x, q = own[k].y - m.y, r = own[k].z - m.z, s = own[k].w - m.w;
            far += p * p + q * q + r * r + s * s;
        }
        if (far < least) least = far, found = c;
    }
    out[i] = found;
}

// Systems of equations with three diagonals (-1, 2.5, -1), a system a thread, systems side by side.
extern "C" __global__ void diagonals(const float *right, float *part, float *x, int rows, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float c = -0.4f, d = right[i] * 0.4f;
    x[i] = d, part[i] = c;
    for (int row = 1; row < rows; row++) {
        float by = __fdividef(1.0f, 2.5f + c);
        d = (right[(size_t)row * n + i] + d) * by;
        c = -by;
        x[(size_t)row * n + i] = d, part[(size_t)row * n + i] = c;
    }
    for (int row = rows - 2; row >= 0; row--) {
        d = x[(size_t)row * n + i] - part[(size_t)row * n + i] * d;
        x[(size_t)row * n + i] = d;
    }
}

// x tanh(log(1 + exp(x))) of each number and a bias for its column, four numbers a thread.
extern "C" __global__ void mish(const float4 *x, const float4 *bias, float4 *y, int columns, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 u = x[i], b = bias[i % columns];
    float v[4] = {u.x + b.x, u.y + b.y, u.z + b.z, u.w + b.w};
    for (int k = 0; k < 4; k++) v[k] = v[k] * tanhf(log1pf(__expf(v[k])));
    y[i] = make_float4(v[0], v[1], v[2], v[3]);
}
