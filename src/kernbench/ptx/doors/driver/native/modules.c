/* Modules, libraries and their kernels. A library is a module that needs no context; a CUkernel is a CUfunction. */
#include <dlfcn.h>

#include "driver.h"

enum { FATBIN_WRAPPER = 0x466243b1, FATBIN = 0xba55ed50, FATBIN_HEADER_BYTES = 16 };

typedef struct {
  uint32_t magic, version;
  const void *data;
  const void *const *more;
} Wrapper;

typedef struct {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
} FatBinary;

static size_t elf_bytes(const unsigned char *image) {
  uint64_t sections, programs, end;
  uint16_t size, count;
  memcpy(&programs, image + 32, 8);
  memcpy(&sections, image + 40, 8);
  memcpy(&size, image + 54, 2);
  memcpy(&count, image + 56, 2);
  end = programs + (uint64_t)size * count;
  memcpy(&size, image + 58, 2);
  memcpy(&count, image + 60, 2);
  return sections + (uint64_t)size * count > end ? sections + (uint64_t)size * count : end;
}

static size_t image_bytes(const void *image) {
  const FatBinary *header = image;
  if (header->magic == FATBIN) return header->header_bytes + header->bytes;
  if (memcmp(image, "\177ELF", 4) == 0) return elf_bytes(image);
  return strlen(image);
}

/* A wrapper of version 2 has a list of fat binaries that the runtime links: they are sent one behind the other. */
static char *gather(const Wrapper *wrapper, size_t *bytes) {
  char *all = NULL;
  *bytes = 0;
  for (const void *const *at = wrapper->more; *at; at++) {
    size_t more = image_bytes(*at);
    char *longer = realloc(all, *bytes + more);
    if (!longer) break;
    all = longer;
    memcpy(all + *bytes, *at, more);
    *bytes += more;
  }
  return all;
}

typedef struct {
  char *text;
  size_t room;
} Log;

static void find_log(Log *log, unsigned count, const int *options, void **values) {
  for (unsigned i = 0; i < count && options && values; i++) {
    if (options[i] == 5) log->text = values[i];
    if (options[i] == 6) log->room = (size_t)(uintptr_t)values[i];
  }
}

/* why an image could not be loaded the last time: a program that passed over it has no kernel to launch */
static _Thread_local char last_refusal[512];

/* The file of the program or library that an image is part of, which its author can compile again; "" for all others. */
static const char *file_of(const void *image) {
  Dl_info found;
  return image && dladdr(image, &found) && found.dli_fname ? found.dli_fname : "";
}

/* `data` is the image, or a copy of it; the name of its file stands before it. */
static int load_bytes(Module **module, const void *data, size_t bytes, const void *image, const Log *log) {
  Reply reply;
  const char *file = file_of(image);
  size_t length = strlen(file);
  char *sent = malloc(length + bytes);
  if (!sent) return OUT_OF_MEMORY;
  memcpy(sent, file, length);
  memcpy(sent + length, data, bytes);
  int status = ASK(&reply, REQUEST_LOAD, sent, length + bytes, length);
  free(sent);
  if (status) snprintf(last_refusal, sizeof last_refusal, "; %s", reply.data ? reply.data : "");
  if (status && log->text && log->room) snprintf(log->text, log->room, "%s", reply.data ? reply.data : "");
  *module = status ? NULL : fresh(MODULE, sizeof **module);
  if (*module) (*module)->id = reply.words[0];
  release(&reply);
  return status;
}

static int load(Module **module, const void *image, const Log *log) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(module && image, INVALID_VALUE);
  show_printf();
  const Wrapper *wrapper = image;
  if (wrapper->magic != FATBIN_WRAPPER) return load_bytes(module, image, image_bytes(image), image, log);
  if (wrapper->version < 2 || !wrapper->more) return load_bytes(module, wrapper->data, image_bytes(wrapper->data), wrapper->data, log);
  size_t bytes;
  char *all = gather(wrapper, &bytes);
  REQUIRE(all, OUT_OF_MEMORY);
  int status = load_bytes(module, all, bytes, wrapper, log);
  free(all);
  return status;
}

