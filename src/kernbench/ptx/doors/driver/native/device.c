/* The one device, its contexts, and what the whole context has: limits, errors that stick, output of printf. */
#include "driver.h"

int broken;
static Context primary = {.magic = CONTEXT, .id = 1};
static int retained;
static _Thread_local Context *stack[64];
static _Thread_local int depth;

int ready(void) {
  if (!initialised()) return NOT_INITIALIZED;
  if (!current_context()) return INVALID_CONTEXT;
  return broken;
}

/* For Python in this process: the GPU is there again, for the next test or the next session. */
EXPORT void kernbench_restore(void) { broken = SUCCESS; }

Context *current_context(void) { return depth ? stack[depth - 1] : runtime_in_use ? &primary : NULL; }

/* The release of CUDA whose functions these are, or that of the program's compiler where it is newer: front ends warn of PTX that
 * a driver would be too old for, and what the emulator reads of it depends on no driver. */
EXPORT int cuDriverGetVersion(int *version) {
  enum { OWN = 13000 };
  REQUIRE(version, INVALID_VALUE);
  *version = newest_compiler() > OWN ? newest_compiler() : OWN;
  return SUCCESS;
}

EXPORT int cuDeviceGetCount(int *count) {
  REQUIRE(count, INVALID_VALUE);
  REQUIRE(initialised(), NOT_INITIALIZED);
  *count = 1;
  return SUCCESS;
}

static int known(int device) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  return device == 0 ? SUCCESS : INVALID_DEVICE;
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
  int problem = known(ordinal);
  REQUIRE(device, INVALID_VALUE);
  if (!problem) *device = 0;
  return problem;
}

EXPORT int cuDeviceGetName(char *name, int room, int device) {
  int problem = known(device);
  REQUIRE(name && room > 0, INVALID_VALUE);
  if (!problem) snprintf(name, (size_t)room, "%s", hello.data);
  return problem;
}

EXPORT int cuDeviceGetUuid_v2(void *uuid, int device) {
  int problem = known(device);
  REQUIRE(uuid, INVALID_VALUE);
  if (!problem) memcpy(uuid, "kernbench-gpu-00", 16);
  return problem;
}

EXPORT int cuDeviceGetPCIBusId(char *name, int room, int device) {
  int problem = known(device);
  REQUIRE(name && room > 12, INVALID_VALUE);
  if (!problem) strcpy(name, "0000:00:00.0");
  return problem;
}

EXPORT int cuDeviceGetByPCIBusId(int *device, const char *name) {
  REQUIRE(device && name, INVALID_VALUE);
  REQUIRE(initialised(), NOT_INITIALIZED);
  *device = 0;
  return strstr(name, "00:00.0") ? SUCCESS : INVALID_DEVICE;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  int problem = known(device);
  REQUIRE(bytes, INVALID_VALUE);
  if (!problem) *bytes = hello.words[0];
  return problem;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
  int problem = known(device);
  REQUIRE(value && attribute > 0, INVALID_VALUE);
  if (!problem) *value = attribute < ATTRIBUTES ? (int)hello.words[attribute] : 0;
  return problem;
}

EXPORT int cuDeviceComputeCapability(int *major, int *minor, int device) {
  int problem = cuDeviceGetAttribute(major, 75, device);
  return problem ? problem : cuDeviceGetAttribute(minor, 76, device);
}

EXPORT int cuDeviceGetProperties(int *properties, int device) {
  static const int order[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  int problem = known(device);
  REQUIRE(properties, INVALID_VALUE);
  for (int i = 0; !problem && i < 14; i++) properties[i] = (int)hello.words[order[i]];
  return problem;
}

EXPORT int cuDeviceGetExecAffinitySupport(int *value, int type, int device) {
  (void)type;
  REQUIRE(value, INVALID_VALUE);
  *value = 0;
  return known(device);
}

EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  (void)device;
  REQUIRE(can, INVALID_VALUE);
  *can = 0;
  return known(peer);
}

EXPORT int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
  (void)attribute, (void)from;
  REQUIRE(value, INVALID_VALUE);
  *value = 0;
  return known(to);
}

EXPORT int cuDevicePrimaryCtxRetain(Context **context, int device) {
  int problem = known(device);
  REQUIRE(context, INVALID_VALUE);
  if (problem) return problem;
  lock();
  retained++;
  unlock();
  *context = &primary;
  return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  int problem = known(device);
  if (problem) return problem;
  lock();
  int held = retained > 0 ? retained-- : 0;
  unlock();
  return held ? SUCCESS : INVALID_CONTEXT;
}

EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  primary.flags = flags;
  return known(device);
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  REQUIRE(flags && active, INVALID_VALUE);
  *flags = primary.flags;
  *active = retained > 0;
  return known(device);
}

EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
  int problem = known(device);
  if (problem) return problem;
  show_printf();
  broken = SUCCESS;
  reset_streams();
  return reset_memory();
}

static int create(Context **context, unsigned flags, int device) {
  int problem = known(device);
  REQUIRE(context, INVALID_VALUE);
  if (problem) return problem;
  REQUIRE(depth < 64, OUT_OF_MEMORY);
  Context *made = fresh(CONTEXT, sizeof *made);
  REQUIRE(made, OUT_OF_MEMORY);
  made->flags = flags;
  made->id = next_id() + 1;
  *context = stack[depth++] = made;
  return SUCCESS;
}

