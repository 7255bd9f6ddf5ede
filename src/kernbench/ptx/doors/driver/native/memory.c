/* Memory: the bytes of device memory lie in this process, at their device addresses. The emulator keeps what is allocated
 * and which bytes were written, so it is asked before bytes are moved here. */
#include "driver.h"

enum Kind { DEVICE_MEMORY = 1, HOST_MEMORY = 2, MANAGED_MEMORY = 3 };

static int allocate(Address *address, size_t bytes, int kind) {
  READY();
  REQUIRE(address && bytes, INVALID_VALUE);
  Reply reply;
  int status = ASK(&reply, REQUEST_ALLOCATE, NULL, 0, bytes, (uint64_t)kind);
  if (!status) *address = reply.words[0];
  if (!status && kind != DEVICE_MEMORY) grant(*address, bytes);
  release(&reply);
  return status;
}

/* What nodes of graphs allocate is theirs whenever a graph is launched again, and so stays where it is given back. */
static struct {
  Address *addresses;
  size_t count, room;
  uint64_t bytes;
} of_graphs;

int keep_for_graphs(Address address, size_t bytes) {
  lock();
  if (of_graphs.count == of_graphs.room) {
    size_t room = 2 * of_graphs.room + 16;
    Address *longer = realloc(of_graphs.addresses, room * sizeof *longer);
    if (!longer) return unlock(), OUT_OF_MEMORY;
    of_graphs.addresses = longer;
    of_graphs.room = room;
  }
  of_graphs.addresses[of_graphs.count++] = address;
  of_graphs.bytes += bytes;
  unlock();
  return SUCCESS;
}

static int is_of_graphs(Address address) {
  int found = 0;
  lock();
  for (size_t i = 0; i < of_graphs.count && !found; i++) found = of_graphs.addresses[i] == address;
  unlock();
  return found;
}

int allocate_for_graphs(Address *address, size_t bytes) {
  int status = allocate(address, bytes, DEVICE_MEMORY);
  return status ? status : keep_for_graphs(*address, bytes);
}

/* Bytes that are in use or reserved, now or at most. */
EXPORT int cuDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value) {
  READY();
  REQUIRE(device == 0, INVALID_DEVICE);
  REQUIRE(attribute >= 0 && attribute < 4 && value, INVALID_VALUE);
  *value = of_graphs.bytes;
  return SUCCESS;
}

EXPORT int cuDeviceSetGraphMemAttribute(int device, int attribute, const uint64_t *value) {
  READY();
  REQUIRE(device == 0, INVALID_DEVICE);
  return (attribute == 1 || attribute == 3) && value && !*value ? SUCCESS : INVALID_VALUE;
}

/* `kind` says what kind of memory the call frees. */
static int give_back(Address address, int kind) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  /* memory of a context that is lost cannot be given back either */
  if (broken || !address) return broken;
  if (is_of_graphs(address)) return SUCCESS;
  Reply reply;
  int status = ASK(&reply, REQUEST_FREE, NULL, 0, address, (uint64_t)kind);
  release(&reply);
  return status;
}

/* All memory of the context is gone with it. */
int reset_memory(void) {
  Reply reply;
  lock();
  of_graphs.count = 0;
  of_graphs.bytes = 0;
  unlock();
  int status = ASK(&reply, REQUEST_RESET, NULL, 0, 0);
  release(&reply);
  return status;
}

EXPORT int cuMemAlloc_v2(Address *address, size_t bytes) { return allocate(address, bytes, DEVICE_MEMORY); }
EXPORT int cuMemFree_v2(Address address) { return give_back(address, DEVICE_MEMORY); }
EXPORT int cuMemAllocHost_v2(Address *address, size_t bytes) { return allocate(address, bytes, HOST_MEMORY); }
EXPORT int cuMemFreeHost(void *address) { return give_back((Address)address, HOST_MEMORY); }

