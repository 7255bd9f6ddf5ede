/* The CUDA runtime API over the driver API of this library. It stands in for libcudart, shared or linked in, as NVIDIA's own
 * runtime accepts NVIDIA's driver only. Codes of errors are those of the driver, but for a few. */
#include <dlfcn.h>

#include "driver.h"

enum { INVALID_CONFIGURATION = 9, INVALID_PITCH = 12, INVALID_SYMBOL = 13, INVALID_DEVICE_FUNCTION = 98, MISSING_CONFIGURATION = 52 };

int runtime_major;
static _Thread_local int last_error;

/* The version that a program was built for decides what a few functions take. */
static int major(void) {
  if (!runtime_major) runtime_major = dlopen("libcudart.so.12", RTLD_NOLOAD | RTLD_LAZY) ? 12 : 13;
  return runtime_major;
}

static int keep(int error) {
  if (error && error != NOT_READY) last_error = error;
  return error;
}

/* Every call initialises the driver, and gives the thread the primary context. */
static int enter(void) {
  Context *context;
  int error = cuInit(0);
  if (error || current_context()) return error;
  error = cuDevicePrimaryCtxRetain(&context, 0);
  return error ? error : cuCtxSetCurrent(context);
}

#define RUN(call)                                   \
  do {                                              \
    int entered_ = enter();                         \
    return keep(entered_ ? entered_ : (call));      \
  } while (0)

#define LAUNCH(call)                                \
  do {                                              \
    int status_ = enter();                          \
    in_runtime++;                                   \
    if (!status_) status_ = (call);                 \
    in_runtime--;                                   \
    return keep(status_);                           \
  } while (0)

EXPORT int cudaGetLastError(void) {
  int error = last_error;
  last_error = SUCCESS;
  error_seen();
  return error ? error : broken;
}

EXPORT int cudaPeekAtLastError(void) {
  error_seen();
  return last_error ? last_error : broken;
}

EXPORT const char *cudaGetErrorName(int error) {
  const Error *found = runtime_error(error);
  if (error) error_seen();
  return found ? found->name : "cudaErrorUnknown";
}

EXPORT const char *cudaGetErrorString(int error) {
  const Error *found = runtime_error(error);
  if (error) error_seen();
  return found ? found->text : "unrecognized error code";
}

/* What the compiler's code registers before main(): fat binaries, kernels and variables by the address of their host side. */
typedef struct {
  const void *image;
  Module *module;
  int error;
  /* why it cannot be loaded */
  char why[512];
} Image;

typedef struct Registered {
  const void *host;
  Image *image;
  const char *name;
  size_t bytes;
  void **managed;
  struct Registered *next;
  /* of a kernel: why it cannot run, where its image can be loaded */
  char *why;
} Registered;

enum { BUCKETS = 4096 };
static Registered *registered[BUCKETS], *managed_variables;

static size_t bucket(const void *host) { return ((uintptr_t)host >> 2) * 2654435761u % BUCKETS; }

static Registered *find(const void *host) {
  Registered *at = registered[bucket(host)];
  while (at && at->host != host) at = at->next;
  return at;
}

static void enroll(const void *host, Image *image, const char *name, size_t bytes) {
  Registered *made = calloc(1, sizeof *made);
  if (!made) return;
  *made = (Registered){host, image, name, bytes, NULL, registered[bucket(host)], NULL};
  registered[bucket(host)] = made;
}

EXPORT void **__cudaRegisterFatBinary(const void *image) {
  Image *made = calloc(1, sizeof *made);
  if (made) made->image = image;
  return (void **)made;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
EXPORT void __cudaUnregisterFatBinary(void **handle) { (void)handle, show_printf(); }

EXPORT void __cudaRegisterFunction(void **handle, const void *host, char *device, const char *name, int limit, void *thread, void *block,
                                   void *block_size, void *grid_size, int *warp) {
  (void)device, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp;
  enroll(host, (Image *)handle, name, 0);
}

EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes, int constant, int global) {
  (void)device, (void)external, (void)constant, (void)global;
  enroll(host, (Image *)handle, name, bytes);
}

EXPORT void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external, size_t bytes, int constant, int global) {
  (void)device, (void)external, (void)constant, (void)global;
  Registered *made = calloc(1, sizeof *made);
  if (!made) return;
  *made = (Registered){host, (Image *)handle, name, bytes, host, managed_variables, NULL};
  managed_variables = made;
  enroll(host, (Image *)handle, name, bytes);
}

static int load_registered(Image *image) {
  const Log log = {image->why, sizeof image->why};
  if (!image->module && !image->error) image->error = load(&image->module, image->image, &log);
  return image->error;
}

/* Managed variables: the host reads their address from a pointer that is set before main() goes on. */
EXPORT char __cudaInitModule(void **handle) {
  if (enter()) return 0;
  for (Registered *at = managed_variables; at; at = at->next) {
    Address address;
    if (at->image != (Image *)handle || load_registered(at->image)) continue;
    if (!cuModuleGetGlobal_v2(&address, NULL, at->image->module, at->name)) *at->managed = (void *)address;
  }
  return 1;
}

EXPORT void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes) { (void)handle, (void)name, (void)host, (void)bytes; }
EXPORT void __cudaRegisterTexture(void **handle) { (void)handle; }
EXPORT void __cudaRegisterSurface(void **handle) { (void)handle; }
EXPORT void __cudaRegisterUnifiedTable(void **handle) { (void)handle; }

/* What code that was compiled with a launch keeps of a kernel that is not to be had, and hands over at each launch. */
typedef struct {
  uint32_t magic;
  int error;
  const Registered *of;
} RefusedKernel;

