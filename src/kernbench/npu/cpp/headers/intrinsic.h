// Which part of a task's work a kernel does: read from the tail of its arguments.
#pragma once

#include <cstdint>

static constexpr int32_t SPMD_LOCAL_CONTEXT_INDEX = 48, SPMD_GLOBAL_CONTEXT_INDEX = 49;
static constexpr int32_t PAYLOAD_LOCAL_CONTEXT_INDEX = 48, PAYLOAD_GLOBAL_CONTEXT_INDEX = 49;

struct GlobalContext {
    int32_t sub_block_id;
};
struct LocalContext {
    int32_t block_idx;
    int32_t block_num;
};

static inline int32_t get_sub_block_id(int64_t *args) {
    return reinterpret_cast<GlobalContext *>(args[SPMD_GLOBAL_CONTEXT_INDEX])->sub_block_id;
}
static inline int32_t get_block_idx(int64_t *args) {
    return reinterpret_cast<LocalContext *>(args[SPMD_LOCAL_CONTEXT_INDEX])->block_idx;
}
static inline int32_t get_block_num(int64_t *args) {
    return reinterpret_cast<LocalContext *>(args[SPMD_LOCAL_CONTEXT_INDEX])->block_num;
}

// memory of the engines that move data beside the cores: there, and empty
enum DmaWorkspaceKind : int { DMA_WORKSPACE_SDMA = 0, DMA_WORKSPACE_URMA = 1 };
static inline uint8_t *get_dma_workspace(int64_t *, DmaWorkspaceKind) {
    static uint8_t workspace[64];
    return workspace;
}
