// The 16-bit and narrower element types: enough arithmetic for the scalar code of kernels.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernbench/machine.h"

namespace kb {

inline float bits_to_float(uint32_t bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t float_to_bits(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}

inline uint16_t bfloat_from(float value) {
    uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline uint16_t half_from(float value) {
    const uint32_t bits = float_to_bits(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
        // a subnormal counts in steps of 2^-24; adding 0.5 lets the hardware round to such a step
        const float shifted = bits_to_float(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (float_to_bits(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float half_value(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return bits_to_float(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x400u) return bits_to_float(sign | ((magnitude << 13) + 0x38000000u));
    const float value = static_cast<float>(magnitude) * 5.9604644775390625e-08f;
    return sign ? -value : value;
}

}  // namespace kb

struct bfloat16_t {
    uint16_t bits;
    bfloat16_t() = default;
    template <class T> bfloat16_t(T value) : bits(kb::bfloat_from(static_cast<float>(value))) {}
    operator float() const { return kb::bits_to_float(static_cast<uint32_t>(bits) << 16); }
};

struct half {
    uint16_t bits;
    half() = default;
    template <class T> half(T value) : bits(kb::half_from(static_cast<float>(value))) {}
    operator float() const { return kb::half_value(bits); }
};

using float16_t = half;
using float32_t = float;
struct float8_e4m3_t { uint8_t bits; };
struct float8_e5m2_t { uint8_t bits; };
struct float8_e8m0_t { uint8_t bits; };
struct float4_e2m1x2_t { uint8_t bits; };
struct float4_e1m2x2_t { uint8_t bits; };
struct hifloat8_t { uint8_t bits; };

namespace kb {

template <class T> constexpr Element element() {
    using U = std::remove_cv_t<T>;
    static_assert(!std::is_same_v<U, hifloat8_t>, "hifloat8 is not offered");
    if constexpr (std::is_same_v<U, float>) return F32;
    else if constexpr (std::is_same_v<U, half>) return F16;
    else if constexpr (std::is_same_v<U, bfloat16_t>) return BF16;
    else if constexpr (std::is_same_v<U, float8_e4m3_t>) return F8E4M3;
    else if constexpr (std::is_same_v<U, float8_e5m2_t>) return F8E5M2;
    else if constexpr (std::is_same_v<U, float8_e8m0_t>) return E8M0;
    else if constexpr (std::is_same_v<U, float4_e2m1x2_t>) return F4E2M1;
    else if constexpr (std::is_same_v<U, float4_e1m2x2_t>) return F4E1M2;
    else if constexpr (std::is_same_v<U, bool>) return B8;
    else if constexpr (sizeof(U) == 1) return std::is_signed_v<U> ? I8 : U8;
    else if constexpr (sizeof(U) == 2) return std::is_signed_v<U> ? I16 : U16;
    else if constexpr (sizeof(U) == 4) return std::is_signed_v<U> ? I32 : U32;
    else return std::is_signed_v<U> ? I64 : U64;
}

}  // namespace kb