static int load_file(Module **module, const char *name, const Log *log) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(module && name, INVALID_VALUE);
  FILE *file = fopen(name, "rb");
  REQUIRE(file, FILE_NOT_FOUND);
  char *data = NULL;
  size_t bytes = 0, got = 1;
  while (got) {
    char *longer = realloc(data, bytes + 65536);
    if (!longer) break;
    data = longer;
    got = fread(data + bytes, 1, 65536, file);
    bytes += got;
  }
  fclose(file);
  int status = data ? load_bytes(module, data, bytes, NULL, log) : OUT_OF_MEMORY;
  free(data);
  return status;
}

static const Log no_log;

EXPORT int cuModuleLoad(Module **module, const char *name) {
  READY();
  return load_file(module, name, &no_log);
}

EXPORT int cuModuleLoadData(Module **module, const void *image) {
  READY();
  return load(module, image, &no_log);
}

EXPORT int cuModuleLoadDataEx(Module **module, const void *image, unsigned count, const int *options, void **values) {
  Log log = {0};
  READY();
  find_log(&log, count, options, values);
  return load(module, image, &log);
}

EXPORT int cuModuleLoadFatBinary(Module **module, const void *image) { return cuModuleLoadData(module, image); }

EXPORT int cuLibraryLoadData(Module **module, const void *image, const int *options, void **values, unsigned count,
                             const int *more, void **more_values, unsigned more_count) {
  Log log = {0};
  (void)more, (void)more_values, (void)more_count;
  find_log(&log, count, options, values);
  return load(module, image, &log);
}

EXPORT int cuLibraryLoadFromFile(Module **module, const char *name, const int *options, void **values, unsigned count,
                                 const int *more, void **more_values, unsigned more_count) {
  Log log = {0};
  (void)more, (void)more_values, (void)more_count;
  find_log(&log, count, options, values);
  return load_file(module, name, &log);
}

EXPORT int cuModuleUnload(Module *module) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  if (broken) return broken;
  REQUIRE(IS(module, MODULE), INVALID_HANDLE);
  Reply reply;
  show_printf();
  int status = ASK(&reply, REQUEST_UNLOAD, NULL, 0, module->id);
  release(&reply);
  module->magic = 0;
  return status;
}

EXPORT int cuLibraryUnload(Module *module) { return cuModuleUnload(module); }

EXPORT int cuModuleGetLoadingMode(int *mode) {
  REQUIRE(mode, INVALID_VALUE);
  *mode = 2;
  return SUCCESS;
}

static Kernel *kernels;

static Kernel *known_kernel(const Module *module, const char *name) {
  Kernel *at = kernels;
  while (at && (at->module != module || strcmp(at->name, name))) at = at->next;
  return at;
}

static Kernel *describe_kernel(Module *module, const char *name, const Reply *reply) {
  Kernel *made = fresh(KERNEL, sizeof *made);
  if (!made) return NULL;
  made->id = reply->words[0];
  made->module = module;
  made->name = strdup(name);
  made->count = (uint32_t)reply->words[1];
  for (int i = 0; i < 16; i++) made->attributes[i] = (int)reply->words[2 + i];
  made->sizes = calloc(made->count + 1, 8);
  made->offsets = made->sizes + made->count;
  memcpy(made->sizes, reply->data, reply->bytes);
  for (uint32_t i = 0; i < made->count; i++) made->bytes += made->sizes[i];
  made->next = kernels;
  kernels = made;
  return made;
}

static int function_of(Kernel **kernel, Module *module, const char *name, const Log *log) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(kernel && name, INVALID_VALUE);
  REQUIRE(IS(module, MODULE), INVALID_HANDLE);
  lock();
  *kernel = known_kernel(module, name);
  unlock();
  if (*kernel) return SUCCESS;
  Reply reply;
  int status = ASK(&reply, REQUEST_KERNEL, name, strlen(name), module->id);
  if (status && log->room) snprintf(log->text, log->room, "%s", reply.data ? reply.data : "");
  lock();
  if (!status && !(*kernel = describe_kernel(module, name, &reply))) status = OUT_OF_MEMORY;
  unlock();
  release(&reply);
  return status;
}

EXPORT int cuModuleGetFunction(Kernel **kernel, Module *module, const char *name) { return function_of(kernel, module, name, &no_log); }
EXPORT int cuLibraryGetKernel(Kernel **kernel, Module *module, const char *name) { return cuModuleGetFunction(kernel, module, name); }

