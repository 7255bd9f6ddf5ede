/* Programs as people write them, one behind the other: groups of threads, functions that are looked up, graphs, memory that is copied
 * while threads compute. Each prints what it found; a test compares. */
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cstdio>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <mma.h>
#include <numeric>
#include <vector>

namespace cg = cooperative_groups;

namespace groups {
__global__ void reduce_tiles(const int *in, int *out, int n) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  __shared__ int partial[32];
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  sum = cg::reduce(warp, sum, cg::plus<int>());
  if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = sum;
  block.sync();
  if (warp.meta_group_rank() == 0) {
    int v = threadIdx.x < warp.meta_group_size() ? partial[threadIdx.x] : 0;
    v = cg::reduce(warp, v, cg::plus<int>());
    if (threadIdx.x == 0) atomicAdd(out, v);
  }
}
__global__ void scan_tile(int *data) {
  auto tile = cg::tiled_partition<16>(cg::this_thread_block());
  data[threadIdx.x] = cg::inclusive_scan(tile, data[threadIdx.x], cg::plus<int>());
}
__global__ void odd_even(int *counts) {
  auto active = cg::coalesced_threads();
  auto part = cg::labeled_partition(active, threadIdx.x % 3);
  if (part.thread_rank() == 0) counts[threadIdx.x % 3] = part.size();
}
__global__ void jacobi(float *a, float *b, int n, int steps) {
  cg::grid_group grid = cg::this_grid();
  for (int s = 0; s < steps; s++) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) {
      float l = i ? a[i - 1] : 0, r = i + 1 < n ? a[i + 1] : 0;
      b[i] = 0.5f * (l + r);
    }
    grid.sync();
    float *t = a; a = b; b = t;
  }
}
static void run() {
  const int n = 1000;
  std::vector<int> h(n);
  std::iota(h.begin(), h.end(), 1);
  int *in, *out, zero = 0;
  cudaMalloc(&in, n * 4); cudaMalloc(&out, 4);
  cudaMemcpy(in, h.data(), n * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(out, &zero, 4, cudaMemcpyHostToDevice);
  reduce_tiles<<<3, 128>>>(in, out, n);
  cudaMemcpy(&zero, out, 4, cudaMemcpyDeviceToHost);
  printf("sum %d\n", zero);
  scan_tile<<<1, 64>>>(in);
  cudaMemcpy(h.data(), in, 64 * 4, cudaMemcpyDeviceToHost);
  printf("scan %d %d\n", h[15], h[31]);
  int *counts, hc[3];
  cudaMalloc(&counts, 12);
  odd_even<<<1, 32>>>(counts);
  cudaMemcpy(hc, counts, 12, cudaMemcpyDeviceToHost);
  printf("parts %d %d %d\n", hc[0], hc[1], hc[2]);
  float *a, *b, ha[64];
  for (int i = 0; i < 64; i++) ha[i] = i == 32;
  cudaMalloc(&a, 256); cudaMalloc(&b, 256);
  cudaMemcpy(a, ha, 256, cudaMemcpyHostToDevice);
  int m = 64, steps = 4;
  void *args[] = {&a, &b, &m, &steps};
  int per_sm; cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, jacobi, 32, 0);
  cudaError_t e = cudaLaunchCooperativeKernel((void *)jacobi, dim3(2), dim3(32), args, 0, 0);
  cudaMemcpy(ha, a, 256, cudaMemcpyDeviceToHost);
  printf("jacobi %s %g %g\n", cudaGetErrorString(e), ha[32], ha[28]);
}
}

