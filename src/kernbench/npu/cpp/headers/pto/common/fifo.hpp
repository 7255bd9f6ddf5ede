// FIFOs between the cores of a cluster: slots, and two flags between cores for each direction, one for what was pushed
// and one for room. Room is signalled for half of the slots at a time. Slots lie in device memory, filled by TSTORE and
// emptied by TLOAD; or, on chips whose flags reach one core, in the memory of the core that pops, which has the tile
// there until it frees it. Everything here is made of operations that the machine has.
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

// A tile in the memory of another core, by the numbers after those of the tile types: UB of the first and of the second
// vector core, L1 of the cube.
enum Reached : uint8_t { UB_OF_FIRST = 9, UB_OF_SECOND = 10, L1_OF_CUBE = 11 };
template <class Tile>
TileWords tile_there(Reached where, int rows, int columns, int valid_rows, int valid_columns, int64_t offset, uint32_t site) {
    const auto element = kb::element<typename Tile::DType>();
    return {'T', where, element, 0, rows, columns, valid_rows, valid_columns, site, offset};
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
    // slots are in the memory of the core that pops
    static constexpr bool is_direct = kb::flags_reach_one && !(Way & 4);
    static_assert(Slots >= 1);
    static constexpr uint32_t period = Slots <= 2 ? Slots : Slots / 2;
    static constexpr bool is_producer = kb::on_cube ? to_vector : to_cube;
    static constexpr bool is_consumer = kb::on_cube ? to_cube : to_vector;
    // the way back has its own flags, and its slots lie behind the others
    static constexpr bool has_two = to_vector && to_cube;
    static constexpr int pushed = Flag + (has_two && !kb::on_cube ? 2 : 0);
    static constexpr int filled = Flag + (has_two && kb::on_cube ? 2 : 0);
    static constexpr pipe_t out = kb::on_cube ? PIPE_FIX : PIPE_MTE3;
    static constexpr pipe_t taken = !is_direct ? PIPE_MTE2 : kb::on_cube ? PIPE_MTE1 : PIPE_V;
    static constexpr pipe_t emptied = kb::on_cube && kb::flags_reach_one ? PIPE_MTE1 : taken;

    void *slots;
    uint32_t in_vector, in_cube;
    kb::End prod, cons;
    kb::Here made;

    TPipe(void *memory, uint32_t vector_buffer, uint32_t cube_buffer, KB_AT)
        : slots(memory), in_vector(vector_buffer), in_cube(cube_buffer), made{kb_file, kb_line, kb_function} {
        if (has_two && !is_direct) (kb::on_cube ? cons : prod).offset = static_cast<int>(Slots * SlotBytes);
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
    // where a message lies in the memory of the core that pops it
    int64_t slot_there(const kb::End &end, bool cube) const {
        return (cube ? in_cube : in_vector) + end.tile % Slots * SlotBytes + end.offset;
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

// The cube gives each vector core its rows or columns; a vector core puts its rows after those of the one before it.
template <class Pipe, class Tile, TileSplitAxis split>
inline void kb_send(Pipe &pipe, Tile &tile, int lane, uint32_t site) {
    const int rows = tile.GetValidRow(), columns = tile.GetValidCol();
    const int64_t slot = pipe.slot_there(pipe.prod, !kb::on_cube);
    if constexpr (!kb::on_cube) {
        static_assert(split == TILE_NO_SPLIT || split == TILE_UP_DOWN, "vector cores share the rows of what they push");
        const int64_t first = split == TILE_NO_SPLIT ? 0 : int64_t(lane) * rows * Tile::Cols * sizeof(typename Tile::DType);
        const auto there = kb::tile_there<Tile>(kb::L1_OF_CUBE, Tile::Rows, Tile::Cols, rows, columns, slot + first, site);
        kb::operate("TSEND", site, there, tile, 0, 0);
    } else {
        static_assert(split <= TILE_LEFT_RIGHT, "the cube shares rows or columns evenly");
        constexpr int down = split == TILE_UP_DOWN ? 2 : 1, across = split == TILE_LEFT_RIGHT ? 2 : 1;
        for (int part = 0; part < down * across; ++part) {
            const auto where = part ? kb::UB_OF_SECOND : kb::UB_OF_FIRST;
            const auto there = kb::tile_there<Tile>(
                where, Tile::Rows / down, Tile::Cols / across, rows / down, columns / across, slot, site);
            const int row = down == 2 ? part * (rows / 2) : 0, column = across == 2 ? part * (columns / 2) : 0;
            kb::operate("TSEND", site, there, tile, row, column);
        }
    }
}

template <class Pipe, class Tile, TileSplitAxis split>
inline RecordEvent TPUSH(Pipe &pipe, Tile &tile, int lane, KB_AT) {
    using Element = typename Tile::DType;
    const kb::Here at{kb_file, kb_line, kb_function};
    const int64_t rows = tile.GetValidRow(), columns = tile.GetValidCol();
    if (pipe.must_wait()) kb::await(Pipe::out, Pipe::pushed + 1, split != TILE_NO_SPLIT, at);
    if constexpr (Pipe::is_direct) {
        kb_send<Pipe, Tile, split>(pipe, tile, lane, KB_HERE);
    } else {
        const kb::Share part = kb::on_cube ? kb::Share{0, columns} : kb::share<split>(rows, columns, lane);
        kb_Slot<Element> slot(pipe.template slot<Element>(pipe.prod, part.first), {rows, columns}, {part.stride});
        TSTORE(slot, tile, kb_file, kb_line, kb_function);
    }
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
    if (pipe.cons.waits) kb::await(Pipe::taken, Pipe::filled, split != TILE_NO_SPLIT, at);
    if constexpr (Pipe::is_direct) {
        TASSIGN(tile, pipe.slot_there(pipe.cons, kb::on_cube), kb_file, kb_line, kb_function);
        ++pipe.cons.tile;
        return {};
    }
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

// a message in device memory is free for the next as soon as it was loaded; one in the core's own memory when it says so
template <class Pipe, TileSplitAxis split> inline RecordEvent TFREE(Pipe &pipe, KB_AT) {
    if (Pipe::is_direct && pipe.must_signal(pipe.cons.tile - 1))
        kb::post(Pipe::emptied, Pipe::filled + 1, split != TILE_NO_SPLIT, {kb_file, kb_line, kb_function});
    return {};
}

}  // namespace pto
