/* kernbench's stand-in for libcuda.so.1: the driver API over the PTX emulator. One unit, so that names can be aliases. */
#define _GNU_SOURCE
#include "link.c"
#include "device.c"
#include "memory.c"
#include "modules.c"
#include "launch.c"
#include "streams.c"
#include "graphs.c"
#include "names.c"
#include "runtime.c"
#include "runtime_graphs.c"
#include "runtime_names.c"
#include "linked_in.c"