namespace functions {
__constant__ float coef[16];
__device__ int flag = 3;
__device__ float buffer[8];
typedef float (*Op)(float, float);
__device__ float add(float a, float b) { return a + b; }
__device__ float mul(float a, float b) { return a * b; }
__device__ Op ops[2] = {add, mul};
__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
struct Shape { __device__ virtual float area() const = 0; __device__ virtual ~Shape() {} };
struct Square : Shape { float s; __device__ Square(float x) : s(x) {} __device__ float area() const override { return s * s; } };
struct Circle : Shape { float r; __device__ Circle(float x) : r(x) {} __device__ float area() const override { return 3 * r * r; } };
__global__ void poly(const float *x, float *y, int n) {
  int i = threadIdx.x; if (i >= n) return;
  float v = 0; for (int k = 15; k >= 0; k--) v = v * x[i] + coef[k];
  y[i] = v;
}
__global__ void others(float *out) {
  int t = threadIdx.x;
  out[t] = ops[t & 1](t, 10);
  if (t == 0) { flag = fib(10); buffer[2] = 7; }
  Shape *s; if (t & 1) s = new Square(t); else s = new Circle(t);
  out[t] += s->area();
  delete s;
}
static void run() {
  float c[16], hx[4] = {0, 1, 2, 0.5f}, hy[4], *x, *y;
  for (int i = 0; i < 16; i++) c[i] = i;
  cudaMemcpyToSymbol(coef, c, sizeof c);
  cudaMalloc(&x, 16); cudaMalloc(&y, 32);
  cudaMemcpy(x, hx, 16, cudaMemcpyHostToDevice);
  poly<<<1, 32>>>(x, y, 4);
  cudaMemcpy(hy, y, 16, cudaMemcpyDeviceToHost);
  printf("poly %g %g %g\n", hy[0], hy[1], hy[2]);
  cudaDeviceSetLimit(cudaLimitStackSize, 8192);
  others<<<1, 4>>>(y);
  cudaMemcpy(hy, y, 16, cudaMemcpyDeviceToHost);
  int f; cudaMemcpyFromSymbol(&f, flag, 4);
  void *at; size_t bytes; cudaGetSymbolAddress(&at, buffer); cudaGetSymbolSize(&bytes, buffer);
  float b; cudaMemcpy(&b, (float *)at + 2, 4, cudaMemcpyDeviceToHost);
  printf("others %g %g %g fib %d sym %zu %g %s\n", hy[0], hy[1], hy[3], f, bytes, b, cudaGetErrorString(cudaGetLastError()));
}
}

namespace graphs {
__global__ void add(float *x, float v) { x[threadIdx.x] += v; }
static int hits;
static void CUDART_CB host_fn(void *p) { hits += *(int *)p; }
static void run() {
  float *x, *y, h[32]; cudaMalloc(&x, 128); cudaMalloc(&y, 128); cudaMemset(x, 0, 128); cudaMemset(y, 0, 128);
  cudaStream_t a, b; cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking); cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaEvent_t f, j; cudaEventCreateWithFlags(&f, cudaEventDisableTiming); cudaEventCreateWithFlags(&j, cudaEventDisableTiming);
  int two = 2; cudaGraph_t g; cudaGraphExec_t e;
  cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
  add<<<1, 32, 0, a>>>(x, 1);
  cudaEventRecord(f, a); cudaStreamWaitEvent(b, f, 0);
  add<<<1, 32, 0, b>>>(y, 2);
  cudaLaunchHostFunc(b, host_fn, &two);
  cudaEventRecord(j, b);
  cudaMemcpyAsync(h, x, 128, cudaMemcpyDeviceToHost, a);
  cudaStreamWaitEvent(a, j, 0);
  cudaError_t end = cudaStreamEndCapture(a, &g);
  size_t nodes = 0; cudaGraphGetNodes(g, nullptr, &nodes);
  cudaGraphInstantiate(&e, g, 0);
  for (int i = 0; i < 5; i++) cudaGraphLaunch(e, a);
  cudaStreamSynchronize(a);
  float hy[32]; cudaMemcpy(hy, y, 128, cudaMemcpyDeviceToHost);
  printf("capture %d nodes %zu %g %g hits %d\n", end, nodes, h[3], hy[31], hits);
  cudaGraph_t outer; cudaGraphCreate(&outer, 0);
  cudaGraphNode_t child, set, k;
  cudaGraphAddChildGraphNode(&child, outer, nullptr, 0, g);
  cudaMemsetParams mp = {}; mp.dst = x; mp.value = 0; mp.elementSize = 4; mp.width = 32; mp.height = 1;
  cudaGraphAddMemsetNode(&set, outer, &child, 1, &mp);
  float v = 9; void *args[] = {&x, &v}; cudaKernelNodeParams kp = {}; kp.func = (void *)add; kp.gridDim = 1; kp.blockDim = 32; kp.kernelParams = args;
  cudaGraphAddKernelNode(&k, outer, &set, 1, &kp);
  cudaGraphExec_t oe; cudaGraphInstantiate(&oe, outer, 0);
  cudaGraphLaunch(oe, a); cudaStreamSynchronize(a);
  cudaMemcpy(h, x, 128, cudaMemcpyDeviceToHost);
  printf("outer %g", h[0]);
  v = 11; cudaGraphExecKernelNodeSetParams(oe, k, &kp); cudaGraphLaunch(oe, a); cudaStreamSynchronize(a);
  cudaMemcpy(h, x, 128, cudaMemcpyDeviceToHost);
  printf(" then %g\n", h[0]);
  // capture again and update
  cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed); add<<<1, 32, 0, a>>>(x, 100);
  cudaGraph_t g2; cudaStreamEndCapture(a, &g2); cudaGraphExec_t e2; cudaGraphInstantiate(&e2, g2, 0);
  cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed); add<<<1, 32, 0, a>>>(x, 1000);
  cudaGraph_t g3; cudaStreamEndCapture(a, &g3);
