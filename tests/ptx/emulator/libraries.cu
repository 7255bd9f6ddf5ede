// Kernels that lean on CUDA's own headers: CUB, cooperative groups, virtual functions, inline PTX.
#include <cassert>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/cub.cuh>
namespace cg = cooperative_groups;

extern "C" __global__ void block_sum(const int *x, int *out) {
    typedef cub::BlockReduce<int, 128> Reduce;
    __shared__ typename Reduce::TempStorage storage;
    int sum = Reduce(storage).Sum(x[blockIdx.x * 128 + threadIdx.x]);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

extern "C" __global__ void block_sort(const unsigned *x, unsigned *out) {
    typedef cub::BlockRadixSort<unsigned, 128, 4> Sort;
    __shared__ typename Sort::TempStorage storage;
    unsigned keys[4];
    int first = blockIdx.x * 512 + threadIdx.x * 4;
    for (int i = 0; i < 4; i++) keys[i] = x[first + i];
    Sort(storage).Sort(keys);
    for (int i = 0; i < 4; i++) out[first + i] = keys[i];
}

struct Larger {
    __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};
// items that the tile lacks go through shared memory and the scan, and are not stored
extern "C" __global__ void partial_scan(const int *x, int *out, int items, int stored) {
    typedef cub::BlockLoad<int, 64, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE> Load;
    typedef cub::BlockScan<int, 64, cub::BLOCK_SCAN_WARP_SCANS> Scan;
    typedef cub::BlockStore<int, 64, 4, cub::BLOCK_STORE_WARP_TRANSPOSE> Store;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Store::TempStorage store;
    } storage;
    int values[4];
    Load(storage.load).Load(x, values, items);
    __syncthreads();
    Scan(storage.scan).InclusiveScan(values, values, Larger());
    __syncthreads();
    Store(storage.store).Store(out, values, stored);
}

// an exclusive sum is the inclusive one less the own items; what is stored does not depend on those that the tile lacks
extern "C" __global__ void partial_exclusive_sum(const int *x, int *out, int items, int stored) {
    typedef cub::BlockLoad<int, 64, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE> Load;
    typedef cub::BlockScan<int, 64> Scan;
    typedef cub::BlockStore<int, 64, 4, cub::BLOCK_STORE_WARP_TRANSPOSE> Store;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Store::TempStorage store;
    } storage;
    int values[4];
    Load(storage.load).Load(x, values, items);
    __syncthreads();
    Scan(storage.scan).ExclusiveSum(values, values);
    __syncthreads();
    Store(storage.store).Store(out, values, stored);
}

// threads from `set` on never set their value; `items` of them are summed
extern "C" __global__ void partial_sum(const int *x, int *out, int set, int items) {
    typedef cub::BlockReduce<int, 64> Reduce;
    __shared__ typename Reduce::TempStorage storage;
    int value;
    if (threadIdx.x < set) value = x[threadIdx.x];
    int sum = Reduce(storage).Sum(value, items);
    if (threadIdx.x == 0) *out = sum;
}

extern "C" __global__ void tiles(const float *x, float *out) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    float sum = cg::reduce(tile, x[blockIdx.x * blockDim.x + threadIdx.x], cg::plus<float>());
    if (tile.thread_rank() == 0) out[(blockIdx.x * blockDim.x + threadIdx.x) / 8] = sum;
}

extern "C" __global__ void compact(const int *x, int *out, int *counter, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0) {
        auto group = cg::coalesced_threads();
        int base;
        if (group.thread_rank() == 0) base = atomicAdd(counter, group.size());
        base = group.shfl(base, 0);
        out[base + group.thread_rank()] = x[i];
    }
}

extern "C" __global__ void bitonic(int *x) {
    __shared__ int keys[256];
    int t = threadIdx.x;
    keys[t] = x[blockIdx.x * 256 + t];
    for (int k = 2; k <= 256; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            int other = t ^ j;
            if (other > t && (keys[t] > keys[other]) == ((t & k) == 0)) {
                int held = keys[t];
                keys[t] = keys[other];
                keys[other] = held;
            }
        }
    __syncthreads();
    x[blockIdx.x * 256 + t] = keys[t];
}

// two warps fill a double buffer, two warps empty it, joined by four named barriers
extern "C" __global__ void pipeline(const int *x, int *out, int n) {
    __shared__ int buffer[2][64];
    int t = threadIdx.x % 64;
    for (int i = 0; i < n; i++) {
        int stage = i & 1;
        if (threadIdx.x < 64) {
            asm volatile("bar.sync %0, 128;" ::"r"(3 + stage));
            buffer[stage][t] = x[i * 64 + t];
            asm volatile("bar.arrive %0, 128;" ::"r"(1 + stage));
        } else {
            if (i == 0) {
                asm volatile("bar.arrive 3, 128;");
                asm volatile("bar.arrive 4, 128;");
            }
            asm volatile("bar.sync %0, 128;" ::"r"(1 + stage));
            out[i * 64 + t] = buffer[stage][t] * 2;
            if (i + 2 < n) asm volatile("bar.arrive %0, 128;" ::"r"(3 + stage));
        }
    }
}

struct Shape {
    __device__ virtual float area() const = 0;
};
struct Square : Shape {
    float side;
    __device__ Square(float side) : side(side) {}
    __device__ float area() const override { return side * side; }
};
struct Disc : Shape {
    float radius;
    __device__ Disc(float radius) : radius(radius) {}
    __device__ float area() const override { return 3 * radius * radius; }
};
extern "C" __global__ void virtual_calls(float *out) {
    Square square(threadIdx.x);
    Disc disc(threadIdx.x);
    const Shape *shape = threadIdx.x % 3 ? (const Shape *)&disc : (const Shape *)&square;
    out[threadIdx.x] = shape->area();
}

extern "C" __global__ void printing(int n) {
    if (threadIdx.x < n) printf("thread %d of %s: %5.2f %llx%%\n", threadIdx.x, "four", 0.5 * threadIdx.x, 1ull << 40);
}

extern "C" __global__ void asserting(int n) { assert(threadIdx.x < n); }
