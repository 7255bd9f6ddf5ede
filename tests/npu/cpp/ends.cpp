// What people write, and how it goes wrong: kernels that do not return, copies of device memory, single elements.
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>
#include <pto/pto-inst.hpp>

#include "tensor.h"

using namespace pto;

#include "intrinsic.h"
#include "pipe_sync.h"

constexpr int R = 8, C = 64;
using Rows = GlobalTensor<float, Shape<1, 1, 1, R, C>, Stride<1, 1, 1, C, 1>>;
using Block = Tile<TileType::Vec, float, R, C, BLayout::RowMajor, -1, -1>;

template <class T> static T *first(int64_t *args, int position) {
    ChipTensor *tensor = reinterpret_cast<ChipTensor *>(args[position]);
    return reinterpret_cast<T *>(tensor->buffer.addr) + tensor->start_offset;
}

extern "C" void throws(int64_t *args) {
    throw std::runtime_error("no such page");  // thrown
}
extern "C" void throws_inside(int64_t *args) {
    std::vector<int> pages(3);
    volatile int page = pages.at(static_cast<size_t>(args[1] != 0) + 10);  // asks for too much
    (void)page;
}
extern "C" void exits(int64_t *args) {
    std::exit(0);  // leaves
}
extern "C" void aborts(int64_t *args) {
    std::abort();  // gives up
}
static int chosen(int64_t *args) {
    if (args[1] == 77) return 1;
}  // no value
extern "C" void returns_nothing(int64_t *args) {
    volatile int value = chosen(args);
    (void)value;
}
extern "C" void divides(int64_t *args) {
    volatile int zero = 0, value = 7 / zero;  // by zero
    (void)value;
}
static int deep(volatile int number) { return number + deep(number + 1) + 1; }  // without an end
extern "C" void recursion(int64_t *args) {
    volatile int value = deep(1);
    (void)value;
}
extern "C" void copies_from_nowhere(int64_t *args) {
    char *volatile nowhere = nullptr;
    float here[C];
    std::memcpy(here, nowhere + 64, sizeof here);  // from nowhere
    volatile float value = here[3];
    (void)value;
}
extern "C" void sorts_for_ever(int64_t *args) {
    std::vector<int> values(1 << 16);
    for (;;) std::sort(values.begin(), values.end());  // again
}

// a function of the standard library between device memory and the program's own
extern "C" void copies(int64_t *args) {
    float here[R * C];
    std::memcpy(here, first<float>(args, 0), sizeof here);
    std::copy(here, here + R * C, first<float>(args, 1));
    dcci(first<float>(args, 1), ENTIRE_DATA_CACHE);
}
extern "C" void copies_inside(int64_t *args) {
    std::memmove(first<float>(args, 1), first<float>(args, 0), R * C * sizeof(float));
    dcci(first<float>(args, 1), ENTIRE_DATA_CACHE);
}
extern "C" void fills(int64_t *args) {
    std::memset(first<float>(args, 1), 0, R * C * sizeof(float));
    dcci(first<float>(args, 1), ENTIRE_DATA_CACHE);
}
extern "C" void fills_and_keeps(int64_t *args) {
    std::memset(first<float>(args, 1), 0, R * C * sizeof(float));  // stays in the cache
}
extern "C" void copies_too_much(int64_t *args) {
    float here[C];
    std::memcpy(here, first<float>(args, 0) + R * C - 8, sizeof here);  // past the end
    std::memcpy(first<float>(args, 1), here, sizeof here);
    dcci(first<float>(args, 1), ENTIRE_DATA_CACHE);
}

template <bool ordered> static void one_element(int64_t *args, uint32_t element) {
    Rows source(first<float>(args, 0)), target(first<float>(args, 1));
    Block tile(R, C);
    TASSIGN(tile, 0x0);
    TLOAD(tile, source);
    set_flag(PIPE_MTE2, PIPE_S, EVENT_ID0);
    wait_flag(PIPE_MTE2, PIPE_S, EVENT_ID0);
    tile.SetValue(element, 42.0f);  // one element
    if (ordered) {
        set_flag(PIPE_S, PIPE_MTE3, EVENT_ID0);
        wait_flag(PIPE_S, PIPE_MTE3, EVENT_ID0);
    }
    TSTORE(target, tile);
    pipe_sync();
}
extern "C" void sets(int64_t *args) { one_element<true>(args, 3 * C + 5); }
extern "C" void sets_unordered(int64_t *args) { one_element<false>(args, 3 * C + 5); }
extern "C" void sets_outside(int64_t *args) { one_element<true>(args, R * C); }
