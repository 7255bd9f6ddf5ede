// Loads that begin a compare-and-swap, through calls, references and structures; those named bug_ let the value out.
#include <cuda_bf16.h>

__device__ unsigned add(unsigned *at, unsigned expected, float v) {
    return atomicCAS(at, expected, __float_as_uint(__uint_as_float(expected) + v));
}

__device__ bool attempt(unsigned *at, unsigned &expected, float v) {
    unsigned found = add(at, expected, v);
    bool same = found == expected;
    expected = found;
    return same;
}

struct Cell {
    unsigned *at, seen;
    __device__ Cell(unsigned *p) : at(p), seen(*p) {}
    __device__ void plus(float v) {
        unsigned expected;
        do {
            expected = seen;
            seen = add(at, expected, v);
        } while (seen != expected);
    }
};

extern "C" __global__ void pairs(float *p) { atomicAdd((__nv_bfloat162 *)p, __floats2bfloat162_rn(1.f, 2.f)); }

extern "C" __global__ void halves(float *p) { atomicAdd((__nv_bfloat16 *)p, __float2bfloat16(1.f)); }

extern "C" __global__ void doubles(float *p) {
    auto at = (unsigned long long *)p + (threadIdx.x & 1);
    unsigned long long old = *at, expected;
    do {
        expected = old;
        old = atomicCAS(at, expected, __double_as_longlong(1. + __longlong_as_double(expected)));
    } while (old != expected);
}

extern "C" __global__ void largest(float *p) {
    int old = *(int *)p;
    float v = threadIdx.x;
    while (__int_as_float(old) < v) {
        int expected = old;
        old = atomicCAS((int *)p, expected, __float_as_int(v));
        if (old == expected) break;
    }
}

extern "C" __global__ void by_reference(float *p) {
    unsigned old = *(unsigned *)p;
    while (!attempt((unsigned *)p, old, 1.f)) {}
}

extern "C" __global__ void cells(float *p) {
    for (int i = threadIdx.x & 3; i < 6; i += 2) {
        Cell cell((unsigned *)p + i);
        cell.plus(1.f);
    }
}

extern "C" __global__ void bug_elsewhere(float *p) {
    unsigned *at = (unsigned *)p + (threadIdx.x & 1), *other = (unsigned *)p + (~threadIdx.x & 1);
    unsigned old = *at, expected;
    do {
        expected = old;
        old = add(other, expected, 1.f);
    } while (old != expected);
}

extern "C" __global__ void bug_crossed(float *p) {
    unsigned seen[2], expected;
    for (int i = 0; i < 2; i++) seen[i] = ((unsigned *)p)[i];
    for (int i = 0; i < 2; i++) {
        unsigned old = seen[1 - i];
        do {
            expected = old;
            old = add((unsigned *)p + i, expected, 1.f);
        } while (old != expected);
    }
}

extern "C" __global__ void bug_stored(float *p) {
    unsigned old = *(unsigned *)p;
    p[8 + threadIdx.x] = __uint_as_float(old);
    while (!attempt((unsigned *)p, old, 1.f)) {}
}

extern "C" __global__ void bug_after_failing(float *p) {
    unsigned old = *(unsigned *)p, expected;
    while (true) {
        expected = old;
        old = add((unsigned *)p, expected, 1.f);
        if (old == expected) break;
        p[8 + threadIdx.x] = __uint_as_float(expected);
    }
}

extern "C" __global__ void bug_plain_store(float *p) {
    unsigned old = *(unsigned *)p, expected;
    do {
        expected = old;
        old = *(unsigned *)p;
        if (old == expected) *p = 1.f + __uint_as_float(expected);
    } while (old != expected);
}
