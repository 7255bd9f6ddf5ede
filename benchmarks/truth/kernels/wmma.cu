#include <mma.h>
#include <cuda_bf16.h>
using namespace nvcuda;

// c = a b of bf16 in tiles of 64 x 64 by four warps, products of 16 x 16 x 16 out of shared memory.
extern "C" __global__ void tiles_64(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int n)
{
    __shared__ __align__(128) __nv_bfloat16 left[64][40], right[32][72];
    int warp = threadIdx.x / 32, row = blockIdx.y * 64, column = blockIdx.x * 64;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[4];
    for (int t = 0; t < 4; t++) wmma::fill_fragment(sums[t], 0.0f);
    for (int k = 0; k < n; k += 32) {
        for (int i = threadIdx.x; i < 256; i += 128) {
            *(uint4 *)&left[i / 4][i % 4 * 8] = *(const uint4 *)&a[(size_t)(row + i / 4) * n + k + i % 4 * 8];
            *(uint4 *)&right[i / 8][i % 8 * 8] = *(const uint4 *)&b[(size_t)(k + i / 8) * n + column + i % 8 * 8];
        }
        __syncthreads();
        for (int step = 0; step < 32; step += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> x;
            wmma::load_matrix_sync(x, &left[warp * 16][step], 40);
            for (int t = 0; t < 4; t++) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> y;
                wmma::load_matrix_sync(y, &right[step][t * 16], 72);
                wmma::mma_sync(sums[t], x, y, sums[t]);
            }
        }
        __syncthreads();
    }
    for (int t = 0; t < 4; t++)
        wmma::store_matrix_sync(c + (size_t)(row + warp * 16) * n + column + t * 16, sums[t], n, wmma::mem_row_major);
}
