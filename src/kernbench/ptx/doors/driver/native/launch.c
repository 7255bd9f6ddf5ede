/* Launches: parameters are packed by the sizes that the kernel declares, and the emulator runs the grid at once. */
#include <time.h>

#include "driver.h"

static char *printed;
static size_t printed_bytes;
/* the number of the last launch that was done */
static uint64_t launched;

/* Text of printf appears when the program waits for the device, as on a GPU. */
void show_printf(void) {
  lock();
  char *text = printed;
  size_t bytes = printed_bytes;
  printed = NULL;
  printed_bytes = 0;
  unlock();
  if (text) {
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
  }
  free(text);
}

static void keep_printf(const char *text, size_t bytes) {
  lock();
  char *longer = bytes ? realloc(printed, printed_bytes + bytes) : NULL;
  if (longer) {
    memcpy(longer + printed_bytes, text, bytes);
    printed = longer;
    printed_bytes += bytes;
  }
  unlock();
}

/* Nanoseconds of this computer's clock. */
uint64_t device_clock(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

uint64_t launches_done(void) { return launched; }

/* A launch with <<<>>> gives no error back: whether the program asks for it decides whether its refusal is a fault. The
 * driver's own calls do, and where Python made them, it raises. */
static _Thread_local int in_runtime;

static void error_seen(void) {
  Reply reply;
  if (!unseen) return;
  unseen = 0;
  ASK(&reply, REQUEST_ERROR_SEEN, NULL, 0, (uint64_t)pthread_self());
  release(&reply);
}

/* A launch that is not done is recorded with the reason: few programs look at the error, which is all that they get. */
int refuse_launch(const char *name, const unsigned *grid, const unsigned *block, int error, const char *why) {
  Reply reply;
  char text[1024];
  int length = snprintf(text, sizeof text, "%s%c%s", name, 0, why);
  size_t bytes = length < (int)sizeof text ? (size_t)length : sizeof text - 1;
  if (ASK(&reply, REQUEST_REFUSED, text, bytes, (uint64_t)error, (uint64_t)pthread_self(), !in_runtime, grid[0], grid[1], grid[2], block[0],
          block[1], block[2]) == SUCCESS)
    explain(&reply);
  release(&reply);
  unseen = 1;
  return error;
}

static int check(const Launch *launch) {
  const int *attributes = launch->kernel->attributes;
  unsigned blocks = launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
  char why[256];
  if ((int)launch->shared_bytes > attributes[8]) {
    snprintf(why, sizeof why, "it is launched with %u bytes of dynamic shared memory and may have %d: set "
             "cudaFuncAttributeMaxDynamicSharedMemorySize first", launch->shared_bytes, attributes[8]);
    return refuse_launch(launch->kernel->name, launch->grid, launch->block, INVALID_VALUE, why);
  }
  if (blocks > 8 && !attributes[14]) {
    snprintf(why, sizeof why, "it is launched in clusters of %u blocks; beyond 8 it needs "
             "cudaFuncAttributeNonPortableClusterSizeAllowed", blocks);
    return refuse_launch(launch->kernel->name, launch->grid, launch->block, INVALID_CLUSTER_SIZE, why);
  }
  return SUCCESS;
}

int perform_launch(const Launch *launch) {
  Reply reply;
  const unsigned *g = launch->grid, *b = launch->block, *c = launch->cluster;
  int status = check(launch);
  if (status) return status;
  show_printf();
  int lends = lend();
  status = ASK(&reply, REQUEST_LAUNCH, launch->parameters, launch->kernel->bytes, launch->kernel->id, g[0], g[1], g[2], b[0], b[1],
               b[2], c[0], c[1], c[2], launch->shared_bytes, (uint64_t)launch->cooperative, (uint64_t)pthread_self(), !in_runtime);
  if (lends) take_back();
  if (reply.words[0]) launched = reply.words[0];
  /* words[1] bytes of text for stdout */
  if (status) unseen = 1;
  else keep_printf(reply.data, reply.words[1] < reply.bytes ? reply.words[1] : reply.bytes);
  /* words[2]: the error is reported by later calls, and stays */
  if (reply.words[2]) broken = (int)reply.words[2];
  release(&reply);
  return status;
}

static int pack_pointers(Launch *launch, void **pointers) {
  const Kernel *kernel = launch->kernel;
  char *at = launch->parameters;
  for (uint32_t i = 0; i < kernel->count; at += kernel->sizes[i++]) {
    REQUIRE(pointers[i], INVALID_VALUE);
    memcpy(at, pointers[i], kernel->sizes[i]);
  }
  return SUCCESS;
}

/* `extra` is a list of keys and values that ends with key 0: 1 is a buffer of all parameters, 2 its size. */
static int pack_buffer(Launch *launch, void **extra) {
  const Kernel *kernel = launch->kernel;
  const char *buffer = NULL;
  size_t bytes = 0;
  for (; *extra; extra += 2) {
    if (*extra == (void *)1) buffer = extra[1];
    if (*extra == (void *)2) bytes = *(size_t *)extra[1];
  }
  char *at = launch->parameters;
  for (uint32_t i = 0; i < kernel->count; at += kernel->sizes[i++]) {
    REQUIRE(buffer && kernel->offsets[i] + kernel->sizes[i] <= bytes, INVALID_VALUE);
    memcpy(at, buffer + kernel->offsets[i], kernel->sizes[i]);
  }
  return SUCCESS;
}

int pack(Launch *launch, void **pointers, void **extra) {
  REQUIRE(IS(launch->kernel, KERNEL), INVALID_HANDLE);
  REQUIRE(!launch->kernel->count || pointers || extra, INVALID_VALUE);
  launch->parameters = malloc(launch->kernel->bytes + 1);
  REQUIRE(launch->parameters, OUT_OF_MEMORY);
  if (!launch->kernel->count) return SUCCESS;
  int status = pointers ? pack_pointers(launch, pointers) : pack_buffer(launch, extra);
  if (status) free(launch->parameters);
  return status;
}

/* A launch by a handle that is none: most often of a program that did not see that its image was refused. */
static int refuse_unknown(const Launch *launch) {
  char why[600];
  snprintf(why, sizeof why, "the handle is not that of a kernel%s", last_refusal);
  refuse_launch("", launch->grid, launch->block, last_refusal[0] ? INVALID_IMAGE : INVALID_HANDLE, why);
  return INVALID_HANDLE;
}

static int start(Launch *launch, void *stream, void **pointers, void **extra) {
  READY();
  int status = pack(launch, pointers, extra);
  if (status == INVALID_HANDLE) return refuse_unknown(launch);
  if (status) return refuse_launch(launch->kernel->name, launch->grid, launch->block, status, "a parameter is not given");
  status = submit_launch(launch, stream);
  free(launch->parameters);
  return status;
}

EXPORT int cuLaunchKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **pointers, void **extra) {
  Launch launch = {kernel, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, 0, NULL};
  return start(&launch, stream, pointers, extra);
}