EXPORT int cuCtxCreate_v2(Context **context, unsigned flags, int device) { return create(context, flags, device); }

EXPORT int cuCtxCreate_v3(Context **context, void *affinity, int count, unsigned flags, int device) {
  (void)affinity, (void)count;
  return create(context, flags, device);
}

EXPORT int cuCtxCreate_v4(Context **context, void *parameters, unsigned flags, int device) {
  (void)parameters;
  return create(context, flags, device);
}

EXPORT int cuCtxDestroy_v2(Context *context) {
  REQUIRE(IS(context, CONTEXT) && context != &primary, INVALID_CONTEXT);
  show_printf();
  if (current_context() == context) depth--;
  context->magic = 0;
  return SUCCESS;
}

EXPORT int cuCtxPushCurrent_v2(Context *context) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(IS(context, CONTEXT), INVALID_CONTEXT);
  REQUIRE(depth < 64, OUT_OF_MEMORY);
  stack[depth++] = context;
  return SUCCESS;
}

EXPORT int cuCtxPopCurrent_v2(Context **context) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(current_context(), INVALID_CONTEXT);
  if (context) *context = current_context();
  if (depth) depth--;
  return SUCCESS;
}

EXPORT int cuCtxSetCurrent(Context *context) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(!context || IS(context, CONTEXT), INVALID_CONTEXT);
  if (depth) depth--;
  if (context) stack[depth++] = context;
  return SUCCESS;
}

EXPORT int cuCtxGetCurrent(Context **context) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(context, INVALID_VALUE);
  *context = current_context();
  return SUCCESS;
}

EXPORT int cuCtxGetDevice(int *device) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(device, INVALID_VALUE);
  *device = 0;
  return current_context() ? SUCCESS : INVALID_CONTEXT;
}

EXPORT int cuCtxGetDevice_v2(int *device, Context *context) {
  (void)context;
  return cuCtxGetDevice(device);
}

EXPORT int cuCtxGetFlags(unsigned *flags) {
  REQUIRE(flags, INVALID_VALUE);
  REQUIRE(current_context(), INVALID_CONTEXT);
  *flags = current_context()->flags;
  return SUCCESS;
}

EXPORT int cuCtxSetFlags(unsigned flags) {
  REQUIRE(current_context(), INVALID_CONTEXT);
  current_context()->flags = flags;
  return SUCCESS;
}

EXPORT int cuCtxGetId(Context *context, unsigned long long *id) {
  Context *asked = context ? context : current_context();
  REQUIRE(id, INVALID_VALUE);
  REQUIRE(IS(asked, CONTEXT), INVALID_CONTEXT);
  *id = asked->id;
  return SUCCESS;
}

EXPORT int cuCtxGetApiVersion(Context *context, unsigned *version) {
  (void)context;
  REQUIRE(version, INVALID_VALUE);
  *version = 3020;
  return SUCCESS;
}

EXPORT int cuCtxSynchronize(void) {
  READY();
  show_printf();
  return broken;
}

EXPORT int cuCtxSynchronize_v2(Context *context) {
  (void)context;
  return cuCtxSynchronize();
}

/* Limits, by number: stack, printf, heap, depth, launches, L2 granularity, persisting L2. */
static size_t limits[16] = {1024, 7 << 20, 8 << 20, 2, 2048, 128, 0};

EXPORT int cuCtxSetLimit(int limit, size_t value) {
  READY();
  REQUIRE(limit >= 0 && limit < 16, UNSUPPORTED_LIMIT);
  Reply reply;
  int status = ASK(&reply, REQUEST_LIMIT, NULL, 0, (uint64_t)limit, value);
  release(&reply);
  if (!status) limits[limit] = value;
  return status;
}

EXPORT int cuCtxGetLimit(size_t *value, int limit) {
  READY();
  REQUIRE(value && limit >= 0 && limit < 16, UNSUPPORTED_LIMIT);
  *value = limits[limit];
  return SUCCESS;
}

static int zero(int *value) {
  READY();
  REQUIRE(value, INVALID_VALUE);
  *value = 0;
  return SUCCESS;
}

EXPORT int cuCtxGetCacheConfig(int *value) { return zero(value); }
EXPORT int cuCtxGetSharedMemConfig(int *value) { return zero(value); }
EXPORT int cuCtxSetCacheConfig(int value) { return (void)value, ready(); }
EXPORT int cuCtxSetSharedMemConfig(int value) { return (void)value, ready(); }
EXPORT int cuCtxResetPersistingL2Cache(void) { return ready(); }
EXPORT int cuCtxEnablePeerAccess(Context *peer, unsigned flags) { return (void)peer, (void)flags, 217; }
EXPORT int cuCtxDisablePeerAccess(Context *peer) { return (void)peer, 705; }
EXPORT int cuProfilerStart(void) { return SUCCESS; }
EXPORT int cuProfilerStop(void) { return SUCCESS; }
EXPORT int cuFlushGPUDirectRDMAWrites(int target, int scope) { return (void)target, (void)scope, ready(); }

EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  READY();
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return SUCCESS;
}
