/* Many copies, prefetches or writes in one call. Their order, where memory is to lie and what hints say change no result here. */
#include "driver.h"

enum { OPERAND_POINTER = 1, OPERAND_ARRAY = 2 };

/* The order in which sources are read is one of three, and a hint to overlap with kernels is the only flag. */
static int is_access(int order, unsigned flags) { return order >= 1 && order <= 3 && flags <= 1; }

/* Batches are refused on the default stream, but for that of the thread. */
static int for_batches(void *handle) {
  Stream *stream;
  READY();
  REQUIRE((uintptr_t)handle > 1, INVALID_VALUE);
  return stream_of(handle, &stream);
}

/* Of what a batch asks for, entry i of `which` is the first element of kind i. */
static int are_kinds(const size_t *which, size_t kinds, size_t count) {
  if (!which || !kinds || kinds > count || which[0]) return 0;
  for (size_t i = 1; i < kinds; i++)
    if (which[i] <= which[i - 1] || which[i] >= count) return 0;
  return 1;
}

typedef struct {
  int order, src[2], dst[2];
  unsigned flags;
} CopyAttributes;

static int batch(const Address *dst, const Address *src, const size_t *bytes, size_t count, const CopyAttributes *attributes,
                 const size_t *which, size_t kinds, size_t *failed, void *stream) {
  size_t unused, *at = failed ? failed : &unused;
  *at = SIZE_MAX;
  int status = for_batches(stream);
  if (status) return status;
  REQUIRE(dst && src && bytes && count && attributes && are_kinds(which, kinds, count), INVALID_VALUE);
  for (size_t i = 0; i < kinds; i++) REQUIRE(is_access(attributes[i].order, attributes[i].flags), INVALID_VALUE);
  for (size_t i = 0; i < count && !status; i++) {
    status = copy_line(dst[i], src[i], bytes[i], NOT_NAMED, stream);
    if (status) *at = i;
  }
  return status;
}

EXPORT int cuMemcpyBatchAsync_v2(const Address *dst, const Address *src, const size_t *bytes, size_t count, void *attributes,
                                 size_t *which, size_t kinds, void *stream) {
  return batch(dst, src, bytes, count, attributes, which, kinds, NULL, stream);
}

EXPORT int cuMemcpyBatchAsync(const Address *dst, const Address *src, const size_t *bytes, size_t count, void *attributes,
                              size_t *which, size_t kinds, size_t *failed, void *stream) {
  return batch(dst, src, bytes, count, attributes, which, kinds, failed, stream);
}

/* One side of a copy in three dimensions: memory with rows of `row` bytes and layers of `height` rows, 0 where they are packed. */
typedef struct {
  int type;
  Address address;
  size_t row, height;
  int location[2];
} Operand;

typedef struct {
  Operand src, dst;
  size_t width, height, depth;
  int order;
  unsigned flags;
} BatchedCopy3D;

static int is_packed_or(size_t given, size_t least) { return !given || given >= least; }

static int read_batched(const BatchedCopy3D *from, Copy *copy) {
  const Operand *src = &from->src, *dst = &from->dst;
  for (const Operand *side = src;; side = dst) {
    if (side->type == OPERAND_ARRAY) return no_arrays();
    REQUIRE(side->type == OPERAND_POINTER, INVALID_VALUE);
    REQUIRE(is_packed_or(side->row, from->width) && is_packed_or(side->height, from->height), INVALID_VALUE);
    if (side == dst) break;
  }
  REQUIRE(from->width && from->height && from->depth && is_access(from->order, from->flags), INVALID_VALUE);
  size_t src_pitch = src->row ? src->row : from->width, dst_pitch = dst->row ? dst->row : from->width;
  size_t src_rows = src->height ? src->height : from->height, dst_rows = dst->height ? dst->height : from->height;
  return box_of(copy, dst->address, dst_pitch, dst_rows, src->address, src_pitch, src_rows, (const size_t[]){from->width, from->height, from->depth});
}

