// y = a x + y, a thread for each four elements.
extern "C" __global__ void saxpy(const float4 *x, float4 *y, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 u = x[i], v = y[i];
        y[i] = make_float4(a * u.x + v.x, a * u.y + v.y, a * u.z + v.z, a * u.w + v.w);
    }
}

// y = x with a stride: neighbouring threads read elements `stride` apart.
extern "C" __global__ void strided_copy(const float *x, float *y, int n, int stride)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[(int)((long long)i * stride % n)];
}