EXPORT int cuLibraryGetModule(Module **module, Module *library) {
  REQUIRE(module && IS(library, MODULE), INVALID_HANDLE);
  *module = library;
  return SUCCESS;
}

EXPORT int cuKernelGetFunction(Kernel **function, Kernel *kernel) {
  REQUIRE(function && IS(kernel, KERNEL), INVALID_HANDLE);
  *function = kernel;
  return SUCCESS;
}

EXPORT int cuFuncGetModule(Module **module, Kernel *kernel) {
  REQUIRE(module && IS(kernel, KERNEL), INVALID_HANDLE);
  *module = kernel->module;
  return SUCCESS;
}

EXPORT int cuKernelGetLibrary(Module **module, Kernel *kernel) { return cuFuncGetModule(module, kernel); }

/* The names of all kernels, each ended by a zero byte. */
static int kernel_names(Module *module, Reply *reply) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(IS(module, MODULE), INVALID_HANDLE);
  return ASK(reply, REQUEST_KERNEL_NAMES, NULL, 0, module->id);
}

EXPORT int cuModuleGetFunctionCount(unsigned *count, Module *module) {
  Reply reply = {0};
  REQUIRE(count, INVALID_VALUE);
  int status = kernel_names(module, &reply);
  *count = (unsigned)reply.words[0];
  release(&reply);
  return status;
}

EXPORT int cuModuleEnumerateFunctions(Kernel **list, unsigned room, Module *module) {
  Reply reply = {0};
  int status = kernel_names(module, &reply);
  const char *name = reply.data;
  for (unsigned i = 0; i < room && i < reply.words[0] && !status; i++, name += strlen(name) + 1)
    status = cuModuleGetFunction(&list[i], module, name);
  release(&reply);
  return status;
}

EXPORT int cuLibraryGetKernelCount(unsigned *count, Module *module) { return cuModuleGetFunctionCount(count, module); }
EXPORT int cuLibraryEnumerateKernels(Kernel **list, unsigned room, Module *module) { return cuModuleEnumerateFunctions(list, room, module); }

static int variable_of(Address *address, size_t *bytes, Module *module, const char *name) {
  REQUIRE(initialised(), NOT_INITIALIZED);
  REQUIRE(name, INVALID_VALUE);
  REQUIRE(IS(module, MODULE), INVALID_HANDLE);
  Reply reply;
  int status = ASK(&reply, REQUEST_VARIABLE, name, strlen(name), module->id);
  if (!status && address) *address = reply.words[0];
  if (!status && bytes) *bytes = reply.words[1];
  release(&reply);
  return status;
}

/* A variable that may be managed, which the driver does not tell apart: the host may touch it. */
EXPORT int cuModuleGetGlobal_v2(Address *address, size_t *bytes, Module *module, const char *name) {
  Address at;
  size_t size;
  int status = variable_of(&at, &size, module, name);
  if (status) return status;
  grant(at, size);
  if (address) *address = at;
  if (bytes) *bytes = size;
  return SUCCESS;
}

EXPORT int cuLibraryGetGlobal(Address *address, size_t *bytes, Module *module, const char *name) { return cuModuleGetGlobal_v2(address, bytes, module, name); }
EXPORT int cuLibraryGetManaged(Address *address, size_t *bytes, Module *module, const char *name) { return cuModuleGetGlobal_v2(address, bytes, module, name); }

EXPORT int cuFuncGetAttribute(int *value, int attribute, Kernel *kernel) {
  REQUIRE(value && attribute >= 0 && attribute < 16, INVALID_VALUE);
  REQUIRE(IS(kernel, KERNEL), INVALID_HANDLE);
  *value = kernel->attributes[attribute];
  return SUCCESS;
}

enum { STATIC_SHARED = 1, DYNAMIC_SHARED = 8, CARVEOUT = 9, CLUSTER = 11, NON_PORTABLE = 14, POLICY = 15 };

EXPORT int cuFuncSetAttribute(Kernel *kernel, int attribute, int value) {
  REQUIRE(IS(kernel, KERNEL), INVALID_HANDLE);
  REQUIRE(attribute >= DYNAMIC_SHARED && attribute < 16, INVALID_VALUE);
  int most = (int)hello.words[97] - kernel->attributes[STATIC_SHARED];
  REQUIRE(attribute != DYNAMIC_SHARED || (value >= 0 && value <= most), INVALID_VALUE);
  kernel->attributes[attribute] = value;
  return SUCCESS;
}

