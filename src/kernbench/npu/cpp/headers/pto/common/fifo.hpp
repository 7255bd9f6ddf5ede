// FIFOs between the cores of a cluster: slots in device memory, filled by TSTORE and emptied by TLOAD, and two flags
// between cores for each direction, one for what was pushed and one for room. Room is signalled for half of the slots at
// a time. Everything here is made of operations that the machine has.
#pragma once

#include "pto/pto-inst.hpp"

namespace pto {

enum TileSplitAxis : uint8_t {
    TILE_NO_SPLIT, TILE_UP_DOWN, TILE_LEFT_RIGHT, TILE_UP_DOWN_ODD, TILE_LEFT_RIGHT_ODD
};
enum Direction : uint8_t {
    UNDEFINED = 0, DIR_C2V = 1, DIR_V2C = 2, DIR_BOTH = 3, DIR_V2C_CTRL = 4, DIR_C2V_GM = 5, DIR_V2C_GM = 6,
    DIR_BOTH_GM = 7
};

}  // namespace pto

namespace kb {

#if defined(__DAV_CUBE__)
constexpr bool on_cube = true;
#else
constexpr bool on_cube = false;
#endif
#if defined(PTO_NPU_ARCH_A5)
constexpr bool flags_reach_one = true;
#else
constexpr bool flags_reach_one = false;
#endif

// what one core knows of one end of a FIFO
struct End {
    uint32_t tile = 0, part = 0;
    int offset = 0;
    bool waits = true, signals = true;

    void setEntryOffset(int bytes) { offset = bytes; }
    void setTileId(int number, int part_number) { tile = static_cast<uint32_t>(number), part = part_number; }
    int getTileId() const { return static_cast<int>(tile); }
    int getSubTileId() const { return static_cast<int>(part); }
    void setAllocateStatus(bool wanted) { waits = wanted; }
    void setWaitStatus(bool wanted) { waits = wanted; }
    void setRecordStatus(bool wanted) { signals = wanted; }
    void setFreeStatus(bool wanted) { signals = wanted; }
};

// where a core's share of a message lies, in elements from the first, and how far its rows are apart
struct Share {
    int64_t first, stride;
};
template <pto::TileSplitAxis split> Share share(int64_t rows, int64_t columns, int lane) {
    if (split == pto::TILE_UP_DOWN) return {lane * rows * columns, columns};
    if (split == pto::TILE_LEFT_RIGHT) return {lane * columns, 2 * columns};
    // of an odd number the first lane has one more than the second
    if (split == pto::TILE_UP_DOWN_ODD) return {lane * (rows + 1) * columns, columns};
    if (split == pto::TILE_LEFT_RIGHT_ODD) return {lane * (columns + 1), 2 * columns + (lane ? 1 : -1)};
    return {0, columns};
}

struct Here {
    const char *file;
    int line;
    const char *function;
};

// A post or a wait between cores. On chips whose flags reach one core, the cube names each vector core that has a share.
inline void post(pipe_t pipe, int flag, bool both, const Here &at) {
    if constexpr (flags_reach_one) {
        set_intra_block(pipe, static_cast<uint8_t>(flag), at.file, at.line, at.function);
        if (on_cube && both) set_intra_block(pipe, static_cast<uint8_t>(flag + 16), at.file, at.line, at.function);
    } else {
        ffts_cross_core_sync(pipe, getFFTSMsg(2, static_cast<uint16_t>(flag)), at.file, at.line, at.function);
    }
}
inline void await(pipe_t pipe, int flag, bool both, const Here &at) {
    if constexpr (flags_reach_one) {
        wait_intra_block(pipe, static_cast<uint8_t>(flag), at.file, at.line, at.function);
        if (on_cube && both) wait_intra_block(pipe, static_cast<uint8_t>(flag + 16), at.file, at.line, at.function);
    } else {
        wait_flag_dev(flag, at.file, at.line, at.function);
    }
}

}  // namespace kb

namespace pto {

template <uint8_t Flag, uint8_t Way, uint32_t SlotBytes, uint32_t Slots, uint32_t LocalSlots = 2, bool NoSplit = false,
          bool UnitFlag = false>
struct TPipe {
    static constexpr bool to_vector = Way & DIR_C2V, to_cube = Way & DIR_V2C;
    static_assert(to_vector || to_cube, "FIFOs of control values are not offered");
    static_assert(!kb::flags_reach_one || (Way & 4),
                  "FIFOs that go from one core's memory into another's are not offered: use DIR_C2V_GM, DIR_V2C_GM");
    static_assert(Slots >= 1);
    static constexpr uint32_t period = Slots <= 2 ? Slots : Slots / 2;
    static constexpr bool is_producer = kb::on_cube ? to_vector : to_cube;
    static constexpr bool is_consumer = kb::on_cube ? to_cube : to_vector;
    // the way back has its own flags, and its slots lie behind the others
    static constexpr bool has_two = to_vector && to_cube;
    static constexpr int pushed = Flag + (has_two && !kb::on_cube ? 2 : 0);
    static constexpr int filled = Flag + (has_two && kb::on_cube ? 2 : 0);
    static constexpr pipe_t out = kb::on_cube ? PIPE_FIX : PIPE_MTE3;
    static constexpr pipe_t emptied = kb::on_cube && kb::flags_reach_one ? PIPE_MTE1 : PIPE_MTE2;

