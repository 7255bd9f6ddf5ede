// The end of a kernel: the scalar unit waits until what was stored is in memory.
#pragma once

static inline void pipe_sync(KB_AT) {
#if defined(__DAV_CUBE__)
    set_flag(PIPE_FIX, PIPE_S, 7, kb_file, kb_line, kb_function);
    wait_flag(PIPE_FIX, PIPE_S, 7, kb_file, kb_line, kb_function);
#else
    set_flag(PIPE_MTE3, PIPE_S, 7, kb_file, kb_line, kb_function);
    wait_flag(PIPE_MTE3, PIPE_S, 7, kb_file, kb_line, kb_function);
#endif
}
