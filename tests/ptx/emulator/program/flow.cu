// Kernels that wait, leave early, call and allocate, as people write them; those named bug_ each have a fault.

// one thread polls, then its whole block goes on
extern "C" __global__ void poll(int *data, volatile int *flag, int *out) {
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        data[t] = 3 * t;
        __syncthreads();
        if (t == 0) {
            __threadfence();
            *flag = 1;
        }
    } else {
        if (t == 0) {
            while (*flag == 0) {
            }
            __threadfence();
        }
        __syncthreads();
        out[(blockIdx.x - 1) * blockDim.x + t] = data[t];
    }
}

// threads beyond the end, or with nothing to do, return before the barrier
extern "C" __global__ void leave_early(const int *x, int *out, int n) {
    int t = threadIdx.x;
    if (t >= n) return;
    __shared__ int held[64];
    if (x[t] < 0) {
        out[t] = -1;
        return;
    }
    held[t] = x[t];
    __syncthreads();
    int sum = 0;
    for (int i = 0; i < n; i++)
        if (x[i] >= 0) sum += held[i];
    out[t] = sum;
}

// a chain of warps through flags in shared memory
extern "C" __global__ void chain(int *out) {
    __shared__ volatile int flag[4];
    __shared__ int value[4];
    int warp = threadIdx.x / 32;
    if (threadIdx.x < 4) flag[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        if (warp > 0) {
            while (flag[warp - 1] == 0) {
            }
            __threadfence_block();
        }
        value[warp] = warp == 0 ? 1 : 2 * value[warp - 1];
        __threadfence_block();
        flag[warp] = 1;
    }
    __syncthreads();
    out[threadIdx.x] = value[warp];
}

struct Record {
    int first;
    char letter;
    double number;
    int rest[5];
};

__device__ __noinline__ Record made(int t) {
    Record r;
    r.first = t;
    r.rest[3] = 5;
    return r;
}

__device__ __noinline__ int used(Record r) { return r.first + r.rest[3]; }

// a record that is only partly set is copied and passed about
extern "C" __global__ void half_set(int *out) {
    Record one = made(threadIdx.x), two = one;
    out[threadIdx.x] = used(two);
}

extern "C" __global__ void bit_fields(int *out) {
    struct {
        unsigned a : 3, b : 7, c : 12;
    } v;
    v.a = threadIdx.x;
    v.b = threadIdx.x;
    v.c = 3 * threadIdx.x;
    auto w = v;
    out[threadIdx.x] = w.a + 8 * w.b + 1024 * w.c;
}

// a lock of each lane, in the form that lets the others of the warp go on
extern "C" __global__ void lane_lock(int *lock, volatile int *sum) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *sum = *sum + threadIdx.x;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

extern "C" __global__ void gives_up(const volatile int *flag, int *out) {
    int tries = 0;
    while (*flag == 0 && tries < 300) tries++;
    out[threadIdx.x] = tries;
}

extern "C" __global__ void work_queue(const int *work, int *head, int *out, int n) {
    __shared__ int item;
    for (;;) {
        if (threadIdx.x == 0) item = atomicAdd(head, 1);
        __syncthreads();
        int i = item;
        __syncthreads();
        if (i >= n) return;
        out[32 * i + threadIdx.x] = work[i] * (threadIdx.x + 1);
    }
}

extern "C" __global__ void shared_heap(int *out) {
    __shared__ int *list;
    if (threadIdx.x == 0) list = new int[64];
    __syncthreads();
    list[threadIdx.x] = 2 * threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = list[63 - threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) delete[] list;
}

extern "C" __global__ void bug_half_barrier(int *out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = 1;
        __syncthreads();
    }
    out[threadIdx.x] += 1;
}

extern "C" __global__ void bug_two_barriers(const int *x, int *out) {
    if (x[threadIdx.x] & 1) {
        out[threadIdx.x] = 1;
        __syncthreads();
        out[threadIdx.x] = 3;
    } else {
        out[threadIdx.x] = 2;
        __syncthreads();
        out[threadIdx.x] = 4;
    }
}

extern "C" __global__ void bug_uneven_loop(const int *x, int *out) {
    int sum = 0;
    for (int i = 0; i < x[threadIdx.x]; i++) {
        sum += i;
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

extern "C" __global__ void bug_mask_of_ended(const int *x, int *out) {
    int found = 0;
    if (threadIdx.x < 16) found = __any_sync(0xffffffff, x[threadIdx.x] > 5);
    out[threadIdx.x] = found;
}

extern "C" __global__ void votes_of_the_living(const int *x, int *out) {
    if (threadIdx.x >= 16) return;
    out[threadIdx.x] = __any_sync(0xffffffff, x[threadIdx.x] > 6) + 2 * __popc(__ballot_sync(0xffffffff, x[threadIdx.x] > 0));
}

__device__ int on_the_circle(int n) {
    __shared__ double given[32];
    if (threadIdx.x < n) given[threadIdx.x] = threadIdx.x;
    __syncthreads();
    double s, c;
    sincos(given[threadIdx.x], &s, &c);
    return fabs(s * s + c * c - 1) < 1e-9;
}

extern "C" __global__ void angles(int *out, int n) {
    int found = on_the_circle(n);
    if (threadIdx.x < n) out[threadIdx.x] = found;
}

extern "C" __global__ void bug_angles(int *out, int n) {
    out[threadIdx.x] = on_the_circle(n);
}

// of global memory all lanes enter the functions for large arguments, which loop, index tables and keep local arrays
__device__ double of_unwritten(double *x, int n) {
    int t = threadIdx.x;
    if (t < n) x[n - 1 - t] = 1e6 * t;
    __syncthreads();
    double v = x[t], s, c;
    sincos(v, &s, &c);
    if (t >= n) x[t] = 0;
    return (sin(v) - s) + (cos(v) - c) + tgamma(v) * 0 + (tan(v) - tan(v)) + fmod(v, 3.0) * 0;
}

extern "C" __global__ void dropped(double *x, int *out, int n) {
    double found = of_unwritten(x, n);
    if (threadIdx.x < n) out[threadIdx.x] = found != found || fabs(found) < 1e-9;
}

extern "C" __global__ void bug_dropped(double *x, int *out, int n) {
    double found = of_unwritten(x, n);
    if (threadIdx.x <= n) out[threadIdx.x] = found != found || fabs(found) < 1e-9;
}

extern "C" __global__ void bug_flag_never_set(const volatile int *flag, int *out) {
    if (threadIdx.x == 0) {
        while (*flag == 0) {
        }
    }
    __syncthreads();
    out[threadIdx.x] = 1;
}

extern "C" __global__ void bug_lock_kept(int *lock, volatile int *out) {
    if (threadIdx.x) return;
    while (atomicCAS(lock, 0, 1)) {
    }
    __threadfence();
    *out = *out + 1;
}

extern "C" __global__ void bug_endless(int *out, int n) {
    int i = 0;
    while (i != n) {
        i += 2;
        if (i > 100) i = 0;
    }
    out[threadIdx.x] = i;
}

extern "C" __global__ void bug_unset_entry(int *out, int n) {
    int list[8];
    for (int i = 0; i < n; i++) list[(2 * i) & 7] = i;
    out[list[2 * (threadIdx.x & 3) + 1] & 31] = threadIdx.x;
}

extern "C" __global__ void bug_late_use(int *out) {
    int *p = (int *)malloc(16);
    p[0] = threadIdx.x;
    free(p);
    out[threadIdx.x] = p[0];
}