EXPORT int cuKernelGetAttribute(int *value, int attribute, Kernel *kernel, int device) { return (void)device, cuFuncGetAttribute(value, attribute, kernel); }
EXPORT int cuKernelSetAttribute(int attribute, int value, Kernel *kernel, int device) { return (void)device, cuFuncSetAttribute(kernel, attribute, value); }
EXPORT int cuFuncSetCacheConfig(Kernel *kernel, int config) { return (void)config, IS(kernel, KERNEL) ? SUCCESS : INVALID_HANDLE; }
EXPORT int cuFuncSetSharedMemConfig(Kernel *kernel, int config) { return cuFuncSetCacheConfig(kernel, config); }
EXPORT int cuKernelSetCacheConfig(Kernel *kernel, int config, int device) { return (void)device, cuFuncSetCacheConfig(kernel, config); }
EXPORT int cuFuncLoad(Kernel *kernel) { return cuFuncSetCacheConfig(kernel, 0); }

EXPORT int cuFuncIsLoaded(int *state, Kernel *kernel) {
  REQUIRE(state && IS(kernel, KERNEL), INVALID_HANDLE);
  *state = 1;
  return SUCCESS;
}

EXPORT int cuFuncGetName(const char **name, Kernel *kernel) {
  REQUIRE(name && IS(kernel, KERNEL), INVALID_HANDLE);
  *name = kernel->name;
  return SUCCESS;
}

EXPORT int cuKernelGetName(const char **name, Kernel *kernel) { return cuFuncGetName(name, kernel); }

EXPORT int cuFuncGetParamInfo(Kernel *kernel, size_t number, size_t *offset, size_t *bytes) {
  REQUIRE(IS(kernel, KERNEL), INVALID_HANDLE);
  REQUIRE(offset && number < kernel->count, INVALID_VALUE);
  *offset = kernel->offsets[number];
  if (bytes) *bytes = kernel->sizes[number];
  return SUCCESS;
}

EXPORT int cuKernelGetParamInfo(Kernel *kernel, size_t number, size_t *offset, size_t *bytes) { return cuFuncGetParamInfo(kernel, number, offset, bytes); }

EXPORT int cuFuncGetParamCount(Kernel *kernel, size_t *count) {
  REQUIRE(IS(kernel, KERNEL), INVALID_HANDLE);
  REQUIRE(count, INVALID_VALUE);
  *count = kernel->count;
  return SUCCESS;
}

EXPORT int cuKernelGetParamCount(Kernel *kernel, size_t *count) { return cuFuncGetParamCount(kernel, count); }

/* The linker takes images and gives them back one behind the other: the emulator links PTX when it loads it. */
typedef struct {
  uint32_t magic;
  char *data;
  size_t bytes;
} Linker;

EXPORT int cuLinkCreate_v2(unsigned count, const int *options, void **values, Linker **linker) {
  (void)count, (void)options, (void)values;
  REQUIRE(linker, INVALID_VALUE);
  *linker = fresh(LINKER, sizeof **linker);
  return *linker ? SUCCESS : OUT_OF_MEMORY;
}

enum { INPUT_CUBIN, INPUT_PTX, INPUT_FATBINARY };

EXPORT int cuLinkAddData_v2(Linker *linker, int type, const void *data, size_t bytes, const char *name, unsigned count,
                            const int *options, void **values) {
  (void)count, (void)options, (void)values;
  REQUIRE(IS(linker, LINKER), INVALID_HANDLE);
  REQUIRE(data && bytes, INVALID_VALUE);
  if (type != INPUT_PTX && type != INPUT_FATBINARY) {
    complain("'%s' is not PTX: the emulator links PTX only", name ? name : "an input of the linker");
    return INVALID_IMAGE;
  }
  char *longer = realloc(linker->data, linker->bytes + bytes + 2);
  REQUIRE(longer, OUT_OF_MEMORY);
  memcpy(longer + linker->bytes, data, bytes);
  linker->data = longer;
  linker->bytes += bytes;
  while (type == INPUT_PTX && linker->bytes && !longer[linker->bytes - 1]) linker->bytes--;
  if (type == INPUT_PTX) longer[linker->bytes++] = '\n';
  longer[linker->bytes] = 0;
  return SUCCESS;
}

