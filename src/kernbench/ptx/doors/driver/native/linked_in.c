/* Programs with the CUDA runtime linked in: its functions are found by their names in the program's table of symbols, and
 * made to jump to ours, before any of the program's code runs. The same goes for libraries that are loaded later, and for
 * compilers that would give machine code. */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"

typedef struct {
  const char *name;
  void *function;
} Own;

#define RUNTIME(name) {#name, (void *)name},
#define ABSENT(name) RUNTIME(name)
static const Own own_functions[] = {
#include "runtime.def"
};
#undef ABSENT
#undef RUNTIME

static int compare(const void *name, const void *entry) { return strcmp(name, ((const Own *)entry)->name); }

/* Forms for a default stream of each thread have the same name with an ending. */
static void *own_function(const char *name) {
  char plain[96];
  size_t length = strlen(name);
  if (length >= sizeof plain) return NULL;
  strcpy(plain, name);
  if (length > 5 && (!strcmp(name + length - 5, "_ptsz") || !strcmp(name + length - 5, "_ptds"))) plain[length - 5] = 0;
  const Own *found = bsearch(plain, own_functions, sizeof own_functions / sizeof *own_functions, sizeof *own_functions, compare);
  return found ? found->function : NULL;
}

enum { JUMP_BYTES = 16 };
/* whether libraries have begun, and registered what they have */
static int started;

#if defined(__x86_64__)
/* where a function that is nothing but a jump goes; a mark for indirect branches may stand before it */
static void *jump_target(const unsigned char *at) {
  static const unsigned char mark[4] = {0xf3, 0x0f, 0x1e, 0xfa};
  int32_t distance;
  if (!memcmp(at, mark, sizeof mark)) at += sizeof mark;
  memcpy(&distance, at + 1, 4);
  return *at == 0xe9 ? (void *)(at + 5 + distance) : NULL;
}

/* jmp *0(%rip), then the address */
static void write_jump(unsigned char *at, const void *to) {
  static const unsigned char code[6] = {0xff, 0x25, 0, 0, 0, 0};
  memcpy(at, code, sizeof code);
  memcpy(at + sizeof code, &to, sizeof to);
}
#elif defined(__aarch64__)
/* where a function that is nothing but a jump goes */
static void *jump_target(const unsigned char *at) {
  int32_t code;
  memcpy(&code, at, 4);
  return (uint32_t)code >> 26 == 5 ? (void *)(at + ((int64_t)(int32_t)((uint32_t)code << 6) >> 6) * 4) : NULL;
}

/* ldr x16, .+8; br x16, then the address */
static void write_jump(unsigned char *at, const void *to) {
  static const uint32_t code[2] = {0x58000050, 0xd61f0200};
  memcpy(at, code, sizeof code);
  memcpy(at + sizeof code, &to, sizeof to);
}
#else
#error "the driver library runs on x86-64 and AArch64"
#endif

/* A short function has room as well where it begins at a multiple of 16: the next one does so too. */
static int has_room(const Elf64_Sym *symbol) { return symbol->st_size >= JUMP_BYTES || symbol->st_value % JUMP_BYTES == 0; }

static int redirect(void *from, const void *to) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)from / page * page;
  size_t bytes = (uintptr_t)from + JUMP_BYTES - first;
  if (mprotect((void *)first, bytes, PROT_READ | PROT_WRITE)) return 0;
  write_jump(from, to);
  mprotect((void *)first, bytes, PROT_READ | PROT_EXEC);
  __builtin___clear_cache((char *)from, (char *)from + JUMP_BYTES);
  return 1;
}

typedef struct {
  const unsigned char *data;
  size_t bytes;
  const Elf64_Sym *symbols;
  size_t count;
  const char *names;
  size_t name_bytes;
} Object;

static int read_table(Object *object, uint32_t kind) {
  const Elf64_Ehdr *header = (const void *)object->data;
  if (header->e_shoff + (uint64_t)header->e_shnum * sizeof(Elf64_Shdr) > object->bytes) return 0;
  const Elf64_Shdr *sections = (const void *)(object->data + header->e_shoff);
  for (int i = 0; i < header->e_shnum; i++) {
    if (sections[i].sh_type != kind || sections[i].sh_link >= header->e_shnum) continue;
    const Elf64_Shdr *table = &sections[i], *names = &sections[table->sh_link];
    if (table->sh_offset + table->sh_size > object->bytes || names->sh_offset + names->sh_size > object->bytes) return 0;
    object->symbols = (const void *)(object->data + table->sh_offset);
    object->count = table->sh_size / sizeof(Elf64_Sym);
    object->names = (const char *)object->data + names->sh_offset;
    object->name_bytes = names->sh_size;
    return 1;
  }
  return 0;
}