static int batch_3d(size_t count, const BatchedCopy3D *list, size_t *failed, uint64_t flags, void *stream) {
  size_t unused, *at = failed ? failed : &unused;
  Copy copy;
  *at = SIZE_MAX;
  int status = for_batches(stream);
  if (status) return status;
  REQUIRE(count && list && !flags, INVALID_VALUE);
  for (size_t i = 0; i < count && !status; i++) {
    status = read_batched(&list[i], &copy);
    if (!status) status = submit_copy(&copy, stream);
    if (status) *at = i;
  }
  return status;
}

EXPORT int cuMemcpy3DBatchAsync_v2(size_t count, const void *list, uint64_t flags, void *stream) { return batch_3d(count, list, NULL, flags, stream); }
EXPORT int cuMemcpy3DBatchAsync(size_t count, const void *list, size_t *failed, uint64_t flags, void *stream) { return batch_3d(count, list, failed, flags, stream); }

/* Ranges of managed memory. What is discarded is undefined until it is written, which the host may do without a call. */
static int managed_ranges(const Address *places, const size_t *bytes, size_t count, uint64_t flags, void *stream) {
  Range range;
  int status = for_batches(stream);
  if (status) return status;
  REQUIRE(places && bytes && count && !flags, INVALID_VALUE);
  for (size_t i = 0; i < count; i++) {
    REQUIRE(bytes[i] && range_of(places[i], &range) == SUCCESS && range.kind == MANAGED_MEMORY, INVALID_VALUE);
    REQUIRE(bytes[i] <= range.base + range.bytes - places[i], INVALID_VALUE);
  }
  return SUCCESS;
}

EXPORT int cuMemDiscardBatchAsync(const Address *places, const size_t *bytes, size_t count, uint64_t flags, void *stream) {
  return managed_ranges(places, bytes, count, flags, stream);
}

EXPORT int cuMemPrefetchBatchAsync(const Address *places, const size_t *bytes, size_t count, const int *locations, const size_t *which,
                                   size_t kinds, uint64_t flags, void *stream) {
  REQUIRE(locations && are_kinds(which, kinds, count), INVALID_VALUE);
  return managed_ranges(places, bytes, count, flags, stream);
}

EXPORT int cuMemDiscardAndPrefetchBatchAsync(const Address *places, const size_t *bytes, size_t count, const int *locations,
                                             const size_t *which, size_t kinds, uint64_t flags, void *stream) {
  return cuMemPrefetchBatchAsync(places, bytes, count, locations, which, kinds, flags, stream);
}

/* Waits and writes of a stream. */
typedef struct {
  int operation;
  Address address;
  uint64_t value;
  unsigned flags;
  uint64_t alias, unused;
} MemoryOperation;

enum { WAIT_32 = 1, WRITE_32, FLUSH, WAIT_64, WRITE_64, BARRIER };

static int perform_operation(const MemoryOperation *from, void *stream) {
  switch (from->operation) {
    case WAIT_32: return cuStreamWaitValue32_v2(stream, from->address, (uint32_t)from->value, from->flags);
    case WAIT_64: return cuStreamWaitValue64_v2(stream, from->address, from->value, from->flags);
    case WRITE_32: return cuStreamWriteValue32_v2(stream, from->address, (uint32_t)from->value, from->flags);
    case WRITE_64: return cuStreamWriteValue64_v2(stream, from->address, from->value, from->flags);
    /* everything before it is done */
    case FLUSH: case BARRIER: return SUCCESS;
    default: return INVALID_VALUE;
  }
}

EXPORT int cuStreamBatchMemOp_v2(void *handle, unsigned count, const void *list, unsigned flags) {
  STREAM_OF(handle, stream);
  REQUIRE(count && count <= 256 && list && !flags, INVALID_VALUE);
  REQUIRE(!stream->capture, NOT_SUPPORTED);
  int status = SUCCESS;
  for (unsigned i = 0; i < count && !status; i++) status = perform_operation((const MemoryOperation *)list + i, handle);
  return status;
}