EXPORT int cuLinkAddFile_v2(Linker *linker, int type, const char *name, unsigned count, const int *options, void **values) {
  REQUIRE(name, INVALID_VALUE);
  FILE *file = fopen(name, "rb");
  REQUIRE(file, FILE_NOT_FOUND);
  fseek(file, 0, SEEK_END);
  long bytes = ftell(file);
  rewind(file);
  char *data = malloc((size_t)(bytes > 0 ? bytes : 0) + 1);
  size_t got = data ? fread(data, 1, (size_t)bytes, file) : 0;
  fclose(file);
  int status = cuLinkAddData_v2(linker, type, data, got, name, count, options, values);
  free(data);
  return status;
}

EXPORT int cuLinkComplete(Linker *linker, void **image, size_t *bytes) {
  REQUIRE(IS(linker, LINKER), INVALID_HANDLE);
  REQUIRE(image && linker->data, INVALID_VALUE);
  *image = linker->data;
  if (bytes) *bytes = linker->bytes + 1;
  return SUCCESS;
}

EXPORT int cuLinkDestroy(Linker *linker) {
  REQUIRE(IS(linker, LINKER), INVALID_HANDLE);
  free(linker->data);
  linker->magic = 0;
  return SUCCESS;
}

/* Tensor maps are encoded by the emulator; arrays of the description follow each other as 64-bit words. */
static size_t put(uint64_t *words, size_t at, const void *from, size_t count, size_t size) {
  for (size_t i = 0; i < count; i++) {
    int64_t value = 0;
    if (from && size == 8) memcpy(&value, (const char *)from + 8 * i, 8);
    if (from && size == 4) value = ((const int32_t *)from)[i];
    words[at + i] = (uint64_t)value;
  }
  return at + count;
}

static int finish_map(void *map, const uint64_t *words, size_t count) {
  Reply reply;
  READY();
  int status = ask(REQUEST_TENSOR_MAP, words, count, NULL, 0, &reply);
  if (!status && reply.bytes == 128) memcpy(map, reply.data, 128);
  release(&reply);
  return status;
}

EXPORT int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, Address address, const uint64_t *dims, const uint64_t *strides,
                                  const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
  uint64_t words[64] = {0, (uint64_t)type, rank, address, (uint64_t)interleave, (uint64_t)swizzle, (uint64_t)promotion, (uint64_t)fill};
  REQUIRE(map && dims && box && steps && rank >= 1 && rank <= 5, INVALID_VALUE);
  size_t at = put(words, 8, dims, rank, 8);
  at = put(words, at, strides, rank - 1, 8);
  at = put(words, at, box, rank, 4);
  at = put(words, at, steps, rank, 4);
  return finish_map(map, words, at);
}

EXPORT int cuTensorMapEncodeIm2col(void *map, int type, uint32_t rank, Address address, const uint64_t *dims, const uint64_t *strides,
                                   const int *lower, const int *upper, uint32_t channels, uint32_t pixels, const uint32_t *steps,
                                   int interleave, int swizzle, int promotion, int fill) {
  uint64_t words[64] = {1, (uint64_t)type, rank, address, (uint64_t)interleave, (uint64_t)swizzle, (uint64_t)promotion, (uint64_t)fill};
  REQUIRE(map && dims && strides && lower && upper && steps && rank >= 3 && rank <= 5, INVALID_VALUE);
  size_t at = put(words, 8, dims, rank, 8);
  at = put(words, at, strides, rank - 1, 8);
  words[at++] = channels;
  words[at++] = pixels;
  at = put(words, at, steps, rank, 4);
  at = put(words, at, lower, rank - 2, 4);
  at = put(words, at, upper, rank - 2, 4);
  return finish_map(map, words, at);
}

EXPORT int cuTensorMapReplaceAddress(void *map, Address address) {
  uint64_t words[2 + 16] = {2, address};
  REQUIRE(map, INVALID_VALUE);
  memcpy(words + 2, map, 128);
  return finish_map(map, words, 18);
}