EXPORT int cuMemHostAlloc(Address *address, size_t bytes, unsigned flags) {
  (void)flags;
  return allocate(address, bytes, HOST_MEMORY);
}

EXPORT int cuMemAllocManaged(Address *address, size_t bytes, unsigned flags) {
  (void)flags;
  return allocate(address, bytes, MANAGED_MEMORY);
}

EXPORT int cuMemAllocPitch_v2(Address *address, size_t *pitch, size_t width, size_t height, unsigned element) {
  (void)element;
  REQUIRE(pitch && width && height, INVALID_VALUE);
  *pitch = (width + 511) / 512 * 512;
  return allocate(address, *pitch * height, DEVICE_MEMORY);
}

typedef struct {
  Address base;
  size_t bytes;
  int kind;
  uint64_t id;
} Range;

static int range_of(Address address, Range *range) {
  Reply reply;
  int status = ASK(&reply, REQUEST_RANGE, NULL, 0, address);
  if (!status) *range = (Range){reply.words[0], reply.words[1], (int)reply.words[2], reply.words[3]};
  release(&reply);
  return status;
}

EXPORT int cuMemGetAddressRange_v2(Address *base, size_t *bytes, Address address) {
  Range range;
  READY();
  int status = range_of(address, &range);
  if (status) return NOT_FOUND;
  if (base) *base = range.base;
  if (bytes) *bytes = range.bytes;
  return SUCCESS;
}

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  READY();
  REQUIRE(free_bytes && total, INVALID_VALUE);
  Reply reply;
  int status = ASK(&reply, REQUEST_USAGE, NULL, 0, 0);
  *free_bytes = reply.words[0];
  *total = reply.words[1];
  release(&reply);
  return status;
}

EXPORT int cuMemHostGetDevicePointer_v2(Address *address, void *host, unsigned flags) {
  Range range;
  (void)flags;
  READY();
  REQUIRE(address && range_of((Address)host, &range) == SUCCESS, INVALID_VALUE);
  *address = (Address)host;
  return SUCCESS;
}

EXPORT int cuMemHostGetFlags(unsigned *flags, void *host) {
  Range range;
  READY();
  REQUIRE(flags && range_of((Address)host, &range) == SUCCESS, INVALID_VALUE);
  *flags = 2;
  return SUCCESS;
}

/* Memory of the program's own that kernels may reach. An emulator in another process has a copy of it in the device's
 * memory, which is brought up to date around each launch; one in this process needs no help. */
typedef struct Lent {
  char *host, *copy;
  size_t bytes;
  struct Lent *next;
} Lent;

static Lent *lent;
static pthread_mutex_t lending = PTHREAD_MUTEX_INITIALIZER;

/* Launches of several threads that meet in such memory come one after the other: returns whether there is any. */
static int lend(void) {
  pthread_mutex_lock(&lending);
  if (!lent) return pthread_mutex_unlock(&lending), 0;
  for (const Lent *at = lent; at; at = at->next) memcpy(at->copy, at->host, at->bytes);
  return 1;
}

/* What no kernel wrote stays untouched: it may lie in pages that cannot be written, or another thread writes it. */
static void take_back(void) {
  enum { PART = 256 };
  for (const Lent *at = lent; at; at = at->next)
    for (size_t done = 0; done < at->bytes; done += PART) {
      size_t part = at->bytes - done < PART ? at->bytes - done : PART;
      if (memcmp(at->host + done, at->copy + done, part)) memcpy(at->host + done, at->copy + done, part);
    }
  pthread_mutex_unlock(&lending);
}

static int lend_from_now(void *host, size_t bytes, Address copy) {
  Lent *made = malloc(sizeof *made);
  REQUIRE(made, OUT_OF_MEMORY);
  pthread_mutex_lock(&lending);
  *made = (Lent){host, ours_at(copy), bytes, lent};
  lent = made;
  pthread_mutex_unlock(&lending);
  return SUCCESS;
}

