// What programs use of CUDA beyond launches: each part prints one line. Built as one program with parts.cu.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace cg = cooperative_groups;

extern __device__ int shared_counter;
__device__ float scaled(float x);
void run_part(float *x, int n);

__managed__ int total = 5;
__constant__ int table[4];
static __device__ int helper(int x) { return x + 1; }

__global__ void add(float *x, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = scaled(x[i]) + by;
  if (i == 0) printf("add %d\n", helper(table[2]));
}

__global__ void cooperate(int *partial, int *sum) {
  cg::grid_group grid = cg::this_grid();
  partial[grid.thread_rank()] = (int)grid.thread_rank();
  grid.sync();
  if (grid.thread_rank() == 0)
    for (unsigned long long i = 0; i < grid.size(); i++) *sum += partial[i];
}

__global__ void exchange(int *out) {
  __shared__ int mine;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) mine = (int)cluster.block_rank() + 10;
  cluster.sync();
  if (threadIdx.x == 0) out[blockIdx.x] = *cluster.map_shared_rank(&mine, cluster.block_rank() ^ 1);
  cluster.sync();
}

__global__ void heap(int **kept) {
  int *made = (int *)malloc(4 * sizeof(int));
  if (!made) return;
  made[0] = (int)threadIdx.x;
  kept[threadIdx.x] = made;
}

__global__ void collect(int **kept, int *sum) {
  for (int i = 0; i < 4; i++) {
    *sum += kept[i][0];
    free(kept[i]);
  }
}

__global__ void bump() { atomicAdd(&total, 1); }

#define CHECK(call)                                                                    \
  do {                                                                                 \
    cudaError_t code = (call);                                                         \
    if (code) printf("%s: %s\n", #call, cudaGetErrorName(code));                       \
  } while (0)

static int called;
static void CUDART_CB on_host(void *data) { called += *(int *)data; }

static void symbols(float *x, int n) {
  int values[4] = {0, 1, 41, 3}, read[4] = {};
  CHECK(cudaMemcpyToSymbol(table, values, sizeof values));
  CHECK(cudaMemcpyFromSymbol(read, table, 2 * sizeof(int), 2 * sizeof(int)));
  add<<<1, 64>>>(x, n, 1.0f);
  CHECK(cudaDeviceSynchronize());
  run_part(x, n);
  int counter = 0;
  CHECK(cudaMemcpyFromSymbol(&counter, shared_counter, sizeof counter));
  bump<<<2, 32>>>();
  CHECK(cudaDeviceSynchronize());
  printf("symbols %d %d %d\n", read[0], counter, total);
}

static void groups() {
  int *partial, *sum, *out, host[4], zero = 0;
  CHECK(cudaMalloc(&partial, 256 * sizeof(int)));
  CHECK(cudaMalloc(&sum, sizeof(int)));
  CHECK(cudaMalloc(&out, sizeof host));
  CHECK(cudaMemcpy(sum, &zero, sizeof zero, cudaMemcpyHostToDevice));
  void *arguments[] = {&partial, &sum};
  CHECK(cudaLaunchCooperativeKernel((void *)cooperate, dim3(4), dim3(64), arguments, 0, 0));
  CHECK(cudaMemcpy(&zero, sum, sizeof zero, cudaMemcpyDeviceToHost));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(4), config.blockDim = dim3(32), config.attrs = &attribute, config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, exchange, out));
  CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  printf("groups %d clusters %d %d %d %d\n", zero, host[0], host[1], host[2], host[3]);
}