/* A kernel from the address of its stub, or from a handle. */
static int kernel_of(const void *host, Kernel **kernel) {
  if (IS(host, KERNEL)) return *kernel = (Kernel *)host, SUCCESS;
  if (IS(host, REFUSED_KERNEL)) return ((const RefusedKernel *)host)->error;
  Registered *found = host ? find(host) : NULL;
  REQUIRE(found, INVALID_DEVICE_FUNCTION);
  int error = load_registered(found->image);
  if (error) return error;
  char why[512] = "";
  const Log log = {why, sizeof why};
  error = function_of(kernel, found->image->module, found->name, &log);
  if (error && error != NOT_FOUND && !found->why) found->why = strdup(why);
  return error == NOT_FOUND ? INVALID_DEVICE_FUNCTION : error;
}

static int symbol_of(const void *host, Address *address, size_t *bytes) {
  Registered *found = host ? find(host) : NULL;
  REQUIRE(found, INVALID_SYMBOL);
  int error = load_registered(found->image);
  return error ? error : variable_of(address, bytes, found->image->module, found->name);
}

typedef struct {
  unsigned x, y, z;
} Dim3;

typedef struct {
  Dim3 grid, block;
  size_t shared_bytes;
  void *stream;
} Call;

static _Thread_local Call calls[64];
static _Thread_local int pending;

EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes, void *stream) {
  if (pending == 64) return 1;
  calls[pending++] = (Call){grid, block, shared_bytes, stream};
  return 0;
}

EXPORT int __cudaPopCallConfiguration(Dim3 *grid, Dim3 *block, size_t *shared_bytes, void **stream) {
  REQUIRE(pending, keep(MISSING_CONFIGURATION));
  const Call *call = &calls[--pending];
  *grid = call->grid, *block = call->block, *shared_bytes = call->shared_bytes, *stream = call->stream;
  return SUCCESS;
}

/* A launch of a kernel that is not to be had. */
static int refuse_host(const void *host, const unsigned *grid, const unsigned *block, int error) {
  const Registered *of = IS(host, REFUSED_KERNEL) ? ((const RefusedKernel *)host)->of : host ? find(host) : NULL;
  return refuse_launch(of ? of->name : "", grid, block, error, !of ? "" : of->why ? of->why : of->image->why);
}