static void lend_no_more(void *host) {
  pthread_mutex_lock(&lending);
  for (Lent **at = &lent; *at; at = &(*at)->next)
    if ((*at)->host == host) {
      Lent *gone = *at;
      *at = gone->next;
      free(gone);
      break;
    }
  pthread_mutex_unlock(&lending);
}

EXPORT int cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) {
  (void)flags;
  READY();
  REQUIRE(host && bytes, INVALID_VALUE);
  Reply reply;
  int status = ASK(&reply, REQUEST_REGISTER, NULL, 0, (Address)host, bytes);
  if (!status && reply.count) status = lend_from_now(host, bytes, reply.words[0]);
  release(&reply);
  return status;
}

EXPORT int cuMemHostUnregister(void *host) {
  READY();
  Reply reply;
  lend_no_more(host);
  int status = ASK(&reply, REQUEST_UNREGISTER, NULL, 0, (Address)host);
  release(&reply);
  return status;
}

/* Attributes of pointers, each in the type that the API gives it. */
static int pointer_attribute(void *data, int attribute, Address address, const Range *range) {
  int managed = range->kind == MANAGED_MEMORY, host = range->kind == HOST_MEMORY;
  switch (attribute) {
    case 1: *(void **)data = current_context(); return SUCCESS;
    case 2: *(unsigned *)data = host ? 1 : 2; return SUCCESS;
    case 3: *(Address *)data = address; return SUCCESS;
    case 4: *(Address *)data = host || managed ? address : 0; return host || managed ? SUCCESS : INVALID_VALUE;
    case 6: *(unsigned *)data = 1; return SUCCESS;
    case 7: *(uint64_t *)data = range->id; return SUCCESS;
    case 8: *(unsigned char *)data = (unsigned char)managed; return SUCCESS;
    case 9: *(int *)data = 0; return SUCCESS;
    case 10: *(unsigned char *)data = 0; return SUCCESS;
    case 11: case 19: *(Address *)data = range->base; return SUCCESS;
    case 12: case 18: *(size_t *)data = range->bytes; return SUCCESS;
    case 13: *(unsigned char *)data = 1; return SUCCESS;
    case 14: *(uint64_t *)data = 0; return SUCCESS;
    case 15: *(unsigned char *)data = 0; return SUCCESS;
    case 16: *(unsigned *)data = 3; return SUCCESS;
    case 17: *(void **)data = NULL; return SUCCESS;
    case 20: *(uint64_t *)data = range->id; return SUCCESS;
    case 21: *(unsigned char *)data = 0; return SUCCESS;
    default: return INVALID_VALUE;
  }
}

EXPORT int cuPointerGetAttribute(void *data, int attribute, Address address) {
  Range range;
  READY();
  REQUIRE(data, INVALID_VALUE);
  REQUIRE(range_of(address, &range) == SUCCESS, INVALID_VALUE);
  return pointer_attribute(data, attribute, address, &range);
}

static void unknown_attribute(void *data, int attribute) {
  static const unsigned char bytes[] = {8, 10, 13, 15, 21}, words[] = {2, 6, 9, 16};
  if (memchr(bytes, attribute, sizeof bytes)) *(unsigned char *)data = 0;
  else if (memchr(words, attribute, sizeof words)) *(int *)data = attribute == 9 ? -2 : 0;
  else *(uint64_t *)data = 0;
}

EXPORT int cuPointerGetAttributes(unsigned count, const int *attributes, void **data, Address address) {
  Range range;
  READY();
  REQUIRE(attributes && data, INVALID_VALUE);
  int status = range_of(address, &range);
  for (unsigned i = 0; i < count; i++)
    if (status || pointer_attribute(data[i], attributes[i], address, &range)) unknown_attribute(data[i], attributes[i]);
  return SUCCESS;
}

EXPORT int cuPointerSetAttribute(const void *value, int attribute, Address address) {
  (void)value, (void)attribute, (void)address;
  return ready();
}

