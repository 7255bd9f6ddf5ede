// Symbols, printf, a reduction that lacks a barrier when RACE is defined, and a graph.
#include <cstdio>

__constant__ float factor;
__device__ int launches = 3;

template <int N>
__global__ void reduce(const float *x, float *y) {
  __shared__ float s[N];
  int t = threadIdx.x;
  s[t] = factor * x[t];
#ifndef RACE
  __syncthreads();
#endif
  for (int d = N / 2; d > 0; d /= 2) {
    if (t < d) s[t] += s[t + d];  // the line that is raced on
    __syncthreads();
  }
  if (t == 0) {
    *y = s[0];
    launches++;
    printf("sum on the device %g\n", s[0]);
  }
}

#define CHECK(call)                                                  \
  if (cudaError_t code = (call)) {                                   \
    printf("%s: %s\n", #call, cudaGetErrorString(code));             \
    return 1;                                                        \
  }

int main() {
  const int N = 128;
  float *x, *y, host = 2, sum = 0;
  int counted = 0;
  CHECK(cudaMallocManaged(&x, N * sizeof *x));
  CHECK(cudaMalloc(&y, sizeof *y));
  for (int i = 0; i < N; i++) x[i] = 1;
  CHECK(cudaMemcpyToSymbol(factor, &host, sizeof host));
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  reduce<N><<<1, N, 0, stream>>>(x, y);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 2; i++) CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(&sum, y, sizeof sum, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpyFromSymbol(&counted, launches, sizeof counted));
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  printf("sum %g launches %d sm_%d%d\n", sum, counted, properties.major, properties.minor);
  return sum != 2 * N;
}
