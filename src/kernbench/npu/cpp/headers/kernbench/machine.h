// The one interface between a compiled kernel and the machine that executes its operations: records go out, and an
// answer comes back only where the program reads a value. What implements it is the host program that loads kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

extern "C" {
// which vector core of its cluster runs the kernel
int32_t kb_lane();
// number of a source location
uint32_t kb_site(const char *file, int line, const char *function);
// one operation; `payload` are its arguments, each with a tag
void kb_record(const char *name, uint32_t site, const void *payload, uint32_t size);
// the same, and the program waits for `wanted` bytes of answer
void kb_ask(const char *name, uint32_t site, const void *payload, uint32_t size, void *answer, uint32_t wanted);
}

// the location of a call, as the last parameters of every operation
#define KB_AT const char *kb_file = __builtin_FILE(), int kb_line = __builtin_LINE(), \
              const char *kb_function = __builtin_FUNCTION()
#define KB_HERE kb_site(kb_file, kb_line, kb_function)

namespace kb {

// numbers of element types, spaces and layouts, as the other side knows them
enum Element : uint8_t { F32, F16, I32, I16, I8, U8, BF16, I64, U64, U16, U32, B8, F8E4M3, E8M0, F4E2M1, F8E5M2, F4E1M2 };

struct TileWords {
    uint8_t tag, space, element, layout;
    int32_t rows, columns, valid_rows, valid_columns;
    uint32_t site;
    int64_t offset;
};

struct TensorWords {
    uint8_t tag, element, layout, unused[5];
    uint64_t address;
    int64_t shape[5], stride[5];
};

class Record {
  public:
    void put(const TileWords &tile) { bytes(&tile, sizeof tile); }
    void put(const TensorWords &tensor) { bytes(&tensor, sizeof tensor); }
    template <class T> void put(T value) {
        if constexpr (std::is_floating_point_v<T>) {
            tagged('F', static_cast<double>(value));
        } else if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) {
            tagged('I', static_cast<int64_t>(value));
        } else if constexpr (std::is_pointer_v<T>) {
            tagged('I', static_cast<int64_t>(reinterpret_cast<uintptr_t>(value)));
        } else {
            put(value.words());
        }
    }
    void send(const char *name, uint32_t site) const { kb_record(name, site, data_, size_); }
    template <class T> T ask(const char *name, uint32_t site) const {
        T answer{};
        kb_ask(name, site, data_, size_, &answer, sizeof answer);
        return answer;
    }

  private:
    void bytes(const void *from, uint32_t count) {
        if (size_ + count <= sizeof data_) {
            __builtin_memcpy(data_ + size_, from, count);
            size_ += count;
        }
    }
    template <class T> void tagged(char tag, T value) {
        char word[16] = {tag};
        __builtin_memcpy(word + 8, &value, 8);
        bytes(word, sizeof word);
    }
    char data_[1024];
    uint32_t size_ = 0;
};

template <class... Given> inline void operate(const char *name, uint32_t site, const Given &...given) {
    Record record;
    (record.put(given), ...);
    record.send(name, site);
}

template <class Answer, class... Given> inline Answer ask(const char *name, uint32_t site, const Given &...given) {
    Record record;
    (record.put(given), ...);
    return record.template ask<Answer>(name, site);
}

}  // namespace kb