static int check_configuration(const Kernel *kernel, Dim3 grid, Dim3 block, char *why, size_t room) {
  const unsigned most[] = {0x7fffffff, 65535, 65535, 1024, 1024, 64}, given[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
  for (int i = 0; i < 6; i++) {
    if (given[i] && given[i] <= most[i]) continue;
    snprintf(why, room, "its %s has %u in %c: 1 to %u are allowed", i < 3 ? "grid" : "block", given[i], "xyz"[i % 3], most[i]);
    return INVALID_CONFIGURATION;
  }
  unsigned long threads = (unsigned long)block.x * block.y * block.z;
  if (threads <= (unsigned)kernel->attributes[0]) return SUCCESS;
  snprintf(why, room, "its block has %lu threads: this kernel may have %d", threads, kernel->attributes[0]);
  return INVALID_CONFIGURATION;
}

static int launch_host(const void *host, Dim3 grid, Dim3 block, void **arguments, size_t shared_bytes, void *stream, int cooperative) {
  Kernel *kernel;
  char why[128];
  int error = kernel_of(host, &kernel);
  if (error) return refuse_host(host, &grid.x, &block.x, error);
  error = check_configuration(kernel, grid, block, why, sizeof why);
  if (error) return refuse_launch(kernel->name, &grid.x, &block.x, error, why);
  Launch launch = {kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, {0, 0, 0}, (unsigned)shared_bytes, cooperative, NULL};
  return start(&launch, stream, arguments, NULL);
}

EXPORT int cudaLaunchKernel(const void *host, Dim3 grid, Dim3 block, void **arguments, size_t shared_bytes, void *stream) {
  LAUNCH(launch_host(host, grid, block, arguments, shared_bytes, stream, 0));
}

EXPORT int cudaLaunchCooperativeKernel(const void *host, Dim3 grid, Dim3 block, void **arguments, size_t shared_bytes, void *stream) {
  LAUNCH(launch_host(host, grid, block, arguments, shared_bytes, stream, 1));
}

static int kernel_to_keep(Kernel **kernel, const void *host) {
  int error = kernel_of(host, kernel);
  RefusedKernel *made = error ? fresh(REFUSED_KERNEL, sizeof *made) : NULL;
  if (!made) return error;
  made->error = error;
  made->of = host ? find(host) : NULL;
  *kernel = (Kernel *)made;
  return error;
}

EXPORT int __cudaGetKernel(Kernel **kernel, const void *host) { RUN(kernel_to_keep(kernel, host)); }
EXPORT int cudaGetKernel(Kernel **kernel, const void *host) { RUN(kernel_of(host, kernel)); }
EXPORT int cudaGetFuncBySymbol(Kernel **kernel, const void *host) { RUN(kernel_of(host, kernel)); }

EXPORT int __cudaLaunchKernel(Kernel *kernel, Dim3 grid, Dim3 block, void **arguments, size_t shared_bytes, void *stream) {
  /* why there is no kernel was said when it was looked for */
  if (!kernel) return keep(last_error ? last_error : INVALID_DEVICE_FUNCTION);
  LAUNCH(launch_host(kernel, grid, block, arguments, shared_bytes, stream, 0));
}

static int launch_configured(const Configuration *config, const void *host, void **arguments) {
  Kernel *kernel;
  int error = kernel_of(host, &kernel);
  return error ? refuse_host(host, config->grid, config->block, error) : cuLaunchKernelEx(config, kernel, arguments, NULL);
}

EXPORT int cudaLaunchKernelExC(const Configuration *config, const void *host, void **arguments) { LAUNCH(launch_configured(config, host, arguments)); }
EXPORT int cudaLaunchHostFunc(void *stream, HostFunction function, void *data) { RUN(cuLaunchHostFunc(stream, function, data)); }

/* Attributes of kernels. */
typedef struct {
  size_t shared_bytes, constant_bytes, local_bytes;
  int threads, registers, ptx, binary, cached, dynamic_shared, carveout, cluster_set, cluster[3], policy, non_portable;
} FunctionAttributes;

static int describe(FunctionAttributes *out, const void *host) {
  Kernel *kernel;
  int error = kernel_of(host, &kernel);
  if (error) return error;
  const int *a = kernel->attributes;
  *out = (FunctionAttributes){(size_t)a[1], (size_t)a[2], (size_t)a[3], a[0], a[4], a[5], a[6], a[7], a[8], a[9], a[10], {a[11], a[12], a[13]}, a[15], a[14]};
  return SUCCESS;
}

static int set_attribute(const void *host, int attribute, int value) {
  Kernel *kernel;
  int error = kernel_of(host, &kernel);
  return error ? error : cuFuncSetAttribute(kernel, attribute, value);
}

EXPORT int cudaFuncGetAttributes(FunctionAttributes *out, const void *host) { RUN(describe(out, host)); }
EXPORT int cudaFuncSetAttribute(const void *host, int attribute, int value) { RUN(set_attribute(host, attribute, value)); }
EXPORT int cudaKernelSetAttributeForDevice(const void *host, int attribute, int value, int device) { return (void)device, cudaFuncSetAttribute(host, attribute, value); }
EXPORT int cudaFuncSetCacheConfig(const void *host, int config) { return (void)host, (void)config, SUCCESS; }
EXPORT int cudaFuncSetSharedMemConfig(const void *host, int config) { return (void)host, (void)config, SUCCESS; }

static int name_of(const char **name, const void *host) {
  Kernel *kernel;
  int error = kernel_of(host, &kernel);
  return error ? error : cuFuncGetName(name, kernel);
}

static int parameter_of(const void *host, size_t number, size_t *offset, size_t *bytes) {
  Kernel *kernel;
  int error = kernel_of(host, &kernel);
  return error ? error : cuFuncGetParamInfo(kernel, number, offset, bytes);
}

EXPORT int cudaFuncGetName(const char **name, const void *host) { RUN(name_of(name, host)); }
EXPORT int cudaFuncGetParamInfo(const void *host, size_t number, size_t *offset, size_t *bytes) { RUN(parameter_of(host, number, offset, bytes)); }

#define WITH_KERNEL(call)               \
  Kernel *kernel;                       \
  int error = enter();                  \
  if (!error) error = kernel_of(host, &kernel); \
  return keep(error ? error : (call))

EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int block, size_t shared) { WITH_KERNEL(cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, block, shared)); }
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int block, size_t shared, unsigned flags) { WITH_KERNEL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, block, shared, flags)); }
EXPORT int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *host, int blocks, int block) { WITH_KERNEL(cuOccupancyAvailableDynamicSMemPerBlock(bytes, kernel, blocks, block)); }
EXPORT int cudaOccupancyMaxPotentialClusterSize(int *size, const void *host, const Configuration *config) { WITH_KERNEL(cuOccupancyMaxPotentialClusterSize(size, kernel, config)); }
EXPORT int cudaOccupancyMaxActiveClusters(int *clusters, const void *host, const Configuration *config) { WITH_KERNEL(cuOccupancyMaxActiveClusters(clusters, kernel, config)); }

/* The device. */
EXPORT int cudaGetDeviceCount(int *count) { RUN(cuDeviceGetCount(count)); }
EXPORT int cudaDeviceGetAttribute(int *value, int attribute, int device) { RUN(cuDeviceGetAttribute(value, attribute, device)); }
EXPORT int cudaDeviceSynchronize(void) { RUN(cuCtxSynchronize()); }
EXPORT int cudaThreadSynchronize(void) { RUN(cuCtxSynchronize()); }
EXPORT int cudaDeviceSetLimit(int limit, size_t value) { RUN(cuCtxSetLimit(limit, value)); }
EXPORT int cudaDeviceGetLimit(size_t *value, int limit) { RUN(cuCtxGetLimit(value, limit)); }
EXPORT int cudaDeviceGetCacheConfig(int *config) { RUN(cuCtxGetCacheConfig(config)); }
EXPORT int cudaDeviceSetCacheConfig(int config) { RUN(cuCtxSetCacheConfig(config)); }
EXPORT int cudaDeviceGetSharedMemConfig(int *config) { RUN(cuCtxGetSharedMemConfig(config)); }
EXPORT int cudaDeviceSetSharedMemConfig(int config) { RUN(cuCtxSetSharedMemConfig(config)); }
EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { RUN(cuCtxGetStreamPriorityRange(least, greatest)); }
EXPORT int cudaDeviceGetPCIBusId(char *name, int room, int device) { RUN(cuDeviceGetPCIBusId(name, room, device)); }
EXPORT int cudaDeviceGetByPCIBusId(int *device, const char *name) { RUN(cuDeviceGetByPCIBusId(device, name)); }
EXPORT int cudaDeviceCanAccessPeer(int *can, int device, int peer) { RUN(cuDeviceCanAccessPeer(can, device, peer)); }
EXPORT int cudaDeviceEnablePeerAccess(int peer, unsigned flags) { return (void)peer, (void)flags, keep(217); }
EXPORT int cudaDeviceDisablePeerAccess(int peer) { return (void)peer, keep(705); }
EXPORT int cudaDeviceGetP2PAttribute(int *value, int attribute, int from, int to) { RUN(cuDeviceGetP2PAttribute(value, attribute, from, to)); }
EXPORT int cudaCtxResetPersistingL2Cache(void) { RUN(cuCtxResetPersistingL2Cache()); }
EXPORT int cudaDeviceFlushGPUDirectRDMAWrites(int target, int scope) { RUN(cuFlushGPUDirectRDMAWrites(target, scope)); }
EXPORT int cudaSetDeviceFlags(unsigned flags) { return (void)flags, SUCCESS; }
EXPORT int cudaSetValidDevices(int *devices, int count) { return (void)devices, (void)count, SUCCESS; }
EXPORT int cudaProfilerStart(void) { return SUCCESS; }
EXPORT int cudaProfilerStop(void) { return SUCCESS; }
EXPORT int cudaDriverGetVersion(int *version) { return cuDriverGetVersion(version); }