static const Elf64_Sym *defined(const Object *object, const char *name) {
  for (size_t i = 0; i < object->count; i++) {
    const Elf64_Sym *symbol = &object->symbols[i];
    if (symbol->st_shndx && symbol->st_value && symbol->st_name < object->name_bytes && !strcmp(object->names + symbol->st_name, name)) return symbol;
  }
  return NULL;
}

static int runtime_of(const Object *object) {
  if (!memmem(object->names, object->name_bytes, "cudaMalloc", 11) || !defined(object, "cudaMalloc")) return 0;
  /* our own libraries */
  if (memmem(object->names, object->name_bytes, "kernbench_cudaMalloc", 21)) return 0;
  if (defined(object, "cudaGetDeviceProperties_v2")) return 12;
  return defined(object, "cudaMemDiscardBatchAsync") ? 13 : 11;
}

static void replace_runtime(const Object *object, uintptr_t base) {
  for (size_t i = 0; i < object->count; i++) {
    const Elf64_Sym *symbol = &object->symbols[i];
    if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !symbol->st_shndx || !has_room(symbol)) continue;
    if (symbol->st_name >= object->name_bytes) continue;
    const char *name = object->names + symbol->st_name;
    if (strncmp(name, "cuda", 4) && strncmp(name, "__cuda", 6)) continue;
    void *own = own_function(name);
    if (own && !redirect((void *)(base + symbol->st_value), own)) {
      complain("the CUDA runtime in this program cannot be replaced, as its code may not be changed here: link it with -cudart shared");
      return;
    }
  }
}

static void replace_nvrtc(const Object *object, uintptr_t base) {
  const Elf64_Sym *code = defined(object, "nvrtcGetCUBIN"), *bytes = defined(object, "nvrtcGetCUBINSize");
  const Elf64_Sym *ptx = defined(object, "nvrtcGetPTX"), *ptx_bytes = defined(object, "nvrtcGetPTXSize");
  if (!code || !bytes || !ptx || !ptx_bytes || !has_room(code) || !has_room(bytes)) return;
  compiled_ptx = (int (*)(void *, char *))(base + ptx->st_value);
  compiled_ptx_bytes = (int (*)(void *, size_t *))(base + ptx_bytes->st_value);
  redirect((void *)(base + code->st_value), (void *)nvrtc_code);
  redirect((void *)(base + bytes->st_value), (void *)nvrtc_code_bytes);
}

static void replace_linker(const Object *object, uintptr_t base) {
  for (size_t i = 0; i < object->count; i++) {
    const Elf64_Sym *symbol = &object->symbols[i];
    if (!symbol->st_shndx || !has_room(symbol) || symbol->st_name >= object->name_bytes) continue;
    const Replaced *own = link_function(object->names + symbol->st_name);
    void *at = (void *)(base + symbol->st_value), *target = own ? jump_target(at) : NULL;
    if (own && own->original && target) memcpy(own->original, &target, sizeof target);
    if (own) redirect(at, own->function);
  }
}

/* What a library registered while it was loaded, with the runtime that it has linked in, is registered again, with ours. */
static void register_again(const Object *object, uintptr_t base) {
  for (size_t i = 0; i < object->count; i++) {
    const Elf64_Sym *symbol = &object->symbols[i];
    if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || !symbol->st_shndx || symbol->st_name >= object->name_bytes) continue;
    if (strstr(object->names + symbol->st_name, "__sti____cudaRegisterAll")) ((void (*)(void))(base + symbol->st_value))();
  }
}

/* Without symbols, a library may still export functions of the runtime under names with a stroke in front, as CuTe DSL's does:
 * jumps to the runtime's own, and functions of the driver. */
