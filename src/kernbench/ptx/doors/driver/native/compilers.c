/* Compilers that would give machine code: NVRTC, which has the PTX as well, and nvJitLink, for which the emulator links. */
#include "driver.h"

/* Who asks NVRTC for machine code gets the PTX it was made from; the driver loads either. */
static int (*compiled_ptx)(void *, char *), (*compiled_ptx_bytes)(void *, size_t *);

/* The compiler's own functions: what is called instead of them comes to them with more. */
static int (*create_program)(void **, const char *, const char *, int, const char *const *, const char *const *);
static int (*compile_program)(void *, int, const char *const *);
static int (*compiler_version)(int *, int *);

int newest_compiler(void) {
  int major = 0, minor = 0;
  return compiler_version && !compiler_version(&major, &minor) ? 1000 * major + 10 * minor : 0;
}

/* Sources of programs that were made and not compiled yet. */
typedef struct Source {
  void *program;
  char *text, *name;
  struct Source *next;
} Source;

static Source *sources;

static Source *take_source(void *program) {
  lock();
  Source **at = &sources, *found;
  while (*at && (*at)->program != program) at = &(*at)->next;
  found = *at;
  if (found) *at = found->next;
  unlock();
  return found;
}

static void drop_source(Source *source) {
  if (!source) return;
  free(source->text);
  free(source->name);
  free(source);
}

static int nvrtc_create(void **program, const char *text, const char *name, int count, const char *const *headers, const char *const *names) {
  int status = create_program(program, text, name, count, headers, names);
  if (status || !getenv("KERNBENCH_SOURCES")) return status;
  /* one at this address that was never compiled */
  drop_source(take_source(*program));
  Source *made = calloc(1, sizeof *made);
  if (!made) return status;
  *made = (Source){*program, strdup(text), strdup(name && *name ? name : "default_program"), NULL};
  lock();
  made->next = sources;
  sources = made;
  unlock();
  return status;
}

/* as zlib has it */
static uint32_t checksum(const char *text, size_t bytes) {
  uint32_t sum = 0xffffffff;
  for (size_t i = 0; i < bytes; i++) {
    sum ^= (unsigned char)text[i];
    for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum;
}

/* The source of a PTX text, as a file that is found by the text, so that findings can stand at its lines. */
static void keep_source(const Source *source) {
  size_t bytes = 0;
  const char *folder = getenv("KERNBENCH_SOURCES"), *stroke = strrchr(source->name, '/');
  char path[4096], *ptx = NULL;
  if (!folder || !source->text || compiled_ptx_bytes(source->program, &bytes) || bytes < 2 || !(ptx = malloc(bytes))) return;
  if (!compiled_ptx(source->program, ptx)) {
    size_t length = strnlen(ptx, bytes);
    snprintf(path, sizeof path, "%s/%08x-%zu-%.200s", folder, (unsigned)checksum(ptx, length), length, stroke ? stroke + 1 : source->name);
    FILE *file = fopen(path, "w");
    if (file) {
      fputs(source->text, file);
      fclose(file);
    }
  }
  free(ptx);
}

/* Lines of the source in the PTX; code with all that a debugger needs has them already. */
static int nvrtc_compile(void *program, int count, const char *const *options) {
  static const char *const have[] = {"-lineinfo", "--generate-line-info", "-G", "--device-debug"};
  int lines = count < 0 || (count > 0 && !options);
  for (int i = 0; !lines && i < count; i++)
    for (size_t j = 0; j < sizeof have / sizeof *have; j++) lines |= options[i] && !strcmp(options[i], have[j]);
  const char **more = lines ? NULL : calloc((size_t)count + 1, sizeof *more);
  if (more) {
    for (int i = 0; i < count; i++) more[i] = options[i];
    more[count] = "--generate-line-info";
  }
  int status = more ? compile_program(program, count + 1, more) : compile_program(program, count, options);
  free(more);
  Source *source = take_source(program);
  if (source && !status) keep_source(source);
  drop_source(source);
  return status;
}

static int nvrtc_code(void *program, char *code) { return compiled_ptx(program, code); }
static int nvrtc_code_bytes(void *program, size_t *bytes) { return compiled_ptx_bytes(program, bytes); }

/* nvJitLink: PTX in, the same PTX out, one text behind the other. What is to be optimised first (LTO-IR) goes through the
 * library itself, which gives PTX if it is asked to. */
enum { LINK_INVALID_INPUT = 3, LINK_INTERNAL = 6, LINK_PTX = 2, LINK_LTO = 3, LINK_FATBINARY = 4, LINK_LIBRARY = 6, LINK_ANY = 10 };
static const char links_ptx[] = "kernbench links PTX and LTO-IR, not machine code";

typedef struct {
  Linker *ptx;
  void *optimiser;
  uint32_t count;
  char **options;
} Links;

typedef struct {
  int (*create)(void **, uint32_t, const char **);
  int (*destroy)(void **);
  int (*add)(void *, int, const void *, size_t, const char *);
  int (*complete)(void *);
  int (*bytes)(void *, size_t *);
  int (*ptx)(void *, char *);
  int (*error_bytes)(void *, size_t *);
  int (*error)(void *, char *);
} Optimiser;

/* Filled in when the library is found: where its functions jump to, as they are themselves changed. */
static Optimiser optimiser;

static const Optimiser *optimising(void) { return optimiser.create && optimiser.add && optimiser.complete && optimiser.ptx ? &optimiser : NULL; }

static int link_create(Links **out, uint32_t count, const char **options) {
  Links *made = calloc(1, sizeof *made);
  if (!made || cuLinkCreate_v2(0, NULL, NULL, &made->ptx) || !(made->options = calloc(count + 2, sizeof *made->options))) return LINK_INTERNAL;
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(options[i], "-ptx") && strcmp(options[i], "-lto")) made->options[made->count++] = strdup(options[i]);
  made->options[made->count++] = "-lto";
  made->options[made->count++] = "-ptx";
  *out = made;
  return 0;
}

