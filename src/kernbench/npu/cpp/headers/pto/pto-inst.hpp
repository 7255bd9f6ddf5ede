// The tile operations by their names. Each becomes one record with its operands and the line that calls it; what it
// computes, on which pipe, in which order and for how long is the machine's.
#pragma once

#include "pto/common/pto_tile.hpp"

namespace pto {

#define KB_OPERATION_2(NAME)                                                                                        \
    template <class A, class B> inline RecordEvent NAME(A &&a, B &&b, KB_AT) {                                      \
        kb::operate(#NAME, KB_HERE, a, b);                                                                          \
        return {};                                                                                                  \
    }
#define KB_OPERATION_3(NAME)                                                                                        \
    template <class A, class B, class C> inline RecordEvent NAME(A &&a, B &&b, C &&c, KB_AT) {                      \
        kb::operate(#NAME, KB_HERE, a, b, c);                                                                       \
        return {};                                                                                                  \
    }
#define KB_OPERATION_4(NAME)                                                                                        \
    template <class A, class B, class C, class D> inline RecordEvent NAME(A &&a, B &&b, C &&c, D &&d, KB_AT) {      \
        kb::operate(#NAME, KB_HERE, a, b, c, d);                                                                    \
        return {};                                                                                                  \
    }
#define KB_OPERATION_5(NAME)                                                                                        \
    template <class A, class B, class C, class D, class E>                                                          \
    inline RecordEvent NAME(A &&a, B &&b, C &&c, D &&d, E &&e, KB_AT) {                                             \
        kb::operate(#NAME, KB_HERE, a, b, c, d, e);                                                                 \
        return {};                                                                                                  \
    }

// Elementwise, of two tiles (some take a scratch tile last), and of a tile and a number
KB_OPERATION_3(TADD) KB_OPERATION_3(TSUB) KB_OPERATION_3(TMUL) KB_OPERATION_3(TDIV) KB_OPERATION_3(TMAX)
KB_OPERATION_3(TMIN) KB_OPERATION_3(TAND) KB_OPERATION_3(TOR) KB_OPERATION_3(TXOR) KB_OPERATION_4(TXOR)
KB_OPERATION_3(TSHL) KB_OPERATION_3(TSHR) KB_OPERATION_3(TREM) KB_OPERATION_4(TREM)
KB_OPERATION_3(TADDS) KB_OPERATION_3(TSUBS) KB_OPERATION_3(TMULS) KB_OPERATION_3(TDIVS) KB_OPERATION_3(TMAXS)
KB_OPERATION_3(TMINS) KB_OPERATION_3(TAXPY)
KB_OPERATION_2(TEXP) KB_OPERATION_2(TLOG) KB_OPERATION_2(TSQRT) KB_OPERATION_2(TRSQRT) KB_OPERATION_3(TRSQRT)
KB_OPERATION_2(TRECIP) KB_OPERATION_2(TABS) KB_OPERATION_2(TNEG) KB_OPERATION_2(TRELU) KB_OPERATION_2(TNOT)
// Rows and columns
KB_OPERATION_2(TROWSUM) KB_OPERATION_3(TROWSUM) KB_OPERATION_2(TROWMAX) KB_OPERATION_3(TROWMAX)
KB_OPERATION_2(TROWMIN) KB_OPERATION_3(TROWMIN) KB_OPERATION_3(TROWPROD)
KB_OPERATION_2(TCOLSUM) KB_OPERATION_4(TCOLSUM) KB_OPERATION_2(TCOLMAX) KB_OPERATION_2(TCOLMIN)
KB_OPERATION_2(TCOLPROD)
KB_OPERATION_2(TROWEXPAND) KB_OPERATION_2(TCOLEXPAND)
KB_OPERATION_3(TROWEXPANDADD) KB_OPERATION_3(TROWEXPANDSUB) KB_OPERATION_3(TROWEXPANDMUL)
KB_OPERATION_3(TROWEXPANDDIV) KB_OPERATION_3(TROWEXPANDMAX) KB_OPERATION_3(TROWEXPANDMIN)
KB_OPERATION_4(TROWEXPANDADD) KB_OPERATION_4(TROWEXPANDSUB) KB_OPERATION_4(TROWEXPANDMUL)
KB_OPERATION_4(TROWEXPANDDIV)
KB_OPERATION_3(TCOLEXPANDADD) KB_OPERATION_3(TCOLEXPANDSUB) KB_OPERATION_3(TCOLEXPANDMUL)
KB_OPERATION_3(TCOLEXPANDDIV) KB_OPERATION_3(TCOLEXPANDMAX) KB_OPERATION_3(TCOLEXPANDMIN)
KB_OPERATION_3(TCOLEXPANDEXPDIF) KB_OPERATION_3(TROWEXPANDEXPDIF)
// Conversion, comparison, choice, fill, rearranging
KB_OPERATION_3(TCVT) KB_OPERATION_4(TCVT) KB_OPERATION_4(TCMP) KB_OPERATION_4(TCMPS)
KB_OPERATION_4(TSEL) KB_OPERATION_5(TSEL) KB_OPERATION_2(TEXPANDS)
KB_OPERATION_2(TTRANS) KB_OPERATION_3(TTRANS)
KB_OPERATION_3(TGATHER) KB_OPERATION_4(TGATHER) KB_OPERATION_3(TGATHERB)
KB_OPERATION_3(TCONCAT) KB_OPERATION_5(TCONCAT)
KB_OPERATION_3(TSORT32) KB_OPERATION_4(TSORT32) KB_OPERATION_3(TMRGSORT)
// The cube
KB_OPERATION_3(TMATMUL) KB_OPERATION_3(TMATMUL_ACC) KB_OPERATION_4(TMATMUL_ACC) KB_OPERATION_4(TMATMUL_BIAS)
// Moves
KB_OPERATION_2(TMOV) KB_OPERATION_4(TEXTRACT) KB_OPERATION_4(TINSERT)
// which of the types of four bits the operands are, tiles do not say
template <class C, class A, class AScale, class B, class BScale>
inline RecordEvent TMATMUL_MX(C &&c, A &&a, AScale &&a_scale, B &&b, BScale &&b_scale, KB_AT) {
    using Left = typename std::remove_reference_t<A>::DType;
    using Right = typename std::remove_reference_t<B>::DType;
    kb::operate("TMATMUL_MX", KB_HERE, c, a, a_scale, b, b_scale, kb::element<Left>(), kb::element<Right>());
    return {};
}
template <AccPhase, class A, class B, class C> inline RecordEvent TMATMUL(A &&a, B &&b, C &&c, KB_AT) {
    kb::operate("TMATMUL", KB_HERE, a, b, c);
    return {};
}
template <AccPhase, class A, class B, class C> inline RecordEvent TMATMUL_ACC(A &&a, B &&b, C &&c, KB_AT) {
    kb::operate("TMATMUL_ACC", KB_HERE, a, b, c);
    return {};
}

template <class Tile, class Address> inline void TASSIGN(Tile &&tile, Address address, KB_AT) {
    if constexpr (std::is_pointer_v<Address>) tile.SetAddr(reinterpret_cast<uint64_t>(address));
    else tile.kb_place(static_cast<int64_t>(address), KB_HERE);
}

// another view of the same bytes
template <class A, class B> inline RecordEvent TRESHAPE(A &&dst, B &&src, KB_AT) {
    dst.kb_place(static_cast<int64_t>(src.data()), src.kb_placed_at());
    return {};
}

template <class Tile, class Tensor> inline RecordEvent TLOAD(Tile &&tile, Tensor &&tensor, KB_AT) {
    kb::operate("TLOAD", KB_HERE, tile, tensor);
    return {};
}

// the same with the types of its operands named
template <class Tile, class Tensor> inline RecordEvent TLOAD(Tile &tile, Tensor &tensor, KB_AT) {
    kb::operate("TLOAD", KB_HERE, tile, tensor);
    return {};
}

template <class Tensor, class Tile> inline RecordEvent TSTORE(Tensor &&tensor, Tile &&tile, KB_AT) {
    kb::operate("TSTORE", KB_HERE, tensor, tile);
    return {};
}
template <class Tile, class Tensor, AtomicType atomic> inline RecordEvent TSTORE(Tensor &&tensor, Tile &&tile, KB_AT) {
    kb::operate(atomic == AtomicType::AtomicAdd ? "TSTORE_ADD" : "TSTORE", KB_HERE, tensor, tile);
    return {};
}
template <STPhase, class Tensor, class Tile> inline RecordEvent TSTORE(Tensor &&tensor, Tile &&tile, KB_AT) {
    kb::operate("TSTORE", KB_HERE, tensor, tile);
    return {};
}

template <class Tile> constexpr double kb_pad() {
    constexpr auto pad = Tile::PadVal;
    using T = typename Tile::DType;
    if (static_cast<uint64_t>(pad) >= static_cast<uint64_t>(PadValue::CustomBase))
        return kb::bits_to_float(static_cast<uint32_t>(static_cast<uint64_t>(pad)));
    if (pad == PadValue::Zero || pad == PadValue::Null) return 0;
    if constexpr (std::is_integral_v<T>)
        return static_cast<double>(pad == PadValue::Max ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min());
    else
        return pad == PadValue::Max ? __builtin_inf() : -__builtin_inf();
}
template <class Dst, class Src> inline void kb_fill(const char *name, uint32_t site, const Dst &dst, const Src &src) {
    kb::operate(name, site, dst, src, kb_pad<Dst>(), static_cast<int>(Dst::PadVal != PadValue::Null));
}
template <class Dst, class Src> inline RecordEvent TFILLPAD(Dst &dst, Src &src, KB_AT) {
    kb_fill("TFILLPAD", KB_HERE, dst, src);
    return {};
}
template <class Dst, class Src> inline RecordEvent TFILLPAD_INPLACE(Dst &dst, Src &src, KB_AT) {
    kb_fill("TFILLPAD", KB_HERE, dst, src);
    return {};
}
template <class Dst, class Src> inline RecordEvent TFILLPAD_EXPAND(Dst &dst, Src &src, KB_AT) {
    kb_fill("TFILLPAD", KB_HERE, dst, src);
    return {};
}
template <Coalesce mode, ScatterAtomicOp atomic = ScatterAtomicOp::None, ScatterOOB outside = ScatterOOB::Undefined,
          ScatterConflict conflict = ScatterConflict::Last, class Tensor, class Src, class Index>
inline RecordEvent MSCATTER(Tensor &&tensor, Src &&src, Index &&index, KB_AT) {
    static_assert(atomic == ScatterAtomicOp::None || atomic == ScatterAtomicOp::Add, "scatters store or add");
    static_assert(conflict == ScatterConflict::Last, "of several elements for one place the last one stays");
    kb::operate("MSCATTER", KB_HERE, tensor, src, index, mode, atomic, outside);
    return {};
}
template <class Tensor, class Src, class Index>
inline RecordEvent MSCATTER(Tensor &&tensor, Src &&src, Index &&index, KB_AT) {
    kb::operate("MSCATTER", KB_HERE, tensor, src, index, Coalesce::Row, ScatterAtomicOp::None, ScatterOOB::Undefined);
    return {};
}
template <class Dst, MaskPattern pattern, class Src> inline RecordEvent TGATHER(Dst &&dst, Src &&src, KB_AT) {
    kb::operate("TGATHER_MASK", KB_HERE, dst, src, pattern);
    return {};
}
template <class Dst, class Src, MaskPattern pattern> inline RecordEvent TGATHER(Dst &&dst, Src &&src, KB_AT) {
    kb::operate("TGATHER_MASK", KB_HERE, dst, src, pattern);
    return {};
}
template <class Tile, class T, int descending = 0> inline RecordEvent TCI(Tile &&tile, T first, KB_AT) {
    kb::operate("TCI", KB_HERE, tile, first, descending);
    return {};
}

}  // namespace pto

// Order between pipes, and what is not an operation on tiles

inline void set_flag(pipe_t source, pipe_t target, int event, KB_AT) {
    kb::operate("set_flag", KB_HERE, source, target, event);
}
inline void wait_flag(pipe_t source, pipe_t target, int event, KB_AT) {
    kb::operate("wait_flag", KB_HERE, source, target, event);
}
inline void pipe_barrier(pipe_t pipe, KB_AT) { kb::operate("pipe_barrier", KB_HERE, pipe); }

// how much and where to may be given as numbers, which some kernels define themselves
template <class T, class Lines> inline void dcci(T *address, Lines lines, KB_AT) {
    kb::operate("dcci", KB_HERE, address, static_cast<int>(lines));
}
template <class T, class Lines, class Where, class = std::enable_if_t<!std::is_pointer_v<Where>>>
inline void dcci(T *address, Lines lines, Where, KB_AT) {
    kb::operate("dcci", KB_HERE, address, static_cast<int>(lines));
}
// Single values past the cache. What is stored so is a notification, and what is loaded so a look at one: a loop that
// loads until a value comes waits for it.
inline uint32_t ld_dev(uint32_t *address, int offset, KB_AT) {
    return kb::ask<uint32_t>("ld_dev", KB_HERE, reinterpret_cast<char *>(address) + offset);
}
inline void st_dev(uint32_t value, uint32_t *address, int offset, KB_AT) {
    kb::operate("st_dev", KB_HERE, reinterpret_cast<char *>(address) + offset, static_cast<int32_t>(value), 0);
}
// atomic sums of i32 are offered
enum kb_atomic_type : int { ATOMIC_NONE = 0, ATOMIC_S32 = 1 };
enum kb_atomic_op : int { ATOMIC_SUM = 0 };
inline void set_st_atomic_cfg(kb_atomic_type, kb_atomic_op) {}
template <class T> inline void st_atomic(T value, T *address, KB_AT) {
    static_assert(std::is_same_v<T, int32_t>, "atomic sums of 32-bit integers are offered");
    kb::operate("st_dev", KB_HERE, address, value, 1);
}
// the scalar unit waits until its own accesses to memory are done: it does so here at each of them
template <class T> inline void dsb(T) {}

// a clock that counts how often it is asked: there is no time while a program runs
inline uint64_t get_sys_cnt() {
    static uint64_t asked = 0;
    return ++asked;
}
inline void set_mask_norm() {}
inline void set_mask_count() {}
inline void set_vector_mask(uint64_t, uint64_t) {}
inline void set_ctrl(uint64_t) {}
inline uint64_t get_ctrl() { return 0; }
inline void set_atomic_none() {}

inline void ffts_cross_core_sync(pipe_t pipe, uint64_t config, KB_AT) {
    kb::operate("ffts_cross_core_sync", KB_HERE, pipe, config);
}
inline uint16_t getFFTSMsg(uint16_t mode, uint16_t flag, uint16_t base = 1) {
    return static_cast<uint16_t>((base & 0xf) | ((mode & 3) << 4) | ((flag & 0xf) << 8));
}
inline void wait_flag_dev(int64_t flag, KB_AT) { kb::operate("wait_flag_dev", KB_HERE, flag); }
inline void set_ffts_base_addr(uint64_t) {}
inline void set_intra_block(pipe_t pipe, uint8_t flag, KB_AT) { kb::operate("set_intra_block", KB_HERE, pipe, flag); }
inline void wait_intra_block(pipe_t pipe, uint8_t flag, KB_AT) { kb::operate("wait_intra_block", KB_HERE, pipe, flag); }
// Which vector core of a cluster this is, by the chip's own register. On a2a3 it is 0 on both, since the runtime starts them
// one by one: kernels are given the number among their arguments. Some put that in its place.
#ifndef get_subblockid
inline int64_t get_subblockid() {
#ifdef PTO_NPU_ARCH_A5
    return kb_lane();
#else
    return 0;
#endif
}
#endif

// A prefetch moves memory nearer and changes no value: nothing happens here
namespace pto {
namespace comm {
struct AsyncSession {};
struct AsyncEvent {
    bool Wait(const AsyncSession &) const { return true; }
};
}  // namespace comm
struct PrefetchAsyncContext {
    comm::AsyncSession session;
    explicit PrefetchAsyncContext(const void *) {}
};
template <class Tensor> inline comm::AsyncEvent TPREFETCH_ASYNC(Tensor &&, PrefetchAsyncContext &) { return {}; }
}  // namespace pto

#include "pto/common/fifo.hpp"