int perform_copy(const Copy *copy) {
  Reply reply;
  if (!copy->width || !copy->height || !copy->depth) return SUCCESS;
  int status = ASK(&reply, REQUEST_COPY, NULL, 0, copy->dst, copy->dst_pitch, copy->dst_slice, copy->src, copy->src_pitch,
                   copy->src_slice, copy->width, copy->height, copy->depth, (uint64_t)copy->named);
  release(&reply);
  for (size_t z = 0; z < copy->depth && !status; z++)
    for (size_t y = 0; y < copy->height; y++)
      memmove(ours_at(copy->dst + z * copy->dst_slice + y * copy->dst_pitch),
              ours_at(copy->src + z * copy->src_slice + y * copy->src_pitch), copy->width);
  return status;
}

static void fill_row(char *at, size_t count, unsigned value, unsigned element) {
  if (element == 1) memset(at, (int)value, count);
  else
    for (size_t i = 0; i < count; i++) memcpy(at + i * element, &value, element);
}

int perform_fill(const Fill *fill) {
  Reply reply;
  if (!fill->width || !fill->height) return SUCCESS;
  int status = ASK(&reply, REQUEST_SET, NULL, 0, fill->dst, fill->pitch, fill->width * fill->element, fill->height);
  release(&reply);
  for (size_t y = 0; y < fill->height && !status; y++)
    fill_row(ours_at(fill->dst + y * fill->pitch), fill->width, fill->value, fill->element);
  return status;
}

int copy_line(Address dst, Address src, size_t bytes, int named, void *stream) {
  READY();
  Copy copy = {dst, src, bytes, bytes, bytes, bytes, bytes, 1, 1, named};
  return submit_copy(&copy, stream);
}

static int copy_now(Address dst, Address src, size_t bytes, int named) {
  int status = copy_line(dst, src, bytes, named, NULL);
  show_printf();
  return status;
}

EXPORT int cuMemcpy(Address dst, Address src, size_t n) { return copy_now(dst, src, n, NOT_NAMED); }
EXPORT int cuMemcpyHtoD_v2(Address dst, Address src, size_t n) { return copy_now(dst, src, n, HOST_TO_DEVICE); }
EXPORT int cuMemcpyDtoH_v2(Address dst, Address src, size_t n) { return copy_now(dst, src, n, DEVICE_TO_HOST); }
EXPORT int cuMemcpyDtoD_v2(Address dst, Address src, size_t n) { return copy_now(dst, src, n, DEVICE_TO_DEVICE); }
EXPORT int cuMemcpyAsync(Address dst, Address src, size_t n, void *stream) { return copy_line(dst, src, n, NOT_NAMED, stream); }
EXPORT int cuMemcpyHtoDAsync_v2(Address dst, Address src, size_t n, void *stream) { return copy_line(dst, src, n, HOST_TO_DEVICE, stream); }
EXPORT int cuMemcpyDtoHAsync_v2(Address dst, Address src, size_t n, void *stream) { return copy_line(dst, src, n, DEVICE_TO_HOST, stream); }
EXPORT int cuMemcpyDtoDAsync_v2(Address dst, Address src, size_t n, void *stream) { return copy_line(dst, src, n, DEVICE_TO_DEVICE, stream); }

EXPORT int cuMemcpyPeer(Address dst, void *to, Address src, void *from, size_t n) {
  (void)to, (void)from;
  return copy_now(dst, src, n, DEVICE_TO_DEVICE);
}

EXPORT int cuMemcpyPeerAsync(Address dst, void *to, Address src, void *from, size_t n, void *stream) {
  (void)to, (void)from;
  return copy_line(dst, src, n, DEVICE_TO_DEVICE, stream);
}

/* The API's descriptions of copies in two and three dimensions. */
typedef struct {
  size_t x, y;
  int kind;
  const void *host;
  Address device;
  void *array;
  size_t pitch;
} Side2D;

typedef struct {
  Side2D src, dst;
  size_t width, height;
} Copy2D;