static int link_destroy(Links **links) {
  const Optimiser *copy = optimising();
  if (!links || !*links) return 0;
  cuLinkDestroy((*links)->ptx);
  if ((*links)->optimiser && copy) copy->destroy(&(*links)->optimiser);
  *links = NULL;
  return 0;
}

static int optimise(Links *links, const void *data, size_t bytes, const char *name) {
  const Optimiser *copy = optimising();
  if (!copy) return LINK_INVALID_INPUT;
  int error = links->optimiser ? 0 : copy->create(&links->optimiser, links->count, (const char **)links->options);
  return error ? error : copy->add(links->optimiser, LINK_LTO, data, bytes, name);
}

/* a library of the device runtime defines nothing that is emulated */
static int link_add(Links *links, int type, const void *data, size_t bytes, const char *name) {
  if (type == LINK_LIBRARY) return 0;
  if (type == LINK_LTO) return optimise(links, data, bytes, name);
  if (type == LINK_ANY) type = bytes > 8 && memmem(data, bytes < 4096 ? bytes : 4096, ".version", 8) ? LINK_PTX : 0;
  if (type != LINK_PTX && type != LINK_FATBINARY) return LINK_INVALID_INPUT;
  return cuLinkAddData_v2(links->ptx, type == LINK_PTX ? INPUT_PTX : INPUT_FATBINARY, data, bytes, name, 0, NULL, NULL) ? LINK_INVALID_INPUT : 0;
}

static int link_add_file(Links *links, int type, const char *name) {
  if (type == LINK_LIBRARY) return 0;
  if (type != LINK_PTX && type != LINK_FATBINARY) return LINK_INVALID_INPUT;
  return cuLinkAddFile_v2(links->ptx, type == LINK_PTX ? INPUT_PTX : INPUT_FATBINARY, name, 0, NULL, NULL) ? LINK_INVALID_INPUT : 0;
}

static int link_complete(Links *links) {
  const Optimiser *copy = optimising();
  size_t bytes = 0;
  if (!links->optimiser || !copy) return links->ptx->data ? 0 : LINK_INVALID_INPUT;
  int error = copy->complete(links->optimiser);
  if (!error) error = copy->bytes(links->optimiser, &bytes);
  char *text = error ? NULL : malloc(bytes + 1);
  if (text && !(error = copy->ptx(links->optimiser, text))) error = cuLinkAddData_v2(links->ptx, INPUT_PTX, text, bytes, NULL, 0, NULL, NULL);
  free(text);
  return error;
}

static int link_bytes(Links *links, size_t *bytes) { return links->ptx->data ? (*bytes = links->ptx->bytes + 1, 0) : LINK_INVALID_INPUT; }

static int link_code(Links *links, char *code) {
  if (!links->ptx->data) return LINK_INVALID_INPUT;
  memcpy(code, links->ptx->data, links->ptx->bytes + 1);
  return 0;
}

static int link_error_bytes(Links *links, size_t *bytes) {
  const Optimiser *copy = optimising();
  if (links->optimiser && copy) return copy->error_bytes(links->optimiser, bytes);
  *bytes = sizeof links_ptx;
  return 0;
}

static int link_error(Links *links, char *text) {
  const Optimiser *copy = optimising();
  if (links->optimiser && copy) return copy->error(links->optimiser, text);
  memcpy(text, links_ptx, sizeof links_ptx);
  return 0;
}

static int link_info_bytes(Links *links, size_t *bytes) { return (void)links, *bytes = 0, 0; }
static int link_info(Links *links, char *text) { return (void)links, (void)text, 0; }

typedef struct {
  const char *name;
  void *function;
  void *original;
} Replaced;

static const Replaced link_functions[] = {
    {"nvJitLinkCreate", (void *)link_create, &optimiser.create},
    {"nvJitLinkDestroy", (void *)link_destroy, &optimiser.destroy},
    {"nvJitLinkAddData", (void *)link_add, &optimiser.add},
    {"nvJitLinkAddFile", (void *)link_add_file, NULL},
    {"nvJitLinkComplete", (void *)link_complete, &optimiser.complete},
    {"nvJitLinkGetLinkedCubinSize", (void *)link_bytes, NULL},
    {"nvJitLinkGetLinkedCubin", (void *)link_code, NULL},
    {"nvJitLinkGetLinkedPtxSize", (void *)link_bytes, &optimiser.bytes},
    {"nvJitLinkGetLinkedPtx", (void *)link_code, &optimiser.ptx},
    {"nvJitLinkGetErrorLogSize", (void *)link_error_bytes, &optimiser.error_bytes},
    {"nvJitLinkGetErrorLog", (void *)link_error, &optimiser.error},
    {"nvJitLinkGetInfoLogSize", (void *)link_info_bytes, NULL},
    {"nvJitLinkGetInfoLog", (void *)link_info, NULL},
};

/* Its functions have plain names, and ones with a version: __nvJitLinkCreate_13_0. */
static const Replaced *link_function(const char *name) {
  if (!strncmp(name, "__", 2)) name += 2;
  for (size_t i = 0; i < sizeof link_functions / sizeof *link_functions; i++) {
    size_t length = strlen(link_functions[i].name);
    if (!strncmp(name, link_functions[i].name, length) && (!name[length] || name[length] == '_')) return &link_functions[i];
  }
  return NULL;
}