static int is_device(int device) { return device == 0 ? SUCCESS : INVALID_DEVICE; }

EXPORT int cudaSetDevice(int device) { RUN(is_device(device)); }
EXPORT int cudaInitDevice(int device, unsigned flags, unsigned more) { return (void)flags, (void)more, cudaSetDevice(device); }

EXPORT int cudaGetDevice(int *device) {
  REQUIRE(device, keep(INVALID_VALUE));
  *device = 0;
  RUN(SUCCESS);
}

EXPORT int cudaChooseDevice(int *device, const void *properties) { return (void)properties, cudaGetDevice(device); }

EXPORT int cudaGetDeviceFlags(unsigned *flags) {
  REQUIRE(flags, keep(INVALID_VALUE));
  *flags = 8;
  return SUCCESS;
}

EXPORT int cudaRuntimeGetVersion(int *version) {
  REQUIRE(version, keep(INVALID_VALUE));
  *version = major() * 1000;
  return SUCCESS;
}

EXPORT int cudaDeviceReset(void) {
  show_printf();
  last_error = SUCCESS;
  int status = cuDevicePrimaryCtxReset_v2(0);
  /* variables have their first values again, and the managed ones another place */
  for (Registered *at = managed_variables; at && !status; at = at->next)
    if (at->image->module) __cudaInitModule((void **)at->image);
  return status;
}

/* Properties, field by field: numbers of attributes, as int (I) or size_t (S), zeros (Z); OLD ones are gone in version 13. */
typedef struct {
  char kind;
  short attribute;
  char old;
} Field;

#define I(n) {'I', n, 0}
#define S(n) {'S', n, 0}
#define OLD(n) {'I', n, 1}
static const Field fields[] = {
    S(8), I(12), I(10), S(11), I(1), I(2), I(3), I(4), I(5), I(6), I(7), OLD(13), S(9), I(75), I(76), S(14), S(51), OLD(15), I(16), OLD(17),
    I(18), I(19), OLD(20), I(21), I(77), OLD(69), I(22), I(23), I(73), I(74), I(70), I(71), I(72), I(45), I(46), I(24), I(25), I(26), I(47),
    I(48), I(49), I(52), I(42), I(43), I(27), I(28), I(29), I(53), I(54), I(55), I(56), I(57), I(58), I(59), I(60), I(61), I(62), I(63), I(64),
    I(65), I(66), I(67), I(68), S(30), I(31), I(32), I(33), I(34), I(50), I(35), I(40), I(41), OLD(36), I(37), I(38), I(108), I(39), I(78),
    I(79), I(80), S(81), I(82), I(83), I(84), I(85), I(86), OLD(87), I(88), I(89), I(90), I(91), I(95), OLD(96), S(97), I(100), I(101),
    I(106), I(109), S(111), I(99), I(112), I(113), I(114), I(115), I(116), I(117), I(118), I(119), I(121), I(125), I(120), I(129)};

static char *put_field(char *out, char *at, const Field *field) {
  size_t wide = field->kind == 'S' ? 8 : 4;
  at = out + ((size_t)(at - out) + wide - 1) / wide * wide;
  memcpy(at, &hello.words[field->attribute], wide);
  return at + wide;
}

static int properties(char *out, int device, int old) {
  REQUIRE(out, INVALID_VALUE);
  REQUIRE(device == 0, INVALID_DEVICE);
  /* name, identity, LUID and its mask, memory, the fields, and room for later ones */
  memset(out, 0, old ? 1032 : 1008);
  snprintf(out, 256, "%s", hello.data);
  cuDeviceGetUuid_v2(out + 256, 0);
  char *at = out + 288;
  memcpy(at, &hello.words[0], 8);
  at += 8;
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (old || !fields[i].old) at = put_field(out, at, &fields[i]);
  return SUCCESS;
}

EXPORT int cudaGetDeviceProperties(char *out, int device) { RUN(properties(out, device, major() < 13)); }
EXPORT int cudaGetDeviceProperties_v2(char *out, int device) { RUN(properties(out, device, 1)); }

