// Tensors as tasks are given them: an address, a shape, strides in elements, and where the first element lies.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

enum class DataType : uint8_t {
    FLOAT32, FLOAT16, INT32, INT16, INT8, UINT8, BFLOAT16, INT64, UINT64, UINT16, UINT32, BOOL, FP8E4M3FN, FP8E8M0,
    FP4E2M1, DATA_TYPE_NUM
};
enum class AddressSpace : uint8_t { HOST = 0, DEVICE = 1 };

inline uint64_t get_element_size(DataType type) {
    constexpr uint8_t sizes[] = {4, 2, 4, 2, 1, 1, 2, 8, 8, 2, 4, 1, 1, 1, 1};
    const auto number = static_cast<unsigned>(type);
    return number < sizeof sizes ? sizes[number] : 0;
}

inline const char *get_dtype_name(DataType type) {
    constexpr const char *names[] = {"FLOAT32", "FLOAT16", "INT32", "INT16", "INT8", "UINT8", "BFLOAT16", "INT64",
                                     "UINT64", "UINT16", "UINT32", "BOOL", "FP8E4M3FN", "FP8E8M0", "FP4E2M1"};
    const auto number = static_cast<unsigned>(type);
    return number < 15 ? names[number] : "UNKNOWN";
}

template <class T> inline uint64_t to_u64(T value) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> inline T from_u64(uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

constexpr int MAX_TENSOR_DIMS = 5;

struct PTO2TaskId {
    uint64_t raw;
    // the number of a task within its ring, and the ring above it; all ones are no task
    static constexpr uint64_t nobody = ~uint64_t{0};
    static constexpr PTO2TaskId make(uint8_t ring, uint32_t local) { return {uint64_t{ring} << 32 | local}; }
    static constexpr PTO2TaskId invalid() { return {nobody}; }
    constexpr uint32_t local() const { return uint32_t(raw); }
    constexpr uint8_t ring() const { return uint8_t(raw >> 32); }
    constexpr bool is_invalid() const { return raw == nobody; }
    constexpr bool is_valid() const { return !is_invalid(); }
    friend constexpr bool operator==(PTO2TaskId a, PTO2TaskId b) { return a.raw == b.raw; }
    friend constexpr bool operator!=(PTO2TaskId a, PTO2TaskId b) { return !(a == b); }
};

struct PTOBufferHandle {
    uint64_t addr;
    uint64_t size;
};

struct alignas(64) ChipTensor {
    PTOBufferHandle buffer;
    PTO2TaskId owner_task_id;
    uint64_t start_offset;
    int32_t version;
    uint32_t ndims;
    DataType dtype;
    bool manual_dep;
    bool is_contiguous;
    AddressSpace address_space;
    uint32_t shapes[MAX_TENSOR_DIMS];
    uint64_t extent_elem_cache;
    uint32_t strides[MAX_TENSOR_DIMS];

    uint64_t numel() const {
        uint64_t count = 1;
        for (uint32_t i = 0; i < ndims; ++i) count *= shapes[i];
        return count;
    }
    uint64_t extent_elem() const { return extent_elem_cache; }
    uint64_t nbytes() const { return numel() * get_element_size(dtype); }
    bool is_device_memory() const { return address_space == AddressSpace::DEVICE; }
    template <class T> T *data_as() const { return reinterpret_cast<T *>(static_cast<uintptr_t>(buffer.addr)); }
    uint64_t compute_flat_offset(const uint32_t indices[], uint32_t count) const {
        uint64_t at = start_offset;
        for (uint32_t i = 0; i < count; ++i) at += static_cast<uint64_t>(indices[i]) * strides[i];
        return at;
    }

    void kb_settle() {
        uint64_t expected = 1, reach = 1;
        bool empty = false;
        is_contiguous = true;
        for (uint32_t i = ndims; i-- > 0;) {
            is_contiguous = is_contiguous && strides[i] == expected;
            expected *= shapes[i];
            empty = empty || shapes[i] == 0;
            if (shapes[i]) reach += static_cast<uint64_t>(shapes[i] - 1) * strides[i];
        }
        extent_elem_cache = empty ? 0 : reach;
    }
    void init_external(void *address, uint64_t bytes, const uint32_t sizes[], uint32_t count, DataType type,
                       int32_t number, bool manual = false, AddressSpace space = AddressSpace::HOST) {
        buffer = {reinterpret_cast<uint64_t>(address), bytes};
        owner_task_id = PTO2TaskId::invalid();
        start_offset = 0, version = number, ndims = count, dtype = type, manual_dep = manual, address_space = space;
        uint32_t step = 1;
        for (uint32_t i = count; i-- > 0;) shapes[i] = sizes[i], strides[i] = step, step *= sizes[i];
        kb_settle();
    }
    void init_from(const ChipTensor &other) { *this = other; }
    void copy(const ChipTensor &other) { *this = other; }

    ChipTensor view(const uint32_t sizes[], const uint32_t offsets[], bool manual = false) const {
        ChipTensor found = *this;
        bool empty = false;
        for (uint32_t i = 0; i < ndims; ++i) empty = empty || sizes[i] == 0;
        for (uint32_t i = 0; i < ndims; ++i) {
            if (!empty) found.start_offset += static_cast<uint64_t>(offsets[i]) * strides[i];
            found.shapes[i] = sizes[i];
        }
        found.manual_dep = manual;
        found.kb_settle();
        return found;
    }
    ChipTensor transpose(uint32_t x, uint32_t y, bool manual = false) const {
        ChipTensor found = *this;
        found.shapes[x] = shapes[y], found.shapes[y] = shapes[x];
        found.strides[x] = strides[y], found.strides[y] = strides[x];
        found.manual_dep = manual;
        found.kb_settle();
        return found;
    }
    ChipTensor permute(const uint32_t order[], bool manual = false) const {
        ChipTensor found = *this;
        for (uint32_t i = 0; i < ndims; ++i) found.shapes[i] = shapes[order[i]], found.strides[i] = strides[order[i]];
        found.manual_dep = manual;
        found.kb_settle();
        return found;
    }
    ChipTensor slice(uint32_t axis, uint32_t start, uint32_t end, uint32_t step = 1, bool manual = false) const {
        ChipTensor found = *this;
        found.start_offset += static_cast<uint64_t>(start) * strides[axis];
        found.shapes[axis] = (end - start + step - 1) / step;
        found.strides[axis] = strides[axis] * step;
        found.manual_dep = manual;
        found.kb_settle();
        return found;
    }
    ChipTensor reshape(const uint32_t sizes[], uint32_t count, bool manual = false) const {
        ChipTensor found = *this;
        found.ndims = count;
        uint32_t step = 1;
        for (uint32_t i = count; i-- > 0;) found.shapes[i] = sizes[i], found.strides[i] = step, step *= sizes[i];
        found.manual_dep = manual;
        found.kb_settle();
        return found;
    }
    struct Text {
        const char *text;
        const char *c_str() const { return text; }
    };
    Text dump() const { return {get_dtype_name(dtype)}; }
};

static_assert(sizeof(ChipTensor) == 128 && std::is_trivially_copyable_v<ChipTensor>);

inline ChipTensor make_tensor_external(void *address, const uint32_t shapes[], uint32_t count,
                                       DataType type = DataType::FLOAT32, bool manual = false, int32_t version = 0,
                                       AddressSpace space = AddressSpace::HOST) {
    uint64_t bytes = get_element_size(type);
    for (uint32_t i = 0; i < count; ++i) bytes *= shapes[i];
    ChipTensor found;
    found.init_external(address, bytes, shapes, count, type, version, manual, space);
    return found;
}

inline ChipTensor make_tensor_strided(void *address, const uint32_t shapes[], const uint32_t strides[], uint32_t count,
                                      DataType type = DataType::FLOAT32, bool manual = false, int32_t version = 0,
                                      AddressSpace space = AddressSpace::HOST) {
    ChipTensor found = make_tensor_external(address, shapes, count, type, manual, version, space);
    for (uint32_t i = 0; i < count; ++i) found.strides[i] = strides[i];
    found.kb_settle();
    found.buffer.size = found.extent_elem_cache * get_element_size(type);
    return found;
}
