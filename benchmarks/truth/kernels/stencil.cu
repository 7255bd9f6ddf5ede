// Five points of an n x n grid; the edge is left alone.
extern "C" __global__ void stencil_2d(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= n - 1 || j >= n - 1) return;
    size_t at = (size_t)j * n + i;
    y[at] = 0.5f * x[at] + 0.125f * (x[at - 1] + x[at + 1] + x[at - n] + x[at + n]);
}

// Seven points of an n x n x n grid, a column of 8 planes a thread.
extern "C" __global__ void stencil_3d(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= n - 1 || j >= n - 1) return;
    size_t plane = (size_t)n * n;
    int first = max(1, (int)blockIdx.z * 8), last = min(n - 1, (int)blockIdx.z * 8 + 8);
    for (int k = first; k < last; k++) {
        size_t at = k * plane + (size_t)j * n + i;
        float around = x[at - 1] + x[at + 1] + x[at - n] + x[at + n] + x[at - plane] + x[at + plane];
        y[at] = 0.4f * x[at] + 0.1f * around;
    }
}