typedef struct {
  size_t x, y, z, level;
  int kind;
  const void *host;
  Address device;
  void *array, *reserved;
  size_t pitch, height;
} Side3D;

typedef struct {
  Side3D src, dst;
  size_t width, height, depth;
} Copy3D;

enum { KIND_HOST = 1, KIND_DEVICE = 2, KIND_ARRAY = 3 };

/* Memory of the unified kind may lie anywhere. */
static int named_by(int from, int to) {
  return (from == KIND_HOST || from == KIND_DEVICE ? from : 0) << 2 | (to == KIND_HOST || to == KIND_DEVICE ? to : 0);
}

static int no_arrays(void) {
  static int said;
  if (!said++) complain("copies from and to CUDA arrays are not emulated: use linear memory");
  return NOT_SUPPORTED;
}

/* Whether a box of extent x, y, z bytes fits into rows of `pitch` bytes and layers of `rows` rows, and into an address space. */
static int box_fits(size_t pitch, size_t rows, const size_t *extent) {
  enum { MOST_BITS = 47 };
  size_t slice, layers, lines, end;
  if (extent[1] > 1 && pitch < extent[0]) return 0;
  if (extent[2] > 1 && (rows < extent[1] || pitch < extent[0])) return 0;
  if (!extent[0] || !extent[1] || !extent[2]) return 1;
  if (__builtin_mul_overflow(pitch, extent[2] > 1 ? rows : 0, &slice) || __builtin_mul_overflow(slice, extent[2] - 1, &layers)) return 0;
  if (__builtin_mul_overflow(pitch, extent[1] - 1, &lines) || __builtin_add_overflow(layers, lines, &end)) return 0;
  return !__builtin_add_overflow(end, extent[0], &end) && !(end >> MOST_BITS);
}

/* A copy of a box between memory with `rows` rows of `pitch` bytes in each layer. */
int box_of(Copy *copy, Address dst, size_t dst_pitch, size_t dst_rows, Address src, size_t src_pitch, size_t src_rows, const size_t *extent) {
  REQUIRE(box_fits(dst_pitch, dst_rows, extent) && box_fits(src_pitch, src_rows, extent), INVALID_VALUE);
  *copy = (Copy){dst, src, dst_pitch, dst_pitch * dst_rows, src_pitch, src_pitch * src_rows, extent[0], extent[1], extent[2], NOT_NAMED};
  return SUCCESS;
}

static int read_2d(const Copy2D *given, Copy *copy) {
  REQUIRE(given, INVALID_VALUE);
  if (given->src.kind == KIND_ARRAY || given->dst.kind == KIND_ARRAY) return no_arrays();
  const size_t extent[] = {given->width, given->height, 1};
  size_t src_pitch = given->src.pitch ? given->src.pitch : given->width, dst_pitch = given->dst.pitch ? given->dst.pitch : given->width;
  Address src = given->src.kind == KIND_HOST ? (Address)given->src.host : given->src.device;
  Address dst = given->dst.kind == KIND_HOST ? (Address)given->dst.host : given->dst.device;
  int status = box_of(copy, dst + given->dst.y * dst_pitch + given->dst.x, dst_pitch, 0, src + given->src.y * src_pitch + given->src.x, src_pitch, 0, extent);
  if (!status) copy->named = named_by(given->src.kind, given->dst.kind);
  return status;
}