    void *slots;
    uint32_t in_vector, in_cube;
    kb::End prod, cons;
    kb::Here made;

    TPipe(void *memory, uint32_t vector_buffer, uint32_t cube_buffer, KB_AT)
        : slots(memory), in_vector(vector_buffer), in_cube(cube_buffer), made{kb_file, kb_line, kb_function} {
        if (has_two) (kb::on_cube ? cons : prod).offset = static_cast<int>(Slots * SlotBytes);
        if (kb::flags_reach_one && is_consumer)
            for (uint32_t i = 0; i < period; ++i) kb::post(emptied, filled + 1, !NoSplit, made);
    }
    TPipe(const TPipe &) = delete;
    // room that was signalled and not waited for is taken back, so that the flags are as they were before
    ~TPipe() {
        if (!is_producer) return;
        for (uint32_t left = kb::flags_reach_one ? period : unused(); left; --left)
            kb::await(out, pushed + 1, !NoSplit, made);
    }

    template <class T> T *slot(const kb::End &end, int64_t first) const {
        const uint64_t base = reinterpret_cast<uint64_t>(slots) + end.tile % Slots * SlotBytes;
        return reinterpret_cast<T *>(base + end.offset) + first;
    }
    // where a message is put in the consumer's own memory
    int64_t local_slot(uint32_t tile_bytes) const {
        const uint32_t step = kb::flags_reach_one ? tile_bytes : SlotBytes;
        return (kb::on_cube ? in_cube : in_vector) + cons.tile % LocalSlots * step;
    }
    bool must_wait() const { return prod.waits && prod.tile >= Slots && prod.tile % period == 0; }
    bool must_signal(uint32_t tile) const { return cons.signals && (tile + 1) % period == 0; }

  private:
    uint32_t unused() const {
        uint32_t waited = 0;
        for (uint32_t tile = Slots; tile < prod.tile; ++tile) waited += tile % period == 0;
        const uint32_t signalled = prod.tile / period;
        return signalled > waited ? signalled - waited : 0;
    }
};

template <class Element> using kb_Slot = GlobalTensor<Element, Shape<1, 1, 1, -1, -1>, Stride<1, 1, 1, -1, 1>>;

template <class Pipe, class Tile, TileSplitAxis split>
inline RecordEvent TPUSH(Pipe &pipe, Tile &tile, int lane, KB_AT) {
    using Element = typename Tile::DType;
    const kb::Here at{kb_file, kb_line, kb_function};
    const int64_t rows = tile.GetValidRow(), columns = tile.GetValidCol();
    if (pipe.must_wait()) kb::await(Pipe::out, Pipe::pushed + 1, split != TILE_NO_SPLIT, at);
    const kb::Share part = kb::on_cube ? kb::Share{0, columns} : kb::share<split>(rows, columns, lane);
    kb_Slot<Element> slot(pipe.template slot<Element>(pipe.prod, part.first), {rows, columns}, {part.stride});
    TSTORE(slot, tile, kb_file, kb_line, kb_function);
    ++pipe.prod.tile;
    if (pipe.prod.signals) kb::post(Pipe::out, Pipe::pushed, split != TILE_NO_SPLIT, at);
    return {};
}
template <class Pipe, class Tile, TileSplitAxis split> inline RecordEvent TPUSH(Pipe &pipe, Tile &tile, KB_AT) {
    return TPUSH<Pipe, Tile, split>(pipe, tile, static_cast<int>(get_subblockid()), kb_file, kb_line, kb_function);
}

template <class Pipe, class Tile, TileSplitAxis split>
inline RecordEvent TPOP(Pipe &pipe, Tile &tile, int lane, KB_AT) {
    using Element = typename Tile::DType;
    const kb::Here at{kb_file, kb_line, kb_function};
    const int64_t rows = tile.GetValidRow(), columns = tile.GetValidCol();
    if (pipe.cons.waits) kb::await(PIPE_MTE2, Pipe::filled, split != TILE_NO_SPLIT, at);
    const kb::Share part = kb::on_cube ? kb::Share{0, columns} : kb::share<split>(rows, columns, lane);
    kb_Slot<Element> slot(pipe.template slot<Element>(pipe.cons, part.first), {rows, columns}, {part.stride});
    TASSIGN(tile, pipe.local_slot(static_cast<uint32_t>(Tile::Numel * sizeof(Element))), kb_file, kb_line, kb_function);
    TLOAD(tile, slot, kb_file, kb_line, kb_function);
    if (pipe.must_signal(pipe.cons.tile)) kb::post(Pipe::emptied, Pipe::filled + 1, split != TILE_NO_SPLIT, at);
    ++pipe.cons.tile;
    return {};
}
template <class Pipe, class Tile, TileSplitAxis split> inline RecordEvent TPOP(Pipe &pipe, Tile &tile, KB_AT) {
    return TPOP<Pipe, Tile, split>(pipe, tile, static_cast<int>(get_subblockid()), kb_file, kb_line, kb_function);
}

// a message in memory is free for the next as soon as it was loaded
template <class Pipe, TileSplitAxis split> inline RecordEvent TFREE(Pipe &) { return {}; }

}  // namespace pto
