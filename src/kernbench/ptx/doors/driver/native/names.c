/* How programs find functions: by name and version, through private tables of the CUDA runtime, and errors in words. */
#include <dlfcn.h>

#include "driver.h"

typedef int (*Function)(void);

typedef struct {
  const char *part, *advice;
} Advice;

#define NO_MAPPING ": virtual memory cannot be mapped by the program; allocate with cuMemAlloc (in torch, expandable_segments:False)"
#define NO_ARRAYS ": CUDA arrays, textures and surfaces are not there; use linear memory and pointers"
#define NO_SHARING ": memory is not shared between processes; use one process, or copy through the host"
#define NO_GRAPHICS ": graphics need a GPU; keep the data in linear memory"

/* What to do without a function, by a part of its name; the first that fits. */
static const Advice advices[] = {
    {"Graphics", NO_GRAPHICS},
    {"GL", NO_GRAPHICS},
    {"External", ": memory and semaphores of other APIs are not there; allocate with cuMemAlloc"},
    {"Ipc", NO_SHARING},
    {"Shareable", NO_SHARING},
    {"PoolExport", NO_SHARING},
    {"PoolImport", NO_SHARING},
    {"Conditional", ": graphs have no conditional nodes; decide on the host and launch one of two graphs"},
    {"MemOp", ": waits and writes in batches are not there; use cuStreamWaitValue32 and cuStreamWriteValue32"},
    {"Multicast", ": there is one GPU, and nothing to multicast to"},
    {"Tex", ": textures are not there; read through a pointer in the kernel, as with __ldg"},
    {"Surf", ": surfaces are not there; write through a pointer in the kernel"},
    {"Array", NO_ARRAYS},
    {"cuMemcpyAto", NO_ARRAYS},
    {"toA_v2", NO_ARRAYS},
    {"HtoAAsync", NO_ARRAYS},
    {"cuMemAddress", NO_MAPPING},
    {"cuMemCreate", NO_MAPPING},
    {"cuMemMap", NO_MAPPING},
    {"cuMemUnmap", NO_MAPPING},
    {"cuMemSetAccess", NO_MAPPING},
    {"AllocationGranularity", NO_MAPPING},
    {"Green", ": SMs are not divided among contexts; use an ordinary context"},
};

const char *instead_of(const char *name) {
  for (size_t i = 0; i < sizeof advices / sizeof *advices; i++)
    if (strstr(name, advices[i].part)) return advices[i].advice;
  return "";
}

static int missing(const char *name) {
  complain("%s is not emulated; it returns CUDA_ERROR_NOT_SUPPORTED%s", name, instead_of(name));
  return NOT_SUPPORTED;
}

EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found);
EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags);
EXPORT int cuGetExportTable(const void **table, const unsigned char *id);
EXPORT int cuGetErrorName(int error, const char **name);
EXPORT int cuGetErrorString(int error, const char **text);

#define FORM(name, function)
#define LATER(name, version, function)
#define ALIAS(name, function) extern __typeof__(function) name __attribute__((alias(#function), visibility("default")));
#define MISSING(name)                          \
  EXPORT int name(void) {                      \
    static int said;                           \
    return said++ ? NOT_SUPPORTED : missing(#name); \
  }
#include "functions.def"
#undef FORM
#undef LATER
#undef ALIAS
#undef MISSING

typedef struct {
  const char *name;
  int version;
  Function function;
} Entry;

#define FORM(name, function) {#name, 0, (Function)function},
#define LATER(name, version, function) {#name, version, (Function)function},
#define ALIAS(name, function)
#define MISSING(name) {#name, 0, name},
static const Entry entries[] = {
#include "functions.def"
};
#undef FORM
#undef LATER
#undef ALIAS
#undef MISSING

/* `cuFoo_v2` of the missing ones is asked for as `cuFoo`. */
static int names(const char *entry, const char *asked) {
  size_t length = strlen(asked);
  return strncmp(entry, asked, length) == 0 && (!entry[length] || (entry[length] == '_' && entry[length + 1] == 'v'));
}

EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found) {
  const Entry *best = NULL;
  (void)flags;
  REQUIRE(name && function, INVALID_VALUE);
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
    if (names(entries[i].name, name) && entries[i].version <= version) best = &entries[i];
  *function = best ? (void *)best->function : NULL;
  if (found) *found = best ? 0 : 1;
  return best ? SUCCESS : NOT_FOUND;
}

EXPORT int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* Private tables of NVIDIA's driver are not offered. This is the first that NVIDIA's runtime cannot do without. Who asks for it is
 * such a runtime, in which no function was replaced; or one of which only those functions were that its library exports, as CuTe
 * DSL's does: it asks when a function that nobody needs is called, and is not worth a word. */
