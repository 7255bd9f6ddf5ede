// The orchestrator's own cache: it reads memory here.
#pragma once
#include <cstddef>
inline void cache_invalidate_range(const void *, size_t) {}
inline void cache_flush_range(const void *, size_t) {}
inline void cache_clean_range(const void *, size_t) {}
#ifndef SPIN_WAIT_HINT
#define SPIN_WAIT_HINT() ((void)0)
#endif