int read_3d(const void *description, Copy *copy) {
  const Copy3D *given = description;
  REQUIRE(given, INVALID_VALUE);
  if (given->src.kind == KIND_ARRAY || given->dst.kind == KIND_ARRAY) return no_arrays();
  const size_t extent[] = {given->width, given->height, given->depth};
  size_t src_pitch = given->src.pitch ? given->src.pitch : given->width, dst_pitch = given->dst.pitch ? given->dst.pitch : given->width;
  size_t src_rows = given->src.height ? given->src.height : given->height, dst_rows = given->dst.height ? given->dst.height : given->height;
  Address src = given->src.kind == KIND_HOST ? (Address)given->src.host : given->src.device;
  Address dst = given->dst.kind == KIND_HOST ? (Address)given->dst.host : given->dst.device;
  Copy made;
  int status = box_of(&made, dst + (given->dst.z * dst_rows + given->dst.y) * dst_pitch + given->dst.x, dst_pitch, dst_rows,
                      src + (given->src.z * src_rows + given->src.y) * src_pitch + given->src.x, src_pitch, src_rows, extent);
  if (status) return status;
  made.named = named_by(given->src.kind, given->dst.kind);
  *copy = made;
  return SUCCESS;
}

void write_3d(const Copy *copy, void *description) {
  Copy3D *out = description;
  memset(out, 0, sizeof *out);
  out->src.kind = out->dst.kind = 4;
  out->src.device = copy->src, out->dst.device = copy->dst;
  out->src.pitch = copy->src_pitch, out->dst.pitch = copy->dst_pitch;
  out->src.height = copy->src_pitch ? copy->src_slice / copy->src_pitch : copy->height;
  out->dst.height = copy->dst_pitch ? copy->dst_slice / copy->dst_pitch : copy->height;
  out->width = copy->width, out->height = copy->height, out->depth = copy->depth;
}

EXPORT int cuMemcpy2DAsync_v2(const Copy2D *given, void *stream) {
  Copy copy;
  READY();
  int status = read_2d(given, &copy);
  return status ? status : submit_copy(&copy, stream);
}

EXPORT int cuMemcpy2D_v2(const Copy2D *given) {
  int status = cuMemcpy2DAsync_v2(given, NULL);
  show_printf();
  return status;
}

EXPORT int cuMemcpy2DUnaligned_v2(const Copy2D *given) { return cuMemcpy2D_v2(given); }

EXPORT int cuMemcpy3DAsync_v2(const Copy3D *given, void *stream) {
  Copy copy;
  READY();
  int status = read_3d(given, &copy);
  return status ? status : submit_copy(&copy, stream);
}

EXPORT int cuMemcpy3D_v2(const Copy3D *given) {
  int status = cuMemcpy3DAsync_v2(given, NULL);
  show_printf();
  return status;
}

/* the description for peers differs in fields that do not matter with one device */
EXPORT int cuMemcpy3DPeer(const Copy3D *given) { return cuMemcpy3D_v2(given); }
EXPORT int cuMemcpy3DPeerAsync(const Copy3D *given, void *stream) { return cuMemcpy3DAsync_v2(given, stream); }

static int set(Address dst, size_t pitch, unsigned value, unsigned element, size_t width, size_t height, void *stream) {
  READY();
  REQUIRE(dst % element == 0, INVALID_VALUE);
  Fill fill = {dst, pitch, width, height, value, element};
  return submit_fill(&fill, stream);
}

EXPORT int cuMemsetD8_v2(Address dst, unsigned char v, size_t n) { return set(dst, n, v, 1, n, 1, NULL); }
EXPORT int cuMemsetD16_v2(Address dst, unsigned short v, size_t n) { return set(dst, 2 * n, v, 2, n, 1, NULL); }
EXPORT int cuMemsetD32_v2(Address dst, unsigned v, size_t n) { return set(dst, 4 * n, v, 4, n, 1, NULL); }
EXPORT int cuMemsetD8Async(Address dst, unsigned char v, size_t n, void *s) { return set(dst, n, v, 1, n, 1, s); }
EXPORT int cuMemsetD16Async(Address dst, unsigned short v, size_t n, void *s) { return set(dst, 2 * n, v, 2, n, 1, s); }
EXPORT int cuMemsetD32Async(Address dst, unsigned v, size_t n, void *s) { return set(dst, 4 * n, v, 4, n, 1, s); }
EXPORT int cuMemsetD2D8_v2(Address dst, size_t p, unsigned char v, size_t w, size_t h) { return set(dst, p, v, 1, w, h, NULL); }
EXPORT int cuMemsetD2D16_v2(Address dst, size_t p, unsigned short v, size_t w, size_t h) { return set(dst, p, v, 2, w, h, NULL); }
EXPORT int cuMemsetD2D32_v2(Address dst, size_t p, unsigned v, size_t w, size_t h) { return set(dst, p, v, 4, w, h, NULL); }
EXPORT int cuMemsetD2D8Async(Address dst, size_t p, unsigned char v, size_t w, size_t h, void *s) { return set(dst, p, v, 1, w, h, s); }
EXPORT int cuMemsetD2D16Async(Address dst, size_t p, unsigned short v, size_t w, size_t h, void *s) { return set(dst, p, v, 2, w, h, s); }
EXPORT int cuMemsetD2D32Async(Address dst, size_t p, unsigned v, size_t w, size_t h, void *s) { return set(dst, p, v, 4, w, h, s); }