static const unsigned char runtime_table[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

/* Libraries that NVIDIA gives out ready-built, as machine code: nobody can link them in another way. */
static int ready_built(const char *file) {
  static const char *const names[] = {"libcublas", "libcudnn", "libcufft", "libcurand", "libcusolver", "libcusparse", "libnccl", "libnpp", "libnvjpeg"};
  const char *stroke = strrchr(file, '/');
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strncmp(stroke ? stroke + 1 : file, names[i], strlen(names[i]))) return 1;
  return 0;
}

static void cannot_stand_in(const char *file) {
  if (ready_built(file))
    complain("%s is machine code of NVIDIA's, for NVIDIA's driver only, and cannot be emulated: compute this step on the host, or by "
             "a kernel that is compiled to PTX", file);
  else
    complain("%s has NVIDIA's CUDA runtime linked in, which accepts NVIDIA's driver only, and its symbols were removed, so that "
             "kernbench cannot stand in for it: link with -cudart shared, or do not strip the program",
             *file ? file : "this program");
}

EXPORT __attribute__((noinline)) int cuGetExportTable(const void **table, const unsigned char *id) {
  static const void *named[16];
  Dl_info caller = {0};
  REQUIRE(table && id, INVALID_VALUE);
  *table = NULL;
  if (memcmp(id, runtime_table, sizeof runtime_table)) return NOT_FOUND;
  if (!dladdr(__builtin_return_address(0), &caller) || stands_in((uintptr_t)caller.dli_fbase)) return NOT_FOUND;
  for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
    if (named[i] == caller.dli_fbase) break;
    if (named[i]) continue;
    named[i] = caller.dli_fbase;
    cannot_stand_in(caller.dli_fname ? caller.dli_fname : "");
    break;
  }
  return NOT_FOUND;
}

typedef struct {
  int code;
  const char *name, *text;
} Error;

static const Error errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed because of a structural change"},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "misconfigured cluster size"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

/* codes of the runtime API alone */
static const Error runtime_errors[] = {
    {9, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {12, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {13, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {52, "cudaErrorMissingConfiguration", "__global__ function call is not configured"},
    {98, "cudaErrorInvalidDeviceFunction", "invalid device function"},
};

static const Error *error_of(int code) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) return &errors[i];
  return NULL;
}

EXPORT int cuGetErrorName(int code, const char **name) {
  const Error *found = error_of(code);
  if (code) error_seen();
  REQUIRE(name, INVALID_VALUE);
  *name = found ? found->name : NULL;
  return found ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuGetErrorString(int code, const char **text) {
  const Error *found = error_of(code);
  if (code) error_seen();
  REQUIRE(text, INVALID_VALUE);
  *text = found ? found->text : NULL;
  return found ? SUCCESS : INVALID_VALUE;
}

/* The runtime has names of its own for the driver's codes. */
static const Error *runtime_error(int code) {
  static const Error renamed[] = {
      {0, "cudaSuccess", "no error"},
      {1, "cudaErrorInvalidValue", "invalid argument"},
      {2, "cudaErrorMemoryAllocation", "out of memory"},
      {3, "cudaErrorInitializationError", "initialization error"},
      {4, "cudaErrorCudartUnloading", "driver shutting down"},
      {100, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
      {101, "cudaErrorInvalidDevice", "invalid device ordinal"},
      {200, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
      {201, "cudaErrorDeviceUninitialized", "invalid device context"},
      {209, "cudaErrorNoKernelImageForDevice", "no kernel image is available for execution on the device"},
      {215, "cudaErrorUnsupportedLimit", "limit is not supported on this architecture"},
      {217, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
      {218, "cudaErrorInvalidPtx", "a PTX JIT compilation failed"},
      {301, "cudaErrorFileNotFound", "file not found"},
      {304, "cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
      {400, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
      {401, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
      {500, "cudaErrorSymbolNotFound", "named symbol not found"},
      {600, "cudaErrorNotReady", "device not ready"},
      {700, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
      {701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
      {702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
      {705, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
      {710, "cudaErrorAssert", "device-side assert triggered"},
      {712, "cudaErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
      {713, "cudaErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
      {719, "cudaErrorLaunchFailure", "unspecified launch failure"},
      {720, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
      {801, "cudaErrorNotSupported", "operation not supported"},
      {900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
      {901, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
      {902, "cudaErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"},
      {903, "cudaErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"},
      {904, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
      {907, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
      {910, "cudaErrorGraphExecUpdateFailure", "the graph update was not performed because of a structural change"},
      {912, "cudaErrorInvalidClusterSize", "misconfigured cluster size"},
      {999, "cudaErrorUnknown", "unknown error"},
  };
  for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
    if (renamed[i].code == code) return &renamed[i];
  for (size_t i = 0; i < sizeof runtime_errors / sizeof *runtime_errors; i++)
    if (runtime_errors[i].code == code) return &runtime_errors[i];
  return error_of(code);
}