/* Memory. */
EXPORT int cudaMallocHost(Address *address, size_t bytes) { RUN(bytes ? cuMemAllocHost_v2(address, bytes) : (*address = 0, SUCCESS)); }
EXPORT int cudaHostAlloc(Address *address, size_t bytes, unsigned flags) { RUN(bytes ? cuMemHostAlloc(address, bytes, flags) : (*address = 0, SUCCESS)); }
EXPORT int cudaMallocManaged(Address *address, size_t bytes, unsigned flags) { RUN(cuMemAllocManaged(address, bytes, flags)); }
EXPORT int cudaMallocAsync(Address *address, size_t bytes, void *stream) { RUN(bytes ? cuMemAllocAsync(address, bytes, stream) : (*address = 0, SUCCESS)); }
EXPORT int cudaMallocFromPoolAsync(Address *address, size_t bytes, Pool *pool, void *stream) { RUN(cuMemAllocFromPoolAsync(address, bytes, pool, stream)); }
EXPORT int cudaMallocPitch(Address *address, size_t *pitch, size_t width, size_t height) { RUN(cuMemAllocPitch_v2(address, pitch, width, height, 4)); }
EXPORT int cudaFreeHost(void *address) { RUN(cuMemFreeHost(address)); }
EXPORT int cudaFreeAsync(Address address, void *stream) { RUN(cuMemFreeAsync(address, stream)); }
EXPORT int cudaHostRegister(void *host, size_t bytes, unsigned flags) { RUN(cuMemHostRegister_v2(host, bytes, flags)); }
EXPORT int cudaHostUnregister(void *host) { RUN(cuMemHostUnregister(host)); }
EXPORT int cudaHostGetDevicePointer(Address *address, void *host, unsigned flags) { RUN(cuMemHostGetDevicePointer_v2(address, host, flags)); }
EXPORT int cudaHostGetFlags(unsigned *flags, void *host) { RUN(cuMemHostGetFlags(flags, host)); }
EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total) { RUN(cuMemGetInfo_v2(free_bytes, total)); }

EXPORT int cudaMalloc(Address *address, size_t bytes) {
  REQUIRE(address, keep(INVALID_VALUE));
  if (!bytes) *address = 0;
  RUN(bytes ? cuMemAlloc_v2(address, bytes) : SUCCESS);
}

/* waiting for what still runs is what programs call cudaFree(0) for */
EXPORT int cudaFree(Address address) {
  show_printf();
  RUN(cuMemFree_v2(address));
}

typedef struct {
  Address address;
  size_t pitch, width, height;
} Pitched;

typedef struct {
  size_t width, height, depth;
} Extent;

static int allocate_3d(Pitched *out, Extent extent) {
  size_t pitch;
  Address address;
  int error = cuMemAllocPitch_v2(&address, &pitch, extent.width, extent.height * extent.depth, 4);
  if (!error) *out = (Pitched){address, pitch, extent.width, extent.height};
  return error;
}

EXPORT int cudaMalloc3D(Pitched *out, Extent extent) { RUN(allocate_3d(out, extent)); }

typedef struct {
  int type, device;
  void *on_device, *on_host;
} PointerAttributes;

static int describe_pointer(PointerAttributes *out, Address address) {
  Range range;
  REQUIRE(out, INVALID_VALUE);
  *out = (PointerAttributes){0, -2, NULL, (void *)address};
  if (range_of(address, &range)) return SUCCESS;
  int host = range.kind == HOST_MEMORY, managed = range.kind == MANAGED_MEMORY;
  *out = (PointerAttributes){host ? 1 : managed ? 3 : 2, 0, (void *)address, host || managed ? (void *)address : NULL};
  return SUCCESS;
}

EXPORT int cudaPointerGetAttributes(PointerAttributes *out, Address address) { RUN(describe_pointer(out, address)); }

static int now_on_host(int error) {
  show_printf();
  return error;
}

enum { TO_DEVICE = 1, FROM_DEVICE = 2, BETWEEN = 3, BY_ADDRESS = 4 };

/* What a kind of copy says of its sides; less than 0 where there is no such kind. */
static int named_by_kind(int kind) {
  static const int named[] = {HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, NOT_NAMED};
  return kind < 0 || kind > BY_ADDRESS ? -1 : named[kind];
}

static int row(Address dst, Address src, size_t n, int kind, void *stream) {
  int named = named_by_kind(kind);
  return named < 0 ? INVALID_DIRECTION : copy_line(dst, src, n, named, stream);
}

static int rows(Address dst, size_t dst_pitch, Address src, size_t src_pitch, size_t width, size_t height, int kind, void *stream) {
  Copy copy;
  const size_t extent[] = {width, height, 1};
  REQUIRE(named_by_kind(kind) >= 0, INVALID_DIRECTION);
  REQUIRE(height < 2 || (width <= dst_pitch && width <= src_pitch), INVALID_PITCH);
  int error = box_of(&copy, dst, dst_pitch, 0, src, src_pitch, 0, extent);
  if (!error) copy.named = named_by_kind(kind);
  return error ? error : submit_copy(&copy, stream);
}

EXPORT int cudaMemcpy(Address dst, Address src, size_t n, int kind) { RUN(now_on_host(row(dst, src, n, kind, NULL))); }
EXPORT int cudaMemcpyAsync(Address dst, Address src, size_t n, int kind, void *stream) { RUN(row(dst, src, n, kind, stream)); }
EXPORT int cudaMemcpyPeer(Address dst, int to, Address src, int from, size_t n) { RUN(to || from ? INVALID_DEVICE : now_on_host(row(dst, src, n, BETWEEN, NULL))); }
EXPORT int cudaMemcpyPeerAsync(Address dst, int to, Address src, int from, size_t n, void *stream) { RUN(to || from ? INVALID_DEVICE : row(dst, src, n, BETWEEN, stream)); }
EXPORT int cudaMemcpy2D(Address dst, size_t dp, Address src, size_t sp, size_t w, size_t h, int kind) { RUN(now_on_host(rows(dst, dp, src, sp, w, h, kind, NULL))); }
EXPORT int cudaMemcpy2DAsync(Address dst, size_t dp, Address src, size_t sp, size_t w, size_t h, int kind, void *stream) { RUN(rows(dst, dp, src, sp, w, h, kind, stream)); }