/* Pools: allocation in the order of a stream is allocation now, as everything is done when a call returns. */
static Pool default_pool = {.magic = POOL, .kind = DEVICE_MEMORY, .attributes = {0, 1, 1, 1}};
/* of the host, or managed: the host may touch what comes from it */
static Pool hosts_pool = {.magic = POOL, .kind = MANAGED_MEMORY, .attributes = {0, 1, 1, 1}};

enum { TYPE_PINNED = 1, TYPE_MANAGED = 2, LOCATION_DEVICE = 1 };

static Pool *pool_for(int type, const int *location) { return type == TYPE_MANAGED || (location && *location > LOCATION_DEVICE) ? &hosts_pool : &default_pool; }

/* those that programs have set in their stead */
static Pool *devices_set, *hosts_set;

static int is_pool_type(int type) { return type == TYPE_PINNED || type == TYPE_MANAGED; }

static Pool **set_for(int type, const int *location) { return pool_for(type, location) == &default_pool ? &devices_set : &hosts_set; }

EXPORT int cuMemGetDefaultMemPool(Pool **pool, const int *location, int type) {
  REQUIRE(pool && location && is_pool_type(type), INVALID_VALUE);
  *pool = pool_for(type, location);
  return SUCCESS;
}

EXPORT int cuMemGetMemPool(Pool **pool, const int *location, int type) {
  REQUIRE(pool && location && is_pool_type(type), INVALID_VALUE);
  Pool *set = *set_for(type, location);
  *pool = IS(set, POOL) ? set : pool_for(type, location);
  return SUCCESS;
}

EXPORT int cuMemSetMemPool(const int *location, int type, Pool *pool) {
  REQUIRE(location && is_pool_type(type) && IS(pool, POOL) && pool->kind == pool_for(type, location)->kind, INVALID_VALUE);
  *set_for(type, location) = pool;
  return SUCCESS;
}

static const int on_device[] = {LOCATION_DEVICE, 0};

EXPORT int cuDeviceGetDefaultMemPool(Pool **pool, int device) {
  REQUIRE(device == 0, INVALID_DEVICE);
  return cuMemGetDefaultMemPool(pool, on_device, TYPE_PINNED);
}

EXPORT int cuDeviceGetMemPool(Pool **pool, int device) {
  REQUIRE(device == 0, INVALID_DEVICE);
  return cuMemGetMemPool(pool, on_device, TYPE_PINNED);
}

EXPORT int cuDeviceSetMemPool(int device, Pool *pool) {
  REQUIRE(device == 0, INVALID_DEVICE);
  return cuMemSetMemPool(on_device, TYPE_PINNED, pool);
}

EXPORT int cuMemPoolCreate(Pool **pool, const void *properties) {
  READY();
  REQUIRE(pool && properties, INVALID_VALUE);
  *pool = fresh(POOL, sizeof **pool);
  REQUIRE(*pool, OUT_OF_MEMORY);
  /* they begin with the type, types of handles, and the location */
  (*pool)->kind = pool_for(*(const int *)properties, (const int *)properties + 2)->kind;
  memcpy((*pool)->attributes, default_pool.attributes, sizeof default_pool.attributes);
  return SUCCESS;
}

