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

/* whether libraries have begun, and registered what they have */
static int started;

/* A short function has room as well where it begins at a multiple of 16: the next one does so too. */
static int has_room(const Elf64_Sym *symbol) { return symbol->st_size >= JUMP_BYTES || symbol->st_value % JUMP_BYTES == 0; }

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

/* Our function in the place of a compiler's, and a way to call the compiler's: none where it cannot be copied. */
static void wrap(const Object *object, uintptr_t base, const char *name, const void *own, void *original) {
  const Elf64_Sym *symbol = defined(object, name);
  void *at = symbol ? (void *)(base + symbol->st_value) : NULL, *copy = symbol && has_room(symbol) ? callable_copy(at) : NULL;
  if (!copy) return;
  memcpy(original, &copy, sizeof copy);
  redirect(at, own);
}

static void replace_nvrtc(const Object *object, uintptr_t base) {
  const Elf64_Sym *code = defined(object, "nvrtcGetCUBIN"), *bytes = defined(object, "nvrtcGetCUBINSize");
  const Elf64_Sym *ptx = defined(object, "nvrtcGetPTX"), *ptx_bytes = defined(object, "nvrtcGetPTXSize");
  if (!code || !bytes || !ptx || !ptx_bytes || !has_room(code) || !has_room(bytes)) return;
  compiled_ptx = (int (*)(void *, char *))(base + ptx->st_value);
  compiled_ptx_bytes = (int (*)(void *, size_t *))(base + ptx_bytes->st_value);
  redirect((void *)(base + code->st_value), (void *)nvrtc_code);
  redirect((void *)(base + bytes->st_value), (void *)nvrtc_code_bytes);
  const Elf64_Sym *version = defined(object, "nvrtcVersion");
  if (version) compiler_version = (int (*)(int *, int *))(base + version->st_value);
  wrap(object, base, "nvrtcCreateProgram", (void *)nvrtc_create, &create_program);
  wrap(object, base, "nvrtcCompileProgram", (void *)nvrtc_compile, &compile_program);
}

/* Where runtimes are of which some functions were replaced, and the others work with NVIDIA's driver only. */
static uintptr_t partly[64];

static void replaced_partly(uintptr_t base) {
  for (size_t i = 0; i < sizeof partly / sizeof *partly; i++)
    if (!partly[i] || partly[i] == base) {
      partly[i] = base;
      break;
    }
}

int stands_in(uintptr_t base) {
  for (size_t i = 0; i < sizeof partly / sizeof *partly && partly[i]; i++)
    if (partly[i] == base) return 1;
  return 0;
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
  replaced_partly(base);
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
  Dl_info owner;
  if (!own || !at || !redirect(at, own)) return 0;
  if (dladdr(at, &owner)) replaced_partly((uintptr_t)owner.dli_fbase);
  return 1;
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