static int replace_wrapped(const Object *object, uintptr_t base) {
  if (!defined(object, "_cudaLaunchKernelEx")) return 0;
  for (size_t i = 0; i < object->count; i++) {
    const Elf64_Sym *symbol = &object->symbols[i];
    if (!symbol->st_shndx || symbol->st_name >= object->name_bytes || strncmp(object->names + symbol->st_name, "_cu", 3)) continue;
    const char *name = object->names + symbol->st_name + 1;
    void *at = (void *)(base + symbol->st_value), *target = jump_target(at), *function = NULL;
    void *own = own_function(strcmp(name, "cudaLaunchKernelEx") ? name : "cudaLaunchKernelExC");
    /* what is more than a jump takes other arguments, but for functions of the driver */
    if (own && target) redirect(target, own);
    else if (!own && symbol->st_size >= JUMP_BYTES && !cuGetProcAddress_v2(name, &function, 13000, 0, NULL)) redirect(at, function);
  }
  runtime_major = 12;
  return 1;
}

static void look_into(const Object *file, uintptr_t base, const char *path) {
  Object object = *file;
  if (strstr(path, "libnvrtc.so") && read_table(&object, SHT_DYNSYM)) replace_nvrtc(&object, base);
  if (strstr(path, "libnvJitLink.so") && read_table(&object, SHT_DYNSYM)) replace_linker(&object, base);
  int found = read_table(&object, SHT_SYMTAB) ? runtime_of(&object) : 0;
  if (!found) found = read_table(&object, SHT_DYNSYM) ? runtime_of(&object) : 0;
  if (!found && (!object.symbols || replace_wrapped(&object, base))) return;
  if (!found) return;
  if (found < 12) {
    complain("%s has a CUDA runtime older than version 12, which is not emulated: build it with CUDA 12 or newer", path);
    return;
  }
  runtime_major = found;
  replace_runtime(&object, base);
  if (started) register_again(&object, base);
}

static void open_object(const char *path, uintptr_t base) {
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  if (!fstat(file, &status) && status.st_size > (off_t)sizeof(Elf64_Ehdr)) {
    void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data != MAP_FAILED) {
      Object object = {data, (size_t)status.st_size, NULL, 0, NULL, 0};
      if (!memcmp(data, ELFMAG, SELFMAG) && object.data[EI_CLASS] == ELFCLASS64) look_into(&object, base, path);
      munmap(data, (size_t)status.st_size);
    }
  }
  close(file);
}

typedef struct {
  uintptr_t known[4096];
  size_t count;
} Seen;

static Seen seen;

/* Each object once; this library, the loader and the kernel's own page are left out. */
static int visit(struct dl_phdr_info *info, size_t size, void *own) {
  (void)size;
  for (size_t i = 0; i < seen.count; i++)
    if (seen.known[i] == info->dlpi_addr) return 0;
  if (seen.count < sizeof seen.known / sizeof *seen.known) seen.known[seen.count++] = info->dlpi_addr;
  int program = !info->dlpi_name || !*info->dlpi_name;
  if (info->dlpi_addr == (uintptr_t)own || (!program && *info->dlpi_name != '/')) return 0;
  open_object(program ? "/proc/self/exe" : info->dlpi_name, info->dlpi_addr);
  return 0;
}

/* Look for runtimes in what is loaded by now; for Python, which may load this library late. */
EXPORT void kernbench_replace_runtimes(void) {
  Dl_info own;
  if (!dladdr((void *)kernbench_replace_runtimes, &own)) return;
  lock();
  dl_iterate_phdr(visit, own.dli_fbase);
  unlock();
}

/* Let a function that is known by its address jump to ours of this name, if there is one. */
EXPORT int kernbench_replace_function(const char *name, void *at) {
  void *own = own_function(name);
  return own && at && redirect(at, own);
}

/* This runs before all other libraries begin (-z initfirst), libc among them: getenv() knows nothing yet. */
__attribute__((constructor)) static void begin_early(int count, char **arguments, char **environment) {
  (void)count, (void)arguments;
  for (; environment && *environment; environment++)
    if (!strncmp(*environment, "KERNBENCH_DRIVER=", 17)) {
      kernbench_replace_runtimes();
      break;
    }
  started = 1;
}

typedef void *(*Open)(const char *, int);

/* A name without a folder is looked for along the caller's own paths, so that call must remain the caller's. */
EXPORT __attribute__((optimize("O2"), noinline)) void *dlopen(const char *name, int flags) {
  static Open real;
  if (!real) real = (Open)dlsym(RTLD_NEXT, "dlopen");
  if (!name || !getenv("KERNBENCH_DRIVER")) return real(name, flags);
  if (!strchr(name, '/')) return real(name, flags);
  void *handle = real(name, flags);
  if (handle) kernbench_replace_runtimes();
  return handle;
}