typedef struct {
  void *array;
  size_t x, y, z;
  Pitched at;
} Side;

typedef struct {
  Side src, dst;
  Extent extent;
  int kind;
} Copy3DParameters;

/* Where a side begins, and the rows of its layers. */
static size_t rows_of(const Side *side, const Extent *extent) { return side->at.height ? side->at.height : extent->height; }
static Address begin_of(const Side *side, size_t rows) { return side->at.address + (side->z * rows + side->y) * side->at.pitch + side->x; }

static int between_sides(const Side *src, const Side *dst, const Extent *extent, int named, Copy *copy) {
  if (src->array || dst->array) return no_arrays();
  size_t from = rows_of(src, extent), to = rows_of(dst, extent);
  const size_t given[] = {extent->width, extent->height, extent->depth};
  int several = extent->height > 1 || extent->depth > 1;
  REQUIRE(!several || (src->at.pitch >= extent->width && dst->at.pitch >= extent->width), INVALID_PITCH);
  int error = box_of(copy, begin_of(dst, to), dst->at.pitch, to, begin_of(src, from), src->at.pitch, from, given);
  if (!error) copy->named = named;
  return error;
}

static int box(const Copy3DParameters *from, Copy *copy) {
  REQUIRE(from, INVALID_VALUE);
  int named = named_by_kind(from->kind);
  REQUIRE(named >= 0, INVALID_DIRECTION);
  return between_sides(&from->src, &from->dst, &from->extent, named, copy);
}

/* Copies between devices, of which there is one. */
typedef struct {
  Side src;
  int src_device;
  Side dst;
  int dst_device;
  Extent extent;
} PeerParameters;

static int copy_peer_box(const PeerParameters *from, void *stream) {
  Copy copy;
  REQUIRE(from, INVALID_VALUE);
  REQUIRE(!from->src_device && !from->dst_device, INVALID_DEVICE);
  int error = between_sides(&from->src, &from->dst, &from->extent, DEVICE_TO_DEVICE, &copy);
  return error ? error : submit_copy(&copy, stream);
}

EXPORT int cudaMemcpy3DPeer(const PeerParameters *from) { RUN(now_on_host(copy_peer_box(from, NULL))); }
EXPORT int cudaMemcpy3DPeerAsync(const PeerParameters *from, void *stream) { RUN(copy_peer_box(from, stream)); }

static int copy_box(const Copy3DParameters *from, void *stream) {
  Copy copy;
  int error = box(from, &copy);
  return error ? error : submit_copy(&copy, stream);
}

EXPORT int cudaMemcpy3D(const Copy3DParameters *from) { RUN(now_on_host(copy_box(from, NULL))); }
EXPORT int cudaMemcpy3DAsync(const Copy3DParameters *from, void *stream) { RUN(copy_box(from, stream)); }

/* The other side of a copy to (TO_DEVICE) or from a symbol may lie on the device as well. */
static int suits_symbol(int kind, int wanted) { return kind == wanted || kind == BETWEEN || kind == BY_ADDRESS; }

static int to_symbol(const void *symbol, Address src, size_t n, size_t offset, int kind, void *stream) {
  Address address;
  size_t bytes;
  int error = symbol_of(symbol, &address, &bytes);
  REQUIRE(error || offset + n <= bytes, INVALID_VALUE);
  REQUIRE(error || suits_symbol(kind, TO_DEVICE), INVALID_DIRECTION);
  return error ? error : row(address + offset, src, n, kind, stream);
}

static int from_symbol(Address dst, const void *symbol, size_t n, size_t offset, int kind, void *stream) {
  Address address;
  size_t bytes;
  int error = symbol_of(symbol, &address, &bytes);
  REQUIRE(error || offset + n <= bytes, INVALID_VALUE);
  REQUIRE(error || suits_symbol(kind, FROM_DEVICE), INVALID_DIRECTION);
  return error ? error : row(dst, address + offset, n, kind, stream);
}

EXPORT int cudaMemcpyToSymbol(const void *symbol, Address src, size_t n, size_t offset, int kind) { RUN(to_symbol(symbol, src, n, offset, kind, NULL)); }
EXPORT int cudaMemcpyFromSymbol(Address dst, const void *symbol, size_t n, size_t offset, int kind) { RUN(now_on_host(from_symbol(dst, symbol, n, offset, kind, NULL))); }
EXPORT int cudaMemcpyToSymbolAsync(const void *symbol, Address src, size_t n, size_t offset, int kind, void *stream) { RUN(to_symbol(symbol, src, n, offset, kind, stream)); }
EXPORT int cudaMemcpyFromSymbolAsync(Address dst, const void *symbol, size_t n, size_t offset, int kind, void *stream) { RUN(from_symbol(dst, symbol, n, offset, kind, stream)); }
EXPORT int cudaGetSymbolAddress(Address *address, const void *symbol) { RUN(symbol_of(symbol, address, NULL)); }
EXPORT int cudaGetSymbolSize(size_t *bytes, const void *symbol) { RUN(symbol_of(symbol, NULL, bytes)); }