#if CUDART_VERSION >= 12000
  cudaGraphExecUpdateResultInfo info; cudaError_t up = cudaGraphExecUpdate(e2, g3, &info);
#endif
  cudaGraphLaunch(e2, a); cudaStreamSynchronize(a);
  cudaMemcpy(h, x, 128, cudaMemcpyDeviceToHost);
  printf("update %d %g\n", up, h[0]);
}
}

namespace asynchronous {
using namespace nvcuda;
__global__ void staged(const float *x, float *y, int n) {
  __shared__ float s[2][64];
  auto block = cg::this_thread_block();
  constexpr auto scope = cuda::thread_scope_block;
  __shared__ cuda::pipeline_shared_state<scope, 2> state;
  auto pipe = cuda::make_pipeline(block, &state);
  int batches = n / 64;
  for (int c = 0, f = 0; c < batches; c++) {
    for (; f < batches && f < c + 2; f++) { pipe.producer_acquire(); cuda::memcpy_async(block, s[f % 2], x + f * 64, sizeof(float) * 64, pipe); pipe.producer_commit(); }
    pipe.consumer_wait();
    y[c * 64 + threadIdx.x] = 2 * s[c % 2][threadIdx.x];
    pipe.consumer_release();
  }
}
__global__ void waited(const int *x, int *y) {
  __shared__ int s[64]; __shared__ cuda::barrier<cuda::thread_scope_block> b;
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  cuda::memcpy_async(s + threadIdx.x, x + threadIdx.x, 4, b);
  b.arrive_and_wait();
  y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void tensor(const half *a, const half *b, float *c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa; wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb; wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  wmma::fill_fragment(fc, 0.f); wmma::load_matrix_sync(fa, a, 16); wmma::load_matrix_sync(fb, b, 16); wmma::mma_sync(fc, fa, fb, fc); wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
static void run() {
  float h[256], *x, *y; cudaMalloc(&x, 1024); cudaMalloc(&y, 1024); for (int i = 0; i < 256; i++) h[i] = i;
  cudaMemcpy(x, h, 1024, cudaMemcpyHostToDevice); staged<<<1, 64>>>(x, y, 256); cudaMemcpy(h, y, 1024, cudaMemcpyDeviceToHost);
  int hi[64], *ix, *iy; for (int i = 0; i < 64; i++) hi[i] = i; cudaMalloc(&ix, 256); cudaMalloc(&iy, 256); cudaMemcpy(ix, hi, 256, cudaMemcpyHostToDevice); waited<<<1, 64>>>(ix, iy); cudaMemcpy(hi, iy, 256, cudaMemcpyDeviceToHost);
  half ha[256], *a; for (int i = 0; i < 256; i++) ha[i] = __float2half(i % 5); cudaMalloc(&a, 512); cudaMemcpy(a, ha, 512, cudaMemcpyHostToDevice);
  float hc[256]; tensor<<<1, 32>>>(a, a, y); cudaMemcpy(hc, y, 1024, cudaMemcpyDeviceToHost);
  float want = 0; for (int k = 0; k < 16; k++) want += (3 * 16 + k) % 5 * ((7 * 16 + k) % 5);
  printf("staged %g waited %d wmma %d %s\n", h[255], hi[0], hc[3 * 16 + 7] == want, cudaGetErrorName(cudaGetLastError()));
}
}

int main() {
  groups::run();
  functions::run();
  graphs::run();
  asynchronous::run();
  return 0;
}
