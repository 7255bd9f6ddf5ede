/* Functions of the runtime that few programs use: descriptions of formats, older names, and those that are not emulated. */
#include "driver.h"

typedef struct {
  int x, y, z, w, kind;
} ChannelFormat;

EXPORT ChannelFormat cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return (ChannelFormat){x, y, z, w, kind}; }

EXPORT int cudaGraphEventRecordNodeGetEvent(Node *node, Event **event) { RUN(cuGraphEventRecordNodeGetEvent(node, event)); }
EXPORT int cudaGraphEventRecordNodeSetEvent(Node *node, Event *event) { RUN(cuGraphEventRecordNodeSetEvent(node, event)); }
EXPORT int cudaGraphEventWaitNodeGetEvent(Node *node, Event **event) { RUN(cuGraphEventWaitNodeGetEvent(node, event)); }
EXPORT int cudaGraphEventWaitNodeSetEvent(Node *node, Event *event) { RUN(cuGraphEventWaitNodeSetEvent(node, event)); }
EXPORT int cudaGraphExecEventRecordNodeSetEvent(Executable *executable, Node *node, Event *event) { RUN(cuGraphExecEventRecordNodeSetEvent(executable, node, event)); }
EXPORT int cudaGraphExecEventWaitNodeSetEvent(Executable *executable, Node *node, Event *event) { RUN(cuGraphExecEventWaitNodeSetEvent(executable, node, event)); }
EXPORT int cudaDeviceGraphMemTrim(int device) { RUN(cuDeviceGraphMemTrim(device)); }

/* Before version 13 there was a place for the number of the copy that failed, before the stream. */
EXPORT int cudaMemcpyBatchAsync(const Address *dst, const Address *src, const size_t *bytes, size_t count, void *attributes, size_t *which, size_t kinds, void *last, void *stream) {
  if (major() >= 13) RUN(cuMemcpyBatchAsync_v2(dst, src, bytes, count, attributes, which, kinds, last));
  RUN(cuMemcpyBatchAsync(dst, src, bytes, count, attributes, which, kinds, last, stream));
}

EXPORT int cudaMemcpy3DBatchAsync(size_t count, const void *list, size_t *failed, uint64_t flags, void *stream) {
  if (major() >= 13) RUN(cuMemcpy3DBatchAsync_v2(count, list, (uint64_t)failed, (void *)flags));
  RUN(cuMemcpy3DBatchAsync(count, list, failed, flags, stream));
}

EXPORT int cudaMemPrefetchBatchAsync(const Address *places, const size_t *bytes, size_t count, const int *locations, const size_t *which, size_t kinds, uint64_t flags, void *stream) { RUN(cuMemPrefetchBatchAsync(places, bytes, count, locations, which, kinds, flags, stream)); }
EXPORT int cudaMemDiscardBatchAsync(const Address *places, const size_t *bytes, size_t count, uint64_t flags, void *stream) { RUN(cuMemDiscardBatchAsync(places, bytes, count, flags, stream)); }
EXPORT int cudaMemDiscardAndPrefetchBatchAsync(const Address *places, const size_t *bytes, size_t count, const int *locations, const size_t *which, size_t kinds, uint64_t flags, void *stream) { RUN(cuMemDiscardAndPrefetchBatchAsync(places, bytes, count, locations, which, kinds, flags, stream)); }

/* Names of version 12 for what version 13 has under the plain ones. */
EXPORT int cudaEventElapsedTime_v2(float *milliseconds, Event *from, Event *to) { return cudaEventElapsedTime(milliseconds, from, to); }
EXPORT int cudaMemAdvise_v2(Address address, size_t bytes, int advice, uint64_t location) { return cudaMemAdvise(address, bytes, advice, location); }
EXPORT int cudaMemPrefetchAsync_v2(Address address, size_t bytes, uint64_t location, unsigned flags, void *stream) { return cudaMemPrefetchAsync(address, bytes, location, flags, stream); }
EXPORT int cudaStreamGetCaptureInfo_v3(void *stream, int *status, uint64_t *id, Graph **graph, Node *const **before, const void **edges, size_t *count) { return cudaStreamGetCaptureInfo(stream, status, id, graph, before, edges, count); }
EXPORT int cudaThreadExit(void) { return cudaDeviceReset(); }
EXPORT int cudaThreadGetCacheConfig(int *config) { return cudaDeviceGetCacheConfig(config); }
EXPORT int cudaThreadSetCacheConfig(int config) { return cudaDeviceSetCacheConfig(config); }
EXPORT int cudaThreadGetLimit(size_t *value, int limit) { return cudaDeviceGetLimit(value, limit); }
EXPORT int cudaThreadSetLimit(int limit, size_t value) { return cudaDeviceSetLimit(limit, value); }

static int absent(const char *name, int *said) {
  if (!(*said)++) complain("%s is not emulated; it returns cudaErrorNotSupported%s", name, instead_of(name));
  return keep(NOT_SUPPORTED);
}

#define RUNTIME(name)
#define ABSENT(name)             \
  EXPORT int name(void) {        \
    static int said;             \
    return absent(#name, &said); \
  }
#include "runtime.def"
#undef RUNTIME
#undef ABSENT