EXPORT int cudaMemset(Address dst, int value, size_t n) { RUN(cuMemsetD8_v2(dst, (unsigned char)value, n)); }
EXPORT int cudaMemsetAsync(Address dst, int value, size_t n, void *stream) { RUN(cuMemsetD8Async(dst, (unsigned char)value, n, stream)); }
EXPORT int cudaMemset2D(Address dst, size_t pitch, int value, size_t w, size_t h) { RUN(cuMemsetD2D8_v2(dst, pitch, (unsigned char)value, w, h)); }
EXPORT int cudaMemset2DAsync(Address dst, size_t pitch, int value, size_t w, size_t h, void *stream) { RUN(cuMemsetD2D8Async(dst, pitch, (unsigned char)value, w, h, stream)); }
EXPORT int cudaMemset3D(Pitched to, int value, Extent extent) { RUN(cuMemsetD2D8_v2(to.address, to.pitch, (unsigned char)value, extent.width, extent.height * extent.depth)); }
EXPORT int cudaMemset3DAsync(Pitched to, int value, Extent extent, void *stream) { RUN(cuMemsetD2D8Async(to.address, to.pitch, (unsigned char)value, extent.width, extent.height * extent.depth, stream)); }
EXPORT int cudaMemAdvise(Address address, size_t bytes, int advice, uint64_t location) { (void)address, (void)bytes, (void)advice, (void)location; RUN(SUCCESS); }
EXPORT int cudaMemPrefetchAsync(Address address, size_t bytes, uint64_t location, unsigned flags, void *stream) { (void)address, (void)bytes, (void)location, (void)flags, (void)stream; RUN(SUCCESS); }

EXPORT int cudaDeviceGetDefaultMemPool(Pool **pool, int device) { RUN(cuDeviceGetDefaultMemPool(pool, device)); }
EXPORT int cudaDeviceGetMemPool(Pool **pool, int device) { RUN(cuDeviceGetMemPool(pool, device)); }
EXPORT int cudaDeviceSetMemPool(int device, Pool *pool) { RUN(cuDeviceSetMemPool(device, pool)); }
EXPORT int cudaMemPoolCreate(Pool **pool, const void *properties) { RUN(cuMemPoolCreate(pool, properties)); }
EXPORT int cudaMemPoolDestroy(Pool *pool) { RUN(cuMemPoolDestroy(pool)); }
EXPORT int cudaMemPoolTrimTo(Pool *pool, size_t bytes) { RUN(cuMemPoolTrimTo(pool, bytes)); }
EXPORT int cudaMemPoolSetAttribute(Pool *pool, int attribute, const void *value) { RUN(cuMemPoolSetAttribute(pool, attribute, value)); }
EXPORT int cudaMemPoolGetAttribute(Pool *pool, int attribute, void *value) { RUN(cuMemPoolGetAttribute(pool, attribute, value)); }
EXPORT int cudaMemPoolSetAccess(Pool *pool, const void *map, size_t count) { RUN(cuMemPoolSetAccess(pool, map, count)); }
EXPORT int cudaMemGetDefaultMemPool(Pool **pool, const int *location, int type) { RUN(cuMemGetDefaultMemPool(pool, location, type)); }
EXPORT int cudaMemGetMemPool(Pool **pool, const int *location, int type) { RUN(cuMemGetMemPool(pool, location, type)); }
EXPORT int cudaMemSetMemPool(const int *location, int type, Pool *pool) { RUN(cuMemSetMemPool(location, type, pool)); }
EXPORT int cudaMemPoolGetAccess(int *flags, Pool *pool, void *location) { RUN(cuMemPoolGetAccess(flags, pool, location)); }