static void memory() {
  int **kept, *sum, host = 0;
  cudaStream_t stream;
  cudaMemPool_t pool;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cudaMallocAsync(&kept, 4 * sizeof *kept, stream));
  CHECK(cudaMallocFromPoolAsync(&sum, sizeof *sum, pool, stream));
  CHECK(cudaMemsetAsync(sum, 0, sizeof *sum, stream));
  CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 20));
  heap<<<1, 4, 0, stream>>>(kept);
  collect<<<1, 1, 0, stream>>>(kept, sum);
  CHECK(cudaMemcpyAsync(&host, sum, sizeof host, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaFreeAsync(kept, stream));
  CHECK(cudaFreeAsync(sum, stream));
  CHECK(cudaStreamSynchronize(stream));
  float *pitched, rows[2][3] = {{1, 2, 3}, {4, 5, 6}}, back[2][3] = {};
  size_t pitch;
  CHECK(cudaMallocPitch(&pitched, &pitch, 12, 2));
  CHECK(cudaMemcpy2D(pitched, pitch, rows, 12, 12, 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy2D(back, 12, pitched, pitch, 12, 2, cudaMemcpyDeviceToHost));
  printf("memory %d %g\n", host, back[1][2]);
  CHECK(cudaFree(pitched));
}

static void graphs(float *x, int n) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaGraphNode_t first, second, third;
  float by = 2, host[64], zeros[64] = {};
  int one = 1;
  CHECK(cudaGraphCreate(&graph, 0));
  CHECK(cudaGraphAddMemcpyNode1D(&first, graph, nullptr, 0, x, zeros, sizeof zeros, cudaMemcpyHostToDevice));
  void *arguments[] = {&x, &n, &by};
  cudaKernelNodeParams kernel = {};
  kernel.func = (void *)add, kernel.gridDim = dim3(1), kernel.blockDim = dim3(64), kernel.kernelParams = arguments;
  CHECK(cudaGraphAddKernelNode(&second, graph, &first, 1, &kernel));
  cudaHostNodeParams call = {on_host, &one};
  CHECK(cudaGraphAddHostNode(&third, graph, &second, 1, &call));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, 0));
  by = 7;
  CHECK(cudaGraphExecKernelNodeSetParams(executable, second, &kernel));
  CHECK(cudaGraphLaunch(executable, 0));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
  printf("graphs %g %d\n", host[5], called);
  CHECK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphDestroy(graph));
}

static int add_node(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *before, size_t count, cudaGraphNodeParams *from) {
#if CUDART_VERSION >= 13000
  return cudaGraphAddNode(node, graph, before, nullptr, count, from);
#elif CUDART_VERSION >= 12020
  return cudaGraphAddNode(node, graph, before, count, from);
#else
  return 801;
#endif
}

/* a graph whose nodes have the general form, with memory of its own, and a symbol */
static void nodes(int n) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaGraphNode_t memory, fill, kernel, copy, symbol;
  cudaGraphNodeParams from = {};
  float by = 3, host[64] = {}, *x;
  int seen = 0;
  CHECK(cudaGraphCreate(&graph, 0));
  from.type = cudaGraphNodeTypeMemAlloc;
  from.alloc.poolProps.allocType = cudaMemAllocationTypePinned;
  from.alloc.poolProps.location.type = cudaMemLocationTypeDevice;
  from.alloc.bytesize = sizeof host;
  CHECK((cudaError_t)add_node(&memory, graph, nullptr, 0, &from));
  x = (float *)from.alloc.dptr;
  from = {};
  from.type = cudaGraphNodeTypeMemset;
  from.memset.dst = x, from.memset.elementSize = 4, from.memset.width = 64, from.memset.height = 1;
  CHECK((cudaError_t)add_node(&fill, graph, &memory, 1, &from));
  void *arguments[] = {&x, &n, &by};
  from = {};
  from.type = cudaGraphNodeTypeKernel;
  from.kernel.func = (void *)add, from.kernel.gridDim = dim3(1), from.kernel.blockDim = dim3(64), from.kernel.kernelParams = arguments;
  CHECK((cudaError_t)add_node(&kernel, graph, &fill, 1, &from));
  by = 4;
  CHECK(cudaGraphNodeSetParams(kernel, &from));
  from = {};
  from.type = cudaGraphNodeTypeMemcpy;
  from.memcpy.copyParams.srcPtr = make_cudaPitchedPtr(x, sizeof host, 64, 1);
  from.memcpy.copyParams.dstPtr = make_cudaPitchedPtr(host, sizeof host, 64, 1);
  from.memcpy.copyParams.extent = make_cudaExtent(sizeof host, 1, 1);
  from.memcpy.copyParams.kind = cudaMemcpyDeviceToHost;
  CHECK((cudaError_t)add_node(&copy, graph, &kernel, 1, &from));
  CHECK(cudaGraphAddMemcpyNodeFromSymbol(&symbol, graph, &copy, 1, &seen, table, sizeof seen, 0, cudaMemcpyDeviceToHost));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 2; i++) {
    CHECK(cudaGraphLaunch(executable, 0));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(x));
  }
  printf("nodes %g %d\n", host[5], seen);
}

