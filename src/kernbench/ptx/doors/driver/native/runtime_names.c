/* The same functions under names that no program has, for the libraries that stand in for libcudart. */
#include "driver.h"

#define RUNTIME(name) extern __typeof__(name) kernbench_##name __attribute__((alias(#name), visibility("default")));
#define ABSENT(name) RUNTIME(name)
#include "runtime.def"
#undef ABSENT
#undef RUNTIME