EXPORT int cuLaunchCooperativeKernel(Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                     unsigned bz, unsigned shared, void *stream, void **pointers) {
  Launch launch = {kernel, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, 1, NULL};
  return start(&launch, stream, pointers, NULL);
}

typedef struct {
  int id, pad;
  union {
    char room[64];
    int flag;
    unsigned cluster[3];
    Event *event;
  } value;
} Attribute;

typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  const Attribute *attributes;
  unsigned count;
} Configuration;

enum { ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_EVENT = 7, ATTRIBUTE_COMPLETION_EVENT = 12 };

int cuEventRecord(Event *event, void *stream);

static void apply(Launch *launch, const Attribute *attribute) {
  if (attribute->id == ATTRIBUTE_COOPERATIVE) launch->cooperative = attribute->value.flag;
  if (attribute->id == ATTRIBUTE_CLUSTER) memcpy(launch->cluster, attribute->value.cluster, sizeof launch->cluster);
}

void apply_attributes(Launch *launch, const void *config) {
  const Configuration *from = config;
  for (unsigned i = 0; i < from->count; i++) apply(launch, &from->attributes[i]);
}

void apply_attribute(Launch *launch, int id, const void *value) {
  Attribute attribute = {.id = id};
  memcpy(attribute.value.room, value, sizeof attribute.value.room);
  apply(launch, &attribute);
}