EXPORT int cuMemPoolDestroy(Pool *pool) {
  REQUIRE(IS(pool, POOL) && pool != &default_pool && pool != &hosts_pool, INVALID_VALUE);
  pool->magic = 0;
  return SUCCESS;
}

/* the first three attributes are ints, the others 64 bits wide */
EXPORT int cuMemPoolSetAttribute(Pool *pool, int attribute, const void *value) {
  REQUIRE(IS(pool, POOL) && value && attribute > 0 && attribute < 16, INVALID_VALUE);
  pool->attributes[attribute] = attribute < 4 ? *(const unsigned *)value : *(const uint64_t *)value;
  return SUCCESS;
}

EXPORT int cuMemPoolGetAttribute(Pool *pool, int attribute, void *value) {
  REQUIRE(IS(pool, POOL) && value && attribute > 0 && attribute < 16, INVALID_VALUE);
  if (attribute < 4) *(unsigned *)value = (unsigned)pool->attributes[attribute];
  else *(uint64_t *)value = pool->attributes[attribute];
  return SUCCESS;
}

EXPORT int cuMemPoolTrimTo(Pool *pool, size_t keep) { return (void)keep, IS(pool, POOL) ? SUCCESS : INVALID_VALUE; }
EXPORT int cuMemPoolSetAccess(Pool *pool, const void *map, size_t n) { return (void)map, (void)n, IS(pool, POOL) ? SUCCESS : INVALID_VALUE; }

EXPORT int cuMemPoolGetAccess(int *flags, Pool *pool, void *location) {
  (void)location;
  REQUIRE(flags && IS(pool, POOL), INVALID_VALUE);
  *flags = 3;
  return SUCCESS;
}

int capture_allocation(Address address, size_t bytes, int type, void *stream);

static int allocate_in_order(Address *address, size_t bytes, int kind, void *stream) {
  int status = allocate(address, bytes, kind);
  return status ? status : capture_allocation(*address, bytes, NODE_ALLOCATE, stream);
}

EXPORT int cuMemAllocAsync(Address *address, size_t bytes, void *stream) { return allocate_in_order(address, bytes, DEVICE_MEMORY, stream); }

EXPORT int cuMemAllocFromPoolAsync(Address *address, size_t bytes, Pool *pool, void *stream) {
  REQUIRE(IS(pool, POOL), INVALID_VALUE);
  return allocate_in_order(address, bytes, pool->kind, stream);
}

/* memory that a graph uses lives as long as the graph may be launched again */
EXPORT int cuMemFreeAsync(Address address, void *stream) {
  Stream *at;
  READY();
  int status = stream_of(stream, &at);
  if (status) return status;
  return at->capture ? capture_allocation(address, 0, NODE_FREE, stream) : give_back(address, DEVICE_MEMORY);
}

EXPORT int cuMemAdvise(Address address, size_t bytes, int advice, int device) { return (void)address, (void)bytes, (void)advice, (void)device, ready(); }
EXPORT int cuMemAdvise_v2(Address address, size_t bytes, int advice, uint64_t location) { return (void)address, (void)bytes, (void)advice, (void)location, ready(); }
EXPORT int cuMemPrefetchAsync(Address address, size_t bytes, int device, void *stream) { return (void)address, (void)bytes, (void)device, (void)stream, ready(); }
EXPORT int cuMemPrefetchAsync_v2(Address address, size_t bytes, uint64_t location, unsigned flags, void *stream) { return (void)address, (void)bytes, (void)location, (void)flags, (void)stream, ready(); }
EXPORT int cuStreamAttachMemAsync(void *stream, Address address, size_t bytes, unsigned flags) { return (void)stream, (void)address, (void)bytes, (void)flags, ready(); }
