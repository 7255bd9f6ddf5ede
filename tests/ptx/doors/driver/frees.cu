/* Frees and copies that CUDA refuses: with a word behind its name the program asks for the names of the errors. */
#include <cstdio>

static bool asks;

static void look(const char *what, cudaError_t error) {
  if (asks && error) printf("%s: %s\n", what, cudaGetErrorName(error));
  else printf("%s: %d\n", what, (int)error);
}

__global__ void fill(int *x) { x[threadIdx.x] = threadIdx.x; }

int main(int count, char **) {
  asks = count > 1;
  int *device, *pinned, *managed, host[4];
  cudaMalloc(&device, 64);
  cudaMallocHost(&pinned, 64);
  cudaMallocManaged(&managed, 64);
  fill<<<1, 16>>>(device);
  look("pinned as device", cudaFree(pinned));
  look("device as pinned", cudaFreeHost(device));
  look("managed as pinned", cudaFreeHost(managed));
  look("from null", cudaMemcpy(device, nullptr, 16, cudaMemcpyHostToDevice));
  look("to null", cudaMemset(nullptr, 0, 16));
  look("device as host", cudaMemcpy(host, device, 16, cudaMemcpyHostToDevice));
  look("host as device", cudaMemcpyAsync(device, host, 16, cudaMemcpyDeviceToDevice, 0));
  look("rows to the host", cudaMemcpy2D(device, 8, host, 8, 8, 2, cudaMemcpyDeviceToHost));
  look("managed as either", cudaMemcpy(managed, device, 16, cudaMemcpyDeviceToHost));
  look("pinned as either", cudaMemcpy(pinned, device, 16, cudaMemcpyDeviceToDevice));
  look("copy", cudaMemcpy(host, device, 16, cudaMemcpyDeviceToHost));
  look("pinned", cudaFreeHost(pinned));
  look("device", cudaFree(device));
  look("managed", cudaFree(managed));
  look("nothing", cudaFree(nullptr));
  cudaMalloc(&device, 64);
  look("reset", cudaDeviceReset());
  look("after reset", cudaFree(device));
  printf("%d %d\n", host[1], host[3]);
}