// many copies in one call, which version 12 tells the number of the one that fails; the last of them goes beyond an allocation
static void batches(cudaStream_t stream) {
#if CUDART_VERSION >= 12080
  int host[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8] = {}, *x;
  cudaMalloc(&x, sizeof host);
  void *to[3] = {x, x + 6, x + 3};
  const void *from[3] = {host + 5, host, host + 2};
  size_t bytes[3] = {12, 8, 12}, first = 0;
  cudaMemcpyAttributes how = {};
  how.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
#if CUDART_VERSION >= 13000
#define BATCH(count) cudaMemcpyBatchAsync((void *const *)to, (const void *const *)from, bytes, count, &how, &first, 1, stream)
#else
  size_t failed = 77;
#define BATCH(count) cudaMemcpyBatchAsync((void **)to, (void **)from, bytes, count, &how, &first, 1, &failed, stream)
#endif
  cudaError_t good = BATCH(3);
  cudaStreamSynchronize(stream);
  cudaMemcpy(back, x, sizeof back, cudaMemcpyDeviceToHost);
  for (int value : back) printf("%d ", value);
  bytes[1] = 800;
  cudaError_t beyond = BATCH(3), none = BATCH(0);
  printf("%s %s %s\n", cudaGetErrorName(good), cudaGetErrorName(beyond), cudaGetErrorName(none));
  cudaGetLastError();
  cudaFree(x);
#else
  printf("6 7 8 3 4 5 1 2 cudaSuccess cudaErrorInvalidValue cudaErrorInvalidValue\n");
#endif
}

static void streams(float *x, int n) {
  cudaStream_t one, two;
  cudaEvent_t event, end;
  int three = 3;
  float milliseconds = -1;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithPriority(&two, cudaStreamNonBlocking, -1));
  CHECK(cudaEventCreate(&event));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(event, one));
  CHECK(cudaStreamWaitEvent(two, event, 0));
  CHECK(cudaLaunchHostFunc(two, on_host, &three));
  CHECK(cudaEventRecord(end, two));
  CHECK(cudaEventSynchronize(end));
  CHECK(cudaEventElapsedTime(&milliseconds, event, end));
  batches(one);
  printf("streams %d %d\n", called, milliseconds >= 0);
}

static void functions() {
  cudaFuncAttributes about;
  int blocks = 0, least = 0, size = 0, can = -1, version = 0;
  CHECK(cudaFuncGetAttributes(&about, exchange));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0));
  CHECK(cudaOccupancyMaxPotentialBlockSize(&least, &size, add, 0, 0));
  CHECK(cudaFuncSetAttribute(exchange, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 0));
  CHECK(cudaRuntimeGetVersion(&version));
  printf("functions %zu %d %d %d %d\n", about.sharedSizeBytes, blocks > 0, size > 0, can, version / 1000);
}

static void refused() {
  cudaArray_t array;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaIpcMemHandle_t handle;
  float *x;
  CHECK(cudaMallocArray(&array, &format, 8, 8));
  CHECK(cudaMalloc(&x, 64));
  CHECK(cudaIpcGetMemHandle(&handle, x));
  CHECK(cudaMemcpy(x, nullptr, 16, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(nullptr, 0, 16));
  CHECK(cudaSetDevice(1));
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
  (void)cudaGetLastError();
  add<<<1, 2048>>>(x, 1, 0);
  printf("refused %s\n", cudaGetErrorName(cudaGetLastError()));
}

int main() {
  const int n = 64;
  float *x, host[n];
  for (int i = 0; i < n; i++) host[i] = (float)i;
  CHECK(cudaMalloc(&x, sizeof host));
  CHECK(cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice));
  symbols(x, n);
  groups();
  memory();
  graphs(x, n);
  nodes(n);
  streams(x, n);
  functions();
  refused();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) threads.emplace_back([] { bump<<<1, 32>>>(); });
  for (auto &thread : threads) thread.join();
  CHECK(cudaDeviceSynchronize());
  printf("threads %d\n", total);
  CHECK(cudaFree(x));
  return 0;
}
