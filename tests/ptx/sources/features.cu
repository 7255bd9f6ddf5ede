// What real PTX contains: functions and calls, structs, tables, shared and local memory, atomics, inline assembly.
#include <cstdint>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

struct Shape {
    int rows, columns;
    double weights[3];
    char tag;
};

__constant__ float table[8] = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f, 8.0f};
__device__ int counter = 7;
__device__ int *pointer_to_counter = &counter;
__managed__ float shared_with_host[4];

__device__ __noinline__ float scaled(float value, const Shape &shape) { return value * shape.weights[shape.rows % 3]; }
__device__ __noinline__ Shape changed(Shape shape) {
    shape.rows += 1;
    return shape;
}
__device__ __noinline__ int recursive(int n) { return n < 2 ? n : recursive(n - 1) + recursive(n - 2); }
typedef float (*unary)(float);
__device__ float twice(float x) { return x * 2; }
__device__ float half_of(float x) { return x / 2; }
__device__ unary functions[2] = {twice, half_of};

extern "C" __global__ void __launch_bounds__(256, 2) everything(float *x, const Shape shape, int n, uint64_t key) {
    extern __shared__ float dynamic[];
    __shared__ int histogram[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int local[24];
    for (int j = 0; j < 24; j++) local[(j * 7 + n) % 24] = j;
    dynamic[threadIdx.x] = x[i];
    atomicAdd(&histogram[i & 63], 1);
    __syncthreads();
    float v = scaled(dynamic[threadIdx.x ^ 1], shape) + table[n & 7] + local[n % 24];
    v += __shfl_xor_sync(0xffffffffu, v, 3) + functions[n & 1](v) + changed(shape).rows;
    if (__any_sync(0xffffffffu, v > 3.0f)) atomicMax(pointer_to_counter, recursive(n & 7));
    switch (n) {
        case 0: v = expf(v); break;
        case 1: v = sinf(v); break;
        case 2: v = rsqrtf(v); break;
        case 3: v = __half2float(__float2half(v)); break;
        case 4: v = __bfloat162float(__float2bfloat16(v)); break;
        case 5: v = __popcll(key) + __clz(n) + __brev(n); break;
        case 6: v = (float)(key / (n + 1)) + (float)(n % 7); break;
    }
    for (int j = 0; j < 2; j++) {
        unsigned ready;
        asm volatile(
            "{\n\t.reg .pred P1;\n\tWAIT:\n\tsetp.ne.u32 P1, %1, 0;\n\t@P1 bra DONE;\n\tbra WAIT;\n\tDONE:\n\t"
            "selp.u32 %0, 1, 0, P1;\n\t}"
            : "=r"(ready)
            : "r"(n + j));
        v += ready;
    }
    if (i == 0) printf("%d %f\n", n, v);
    x[i] = v + shared_with_host[n & 3];
}

extern "C" __global__ void matrix(const __half *a, const __half *b, float *c) {
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