/* Streams and events. */
EXPORT int cudaStreamCreate(Stream **stream) { RUN(cuStreamCreate(stream, 0)); }
EXPORT int cudaStreamCreateWithFlags(Stream **stream, unsigned flags) { RUN(cuStreamCreate(stream, flags)); }
EXPORT int cudaStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) { RUN(cuStreamCreateWithPriority(stream, flags, priority)); }
EXPORT int cudaStreamDestroy(Stream *stream) { RUN(cuStreamDestroy_v2(stream)); }
EXPORT int cudaStreamGetPriority(void *stream, int *priority) { RUN(cuStreamGetPriority(stream, priority)); }
EXPORT int cudaStreamGetFlags(void *stream, unsigned *flags) { RUN(cuStreamGetFlags(stream, flags)); }
EXPORT int cudaStreamGetId(void *stream, unsigned long long *id) { RUN(cuStreamGetId(stream, id)); }
EXPORT int cudaStreamGetDevice(void *stream, int *device) { RUN(cuStreamGetDevice(stream, device)); }
EXPORT int cudaStreamSynchronize(void *stream) { RUN(cuStreamSynchronize(stream)); }
EXPORT int cudaStreamQuery(void *stream) { RUN(cuStreamQuery(stream)); }
EXPORT int cudaStreamWaitEvent(void *stream, Event *event, unsigned flags) { RUN(cuStreamWaitEvent(stream, event, flags)); }
EXPORT int cudaStreamAddCallback(void *stream, void (*function)(void *, int, void *), void *data, unsigned flags) { RUN(cuStreamAddCallback(stream, function, data, flags)); }
EXPORT int cudaStreamCopyAttributes(void *to, void *from) { RUN(cuStreamCopyAttributes(to, from)); }
EXPORT int cudaStreamGetAttribute(void *stream, int attribute, void *value) { RUN(cuStreamGetAttribute(stream, attribute, value)); }
EXPORT int cudaStreamSetAttribute(void *stream, int attribute, const void *value) { RUN(cuStreamSetAttribute(stream, attribute, value)); }
EXPORT int cudaStreamAttachMemAsync(void *stream, Address address, size_t bytes, unsigned flags) { RUN(cuStreamAttachMemAsync(stream, address, bytes, flags)); }
EXPORT int cudaEventCreate(Event **event) { RUN(cuEventCreate(event, 0)); }
EXPORT int cudaEventCreateWithFlags(Event **event, unsigned flags) { RUN(cuEventCreate(event, flags)); }
EXPORT int cudaEventRecord(Event *event, void *stream) { RUN(cuEventRecord(event, stream)); }
EXPORT int cudaEventRecordWithFlags(Event *event, void *stream, unsigned flags) { RUN(cuEventRecordWithFlags(event, stream, flags)); }
EXPORT int cudaEventQuery(Event *event) { RUN(cuEventQuery(event)); }
EXPORT int cudaEventSynchronize(Event *event) { RUN(cuEventSynchronize(event)); }
EXPORT int cudaEventDestroy(Event *event) { RUN(cuEventDestroy_v2(event)); }
EXPORT int cudaEventElapsedTime(float *milliseconds, Event *start_event, Event *end) { RUN(cuEventElapsedTime_v2(milliseconds, start_event, end)); }
EXPORT int cudaStreamBeginCapture(void *stream, int mode) { RUN(cuStreamBeginCapture_v2(stream, mode)); }
EXPORT int cudaStreamBeginCaptureToGraph(void *stream, Graph *graph, Node *const *before, const void *edges, size_t count, int mode) { RUN(cuStreamBeginCaptureToGraph(stream, graph, before, edges, count, mode)); }
EXPORT int cudaStreamEndCapture(void *stream, Graph **graph) { RUN(cuStreamEndCapture(stream, graph)); }
EXPORT int cudaStreamIsCapturing(void *stream, int *status) { RUN(cuStreamIsCapturing(stream, status)); }
EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode) { RUN(cuThreadExchangeStreamCaptureMode(mode)); }
EXPORT int cudaStreamGetCaptureInfo_v2(void *stream, int *status, uint64_t *id, Graph **graph, Node *const **before, size_t *count) { RUN(cuStreamGetCaptureInfo_v2(stream, status, id, graph, before, count)); }
EXPORT int cudaStreamGetCaptureInfo(void *stream, int *status, uint64_t *id, Graph **graph, Node *const **before, const void **edges, size_t *count) { RUN(cuStreamGetCaptureInfo_v3(stream, status, id, graph, before, edges, count)); }
EXPORT int cudaStreamUpdateCaptureDependencies_v2(void *stream, Node **nodes, const void *edges, size_t count, unsigned flags) { RUN(cuStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags)); }

/* Libraries of kernels that the program loads itself, and the driver's functions. */
EXPORT int cudaLibraryLoadData(Module **module, const void *image, const int *options, void **values, unsigned count, const int *more, void **more_values, unsigned more_count) { RUN(cuLibraryLoadData(module, image, options, values, count, more, more_values, more_count)); }
EXPORT int cudaLibraryLoadFromFile(Module **module, const char *name, const int *options, void **values, unsigned count, const int *more, void **more_values, unsigned more_count) { RUN(cuLibraryLoadFromFile(module, name, options, values, count, more, more_values, more_count)); }
EXPORT int cudaLibraryUnload(Module *module) { RUN(cuLibraryUnload(module)); }
EXPORT int cudaLibraryGetKernel(Kernel **kernel, Module *module, const char *name) { RUN(cuLibraryGetKernel(kernel, module, name)); }
EXPORT int cudaLibraryGetGlobal(Address *address, size_t *bytes, Module *module, const char *name) { RUN(cuLibraryGetGlobal(address, bytes, module, name)); }
EXPORT int cudaLibraryGetManaged(Address *address, size_t *bytes, Module *module, const char *name) { RUN(cuLibraryGetManaged(address, bytes, module, name)); }
EXPORT int cudaLibraryGetKernelCount(unsigned *count, Module *module) { RUN(cuLibraryGetKernelCount(count, module)); }
EXPORT int cudaLibraryEnumerateKernels(Kernel **list, unsigned room, Module *module) { RUN(cuLibraryEnumerateKernels(list, room, module)); }

static int entry_point(const char *name, void **function, unsigned version, int *status) {
  int found = 0, error = cuGetProcAddress_v2(name, function, (int)version, 0, &found);
  if (status) *status = found;
  return status ? SUCCESS : error;
}

EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, uint64_t flags, int *status) { (void)flags; RUN(entry_point(name, function, version, status)); }
EXPORT int cudaGetDriverEntryPoint(const char *name, void **function, uint64_t flags, int *status) { (void)flags; RUN(entry_point(name, function, (unsigned)major() * 1000, status)); }
EXPORT int cudaGetExportTable(const void **table, const unsigned char *id) { RUN(cuGetExportTable(table, id)); }

EXPORT int cudaUserObjectCreate(void **object, void *pointer, HostFunction destroy, unsigned count, unsigned flags) { RUN(cuUserObjectCreate(object, pointer, destroy, count, flags)); }
EXPORT int cudaUserObjectRetain(void *object, unsigned count) { RUN(cuUserObjectRetain(object, count)); }
EXPORT int cudaUserObjectRelease(void *object, unsigned count) { RUN(cuUserObjectRelease(object, count)); }