EXPORT int cuLaunchKernelEx(const Configuration *config, Kernel *kernel, void **pointers, void **extra) {
  REQUIRE(config, INVALID_VALUE);
  Launch launch = {.kernel = kernel, .shared_bytes = config->shared_bytes};
  memcpy(launch.grid, config->grid, sizeof launch.grid);
  memcpy(launch.block, config->block, sizeof launch.block);
  apply_attributes(&launch, config);
  int status = start(&launch, config->stream, pointers, extra);
  for (unsigned i = 0; i < config->count && !status; i++)
    if (config->attributes[i].id == ATTRIBUTE_EVENT || config->attributes[i].id == ATTRIBUTE_COMPLETION_EVENT)
      status = cuEventRecord(config->attributes[i].value.event, config->stream);
  return status;
}

/* Occupancy, by the emulator's description of the architecture. */
static int occupancy(const Kernel *kernel, int block, size_t shared, uint64_t *resident) {
  READY();
  REQUIRE(IS(kernel, KERNEL) && block > 0, INVALID_VALUE);
  Reply reply;
  int status = ASK(&reply, REQUEST_OCCUPANCY, NULL, 0, kernel->id, (uint64_t)block, shared);
  *resident = reply.words[0];
  release(&reply);
  return status;
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, Kernel *kernel, int block, size_t shared, unsigned flags) {
  uint64_t resident = 0;
  (void)flags;
  REQUIRE(blocks, INVALID_VALUE);
  int status = occupancy(kernel, block, shared, &resident);
  *blocks = (int)resident;
  return status;
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Kernel *kernel, int block, size_t shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block, shared, 0);
}

typedef size_t (*SharedOfBlock)(int);

EXPORT int cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, Kernel *kernel, SharedOfBlock shared_of, size_t shared,
                                                     int limit, unsigned flags) {
  int most = limit > 0 && limit < 1024 ? limit : 1024, best = 0;
  (void)flags;
  REQUIRE(grid && block && IS(kernel, KERNEL), INVALID_VALUE);
  if (kernel->attributes[0] < most) most = kernel->attributes[0];
  for (int threads = most; threads > 0; threads -= threads % 32 ? threads % 32 : 32) {
    uint64_t resident = 0;
    int status = occupancy(kernel, threads, shared_of ? shared_of(threads) : shared, &resident);
    if (status) return status;
    if ((int)resident * threads > best) best = (int)resident * threads, *block = threads, *grid = (int)(resident * hello.words[16]);
  }
  return best ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, Kernel *kernel, SharedOfBlock shared_of, size_t shared, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, kernel, shared_of, shared, limit, 0);
}

EXPORT int cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, Kernel *kernel, int blocks, int block) {
  (void)block;
  REQUIRE(bytes && blocks > 0 && IS(kernel, KERNEL), INVALID_VALUE);
  size_t each = hello.words[81] / (size_t)blocks, reserved = 1024 + (size_t)kernel->attributes[1];
  size_t most = hello.words[97] - (size_t)kernel->attributes[1];
  *bytes = each > reserved ? each - reserved : 0;
  if (*bytes > most) *bytes = most;
  return SUCCESS;
}

static int clusters_of(Kernel *kernel, const Configuration *config, unsigned *size, uint64_t *resident) {
  Launch launch = {.kernel = kernel, .cluster = {1, 1, 1}};
  apply_attributes(&launch, config);
  *size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2];
  unsigned threads = config->block[0] * config->block[1] * config->block[2];
  return occupancy(kernel, (int)threads, config->shared_bytes, resident);
}

EXPORT int cuOccupancyMaxActiveClusters(int *clusters, Kernel *kernel, const Configuration *config) {
  unsigned size;
  uint64_t resident = 0;
  REQUIRE(clusters && config && IS(kernel, KERNEL), INVALID_VALUE);
  int status = clusters_of(kernel, config, &size, &resident);
  *clusters = size ? (int)(resident * hello.words[16] / size) : 0;
  return status;
}

EXPORT int cuOccupancyMaxPotentialClusterSize(int *size, Kernel *kernel, const Configuration *config) {
  unsigned asked;
  uint64_t resident = 0;
  REQUIRE(size && config && IS(kernel, KERNEL), INVALID_VALUE);
  int status = clusters_of(kernel, config, &asked, &resident);
  *size = kernel->attributes[14] ? 16 : 8;
  return status;
}
