/* A program that uses the driver library alone, as a test says: ./client PTX-file what */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDeviceGetCount(int *);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuModuleGetGlobal_v2(uint64_t *, size_t *, void *, const char *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuMemFreeHost(void *);
int cuMemAllocHost_v2(void **, size_t);
int cuDevicePrimaryCtxReset_v2(int);
int cuMemAllocManaged(void **, size_t, unsigned);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t);
int cuMemcpyDtoH_v2(void *, uint64_t, size_t);
int cuMemsetD32_v2(uint64_t, unsigned, size_t);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuStreamCreate(void **, unsigned);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphLaunch(void *, void *);
int cuTexObjectCreate(void *, void *, void *, void *);
int cuMemCreate(void *, unsigned long, void *, unsigned long);
int cuGraphCreate(void **, unsigned);
int cuGraphAddMemAllocNode(void **, void *, void *const *, size_t, void *);
int cuGraphAddMemsetNode(void **, void *, void *const *, size_t, const void *, void *);
int cuGraphAddMemFreeNode(void **, void *, void *const *, size_t, uint64_t);
int cuGraphMemFreeNodeGetParams(void *, uint64_t *);
int cuGraphConditionalHandleCreate(void *, void *, void *, unsigned, unsigned);
int cuMemAllocAsync(uint64_t *, size_t, void *);
int cuMemsetD32Async(uint64_t, unsigned, size_t, void *);
int cuGetErrorName(int, const char **);
int cuMemHostRegister_v2(void *, size_t, unsigned);
int cuMemHostUnregister(void *);
int cuMemHostGetDevicePointer_v2(uint64_t *, void *, unsigned);
int cuModuleUnload(void *);
int cuStreamDestroy_v2(void *);
int cuStreamQuery(void *);
int cuEventCreate(void **, unsigned);
int cuEventDestroy_v2(void *);
int cuEventQuery(void *);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

#define CHECK(call)                                                    \
  do {                                                                 \
    int code = (call);                                                 \
    if (code) {                                                        \
      fprintf(stderr, "%s: %d\n", #call, code);                        \
      exit(3);                                                         \
    }                                                                  \
  } while (0)

static void *context;
static char text[1 << 16];

/* what pointers are mixed with on their way to a kernel */
static uint64_t hidden;

static void begin(void) {
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
}

/* scales `count` floats by 2 in an array of `room` of them, and gives the sum of all */
static float scale(unsigned count, unsigned room, void *stream, void **graph) {
  void *module, *kernel;
  uint64_t x;
  float host[256], factor = 2, sum = 0;
  for (unsigned i = 0; i < room; i++) host[i] = (float)i;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&kernel, module, "scale"));
  CHECK(cuMemAlloc_v2(&x, room * sizeof *host));
  CHECK(cuMemcpyHtoD_v2(x, host, room * sizeof *host));
  uint64_t passed = x ^ hidden;
  void *arguments[] = {&passed, &factor, &count};
  if (graph) CHECK(cuStreamBeginCapture_v2(stream, 0));
  CHECK(cuLaunchKernel(kernel, (count + 63) / 64, 1, 1, 64, 1, 1, 0, stream, arguments, NULL));
  if (graph) {
    void *captured;
    CHECK(cuStreamEndCapture(stream, &captured));
    CHECK(cuGraphInstantiateWithFlags(graph, captured, 0));
    for (int i = 0; i < 3; i++) CHECK(cuGraphLaunch(*graph, stream));
  }
  CHECK(cuCtxSynchronize());
  CHECK(cuMemcpyDtoH_v2(host, x, room * sizeof *host));
  CHECK(cuMemFree_v2(x));
  for (unsigned i = 0; i < room; i++) sum += host[i];
  return sum;
}

static void *in_thread(void *result) {
  CHECK(cuCtxSetCurrent(context));
  *(float *)result = scale(100, 100, NULL, NULL);
  return NULL;
}

static void threads(void) {
  pthread_t made[4];
  float sums[4];
  for (int i = 0; i < 4; i++) pthread_create(&made[i], NULL, in_thread, &sums[i]);
  for (int i = 0; i < 4; i++) pthread_join(made[i], NULL);
  printf("%g %g %g %g\n", sums[0], sums[1], sums[2], sums[3]);
}

static void graph(void) {
  void *stream, *executable;
  CHECK(cuStreamCreate(&stream, 0));
  printf("%g\n", scale(100, 100, stream, &executable));
}

static void launch_and_read(void *graph, uint64_t address) {
  void *executable;
  unsigned found;
  CHECK(cuGraphInstantiateWithFlags(&executable, graph, 0));
  CHECK(cuGraphLaunch(executable, NULL));
  CHECK(cuMemcpyDtoH_v2(&found, address, 4));
  printf("%u ", found);
  /* what is given back lies at the same place when the graph is launched again */
  CHECK(cuMemFree_v2(address));
  CHECK(cuGraphLaunch(executable, NULL));
  CHECK(cuMemcpyDtoH_v2(&found, address, 4));
  printf("%u\n", found);
}

static void graph_memory(void) {
  struct { int type, handles, location, device; char others[72]; void *access; size_t accesses, bytes; uint64_t address; } memory = {1, 0, 1, 0};
  struct { uint64_t address; size_t pitch; unsigned value, element; size_t width, height; } fill = {0, 0, 7, 4, 4, 1};
  void *graph, *first, *second, *third, *stream;
  uint64_t freed, captured;
  memory.bytes = 64;
  CHECK(cuGraphCreate(&graph, 0));
  CHECK(cuGraphAddMemAllocNode(&first, graph, NULL, 0, &memory));
  fill.address = memory.address;
  CHECK(cuGraphAddMemsetNode(&second, graph, &first, 1, &fill, context));
  launch_and_read(graph, memory.address);
  CHECK(cuGraphAddMemFreeNode(&third, graph, &second, 1, memory.address));
  CHECK(cuGraphMemFreeNodeGetParams(third, &freed));
  printf("%d\n", freed == memory.address);
  CHECK(cuStreamCreate(&stream, 0));
  CHECK(cuStreamBeginCapture_v2(stream, 0));
  CHECK(cuMemAllocAsync(&captured, 64, stream));
  CHECK(cuMemsetD32Async(captured, 8, 16, stream));
  CHECK(cuStreamEndCapture(stream, &graph));
  launch_and_read(graph, captured);
}

static void bad_calls(void) {
  uint64_t x;
  void *module, *kernel, *function;
  char host[64];
  int found;
  CHECK(cuMemAlloc_v2(&x, 64));
  printf("copy %d ", cuMemcpyHtoD_v2(x, text, 128));
  printf("free %d ", cuMemFree_v2(x + 8));
  CHECK(cuMemFree_v2(x));
  printf("again %d ", cuMemFree_v2(x));
  printf("read %d ", cuMemcpyDtoH_v2(host, x, 64));
  printf("image %d ", cuModuleLoadData(&module, "no PTX at all"));
  CHECK(cuModuleLoadData(&module, text));
  printf("kernel %d ", cuModuleGetFunction(&kernel, module, "nothing"));
  printf("handle %d ", cuModuleGetFunction(&kernel, context, "scale"));
  printf("texture %d %d ", cuTexObjectCreate(NULL, NULL, NULL, NULL), cuTexObjectCreate(NULL, NULL, NULL, NULL));
  printf("mapped %d node %d ", cuMemCreate(NULL, 0, NULL, 0), cuGraphConditionalHandleCreate(NULL, NULL, NULL, 0, 0));
  printf("unknown %d ", cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &found));
  printf("%d\n", found);
}

static void asked(int asks, int error) {
  const char *name;
  if (asks && error) CHECK(cuGetErrorName(error, &name));
  printf("%d ", error);
}

static void wrong_frees(int asks) {
  uint64_t x;
  void *pinned;
  CHECK(cuMemAlloc_v2(&x, 64));
  CHECK(cuMemAllocHost_v2(&pinned, 64));
  asked(asks, cuMemFree_v2((uint64_t)pinned));
  asked(asks, cuMemFreeHost((void *)x));
  asked(asks, cuMemcpyHtoD_v2(x, NULL, 16));
  CHECK(cuMemFreeHost(pinned));
  CHECK(cuDevicePrimaryCtxReset_v2(0));
  asked(asks, cuMemFree_v2(x));
}

static pthread_barrier_t together;

static void *write_there(void *there) {
  pthread_barrier_wait(&together);
  *(volatile unsigned *)there = 1; /* touches-threads */
  return NULL;
}

static void touch_by_threads(unsigned *device) {
  pthread_t threads[16];
  pthread_barrier_init(&together, NULL, 16);
  for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, write_there, device + i);
  for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
}

/* a stack for signals as small as many programs have it, with nothing below it */
static void use_a_small_stack(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 8192;
  char *room = mmap(NULL, page + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t stack = {.ss_sp = room + page, .ss_size = size};
  mprotect(room, page, PROT_NONE);
  sigaltstack(&stack, NULL);
}

/* what the host may touch: its own memory and what it shares with the device; then, by `what`, the device's */
static void touches(const char *what) {
  unsigned *pinned, *managed, *variable, *device;
  void *module;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuMemAllocHost_v2((void **)&pinned, 64));
  CHECK(cuMemAllocManaged((void **)&managed, 64, 1));
  CHECK(cuModuleGetGlobal_v2((uint64_t *)&variable, NULL, module, "total"));
  CHECK(cuMemAlloc_v2((uint64_t *)&device, 8192));
  pinned[0] = 3, managed[0] = pinned[0] + 1;
  CHECK(cuMemcpyHtoD_v2((uint64_t)device, managed, 4));
  CHECK(cuMemcpyDtoH_v2(pinned + 1, (uint64_t)device, 4));
  printf("%u %u %u\n", *variable, managed[0], pinned[1]);
  fflush(stdout);
  if (!strcmp(what, "touches-read")) printf("%u\n", *(volatile unsigned *)device);
  if (!strcmp(what, "touches-write")) *(volatile unsigned *)(device + 2000) = 1;
  if (!strcmp(what, "touches-not-but-is-sent-the-signal")) raise(SIGSEGV);
  if (!strcmp(what, "touches-in-a-child") && fork() == 0) *(volatile unsigned *)device = 1;
  if (!strcmp(what, "touches-memcpy")) memcpy(pinned, device, fflush(stdout) + 64);
  if (!strcmp(what, "touches-threads")) touch_by_threads(device);
  if (!strcmp(what, "touches-stack")) use_a_small_stack();
  if (!strcmp(what, "touches-stack")) *(volatile unsigned *)device = 1;
}

static unsigned total(void *module) {
  uint64_t at;
  unsigned value;
  CHECK(cuModuleGetGlobal_v2(&at, NULL, module, "total"));
  CHECK(cuMemcpyDtoH_v2(&value, at, sizeof value));
  return value;
}

/* what a context takes along when it is reset: streams, events, and the values of variables */
static void reset(void) {
  void *module, *kernel, *streams[2], *events[3];
  uint64_t at;
  unsigned value = 9;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&kernel, module, "count"));
  CHECK(cuModuleGetGlobal_v2(&at, NULL, module, "total"));
  CHECK(cuMemcpyHtoD_v2(at, &value, sizeof value));
  for (int i = 0; i < 3; i++) CHECK(cuEventCreate(&events[i], 0));
  CHECK(cuEventDestroy_v2(events[1]));
  CHECK(cuStreamCreate(&streams[0], 0));
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, streams[0], NULL, NULL));
  printf("%u\n", total(module));
  CHECK(cuDevicePrimaryCtxReset_v2(0));
  printf("%d %d %d\n", cuStreamQuery(streams[0]), cuEventQuery(events[0]), cuEventQuery(events[2]));
  printf("%d\n", cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, streams[0], NULL, NULL));
  CHECK(cuStreamCreate(&streams[1], 0));
  CHECK(cuEventCreate(&events[0], 0));
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, streams[1], NULL, NULL));
  printf("%u %d %d\n", total(module), cuStreamQuery(streams[1]), cuEventDestroy_v2(events[0]));
}

static volatile unsigned *running;

/* a launch that goes on when the program ends: its kernel sets a word of the host's, and counts for ever */
static void *launch_for_ever(void *kernel) {
  void *arguments[] = {&running};
  CHECK(cuCtxSetCurrent(context));
  cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
  return NULL;
}

static void endless(const char *name) {
  void *module, *kernel, *none[] = {&running};
  pthread_t thread;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&kernel, module, name));
  CHECK(cuMemAllocHost_v2((void **)&running, 64));
  *running = 0;
  if (!strcmp(name, "counts")) {
    pthread_create(&thread, NULL, launch_for_ever, kernel);
    while (!*running) usleep(1000);
    return;
  }
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, none, NULL));
  printf("then %d\n", cuCtxSynchronize());
}

static void too_much(void) {
  uint64_t x, y;
  printf("huge %d ", cuMemAlloc_v2(&x, (size_t)1 << 39));
  CHECK(cuMemAlloc_v2(&x, (size_t)60 << 30));
  printf("rest %d\n", cuMemAlloc_v2(&y, (size_t)60 << 30));
}

static void *kernel_named(const char *name) {
  void *module, *kernel;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&kernel, module, name));
  return kernel;
}

/* kernels reach memory of the program's own: it begins in the midst of a page, and what is around it stays */
static void registered(void) {
  static float memory[512];
  float *host = memory + 100, factor = 2, sum = 0;
  unsigned count = 100;
  uint64_t x;
  void *kernel = kernel_named("scale"), *arguments[] = {&x, &factor, &count};
  for (int i = 0; i < 512; i++) memory[i] = (float)(i - 100);
  CHECK(cuMemHostRegister_v2(host, count * sizeof *host, 2));
  printf("again %d ", cuMemHostRegister_v2(host + 8, 64, 2));
  CHECK(cuMemHostGetDevicePointer_v2(&x, host, 0));
  CHECK(cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL));
  /* what the host writes is seen by the next launch */
  for (unsigned i = 0; i < count; i++) host[i] += 1;
  CHECK(cuLaunchKernel(kernel, 2, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL));
  for (unsigned i = 0; i < count; i++) sum += host[i];
  printf("sum %g around %g %g ", sum, memory[99], memory[200]);
  CHECK(cuMemHostUnregister(host));
  printf("no more %d\n", cuMemHostUnregister(host));
}

static void *refused_in_thread(void *kernel) {
  CHECK(cuCtxSetCurrent(context));
  printf("%d ", cuLaunchKernel(kernel, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL));
  return NULL;
}

static void refused(int asks) {
  const char *name = "";
  uint64_t x;
  float factor = 2;
  unsigned count = 1;
  void *arguments[] = {&x, &factor, &count};
  CHECK(cuMemAlloc_v2(&x, 64));
  CHECK(cuMemsetD32_v2(x, 0, 16));
  int code = cuLaunchKernel(kernel_named("scale"), 1, 1, 1, 2048, 1, 1, 0, NULL, arguments, NULL);
  if (asks) cuGetErrorName(code, &name);
  printf("%d %s\n", code, name);
}

/* an image that is refused in one thread explains launches of that thread alone */
static void two_threads(void) {
  void *module;
  pthread_t thread;
  printf("%d ", cuModuleLoadData(&module, "no PTX at all"));
  refused_in_thread(context);
  pthread_create(&thread, NULL, refused_in_thread, context);
  pthread_join(thread, NULL);
}

static void lost(void) {
  uint64_t x;
  void *module, *kernel, *stream;
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&kernel, module, "traps"));
  CHECK(cuMemAlloc_v2(&x, 64));
  CHECK(cuStreamCreate(&stream, 0));
  CHECK(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
  printf("%d %d %d ", cuCtxSynchronize(), cuMemFree_v2(x), cuMemFree_v2(0));
  printf("%d %d\n", cuStreamDestroy_v2(stream), cuModuleUnload(module));
}

int main(int count, char **arguments) {
  const char *what = count > 2 ? arguments[2] : "";
  FILE *file = fopen(arguments[1], "r");
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  if (!strcmp(what, "fork-first") && fork() == 0) {
    begin();
    printf("child %g\n", scale(100, 100, NULL, NULL));
    return 0;
  }
  begin();
  if (!strcmp(what, "fork-late") && fork() == 0) {
    int devices;
    printf("child %d\n", cuDeviceGetCount(&devices));
    return 0;
  }
  /* as the CUDA runtime begins */
  if (!strcmp(what, "fork-init") && fork() == 0) {
    printf("child %d %d\n", cuInit(0), cuInit(0));
    return 0;
  }
  if (!strcmp(what, "threads")) threads();
  else if (!strcmp(what, "graph")) graph();
  else if (!strcmp(what, "graph-memory")) graph_memory();
  else if (!strcmp(what, "bad-calls")) bad_calls();
  else if (!strcmp(what, "wrong-frees")) wrong_frees(0);
  else if (!strcmp(what, "wrong-frees-asks")) wrong_frees(1);
  else if (!strcmp(what, "reset")) reset();
  else if (!strncmp(what, "touches", 7)) touches(what);
  else if (!strcmp(what, "too-much")) too_much();
  else if (!strcmp(what, "registered")) registered();
  else if (!strcmp(what, "refused")) refused(0);
  else if (!strcmp(what, "refused-asks")) refused(1);
  else if (!strcmp(what, "two-threads")) two_threads();
  else if (!strcmp(what, "lost")) lost();
  else if (!strcmp(what, "apart")) hidden = 1ull << 63, printf("%g\n", scale(100, 90, NULL, NULL));
  else if (!strcmp(what, "waits")) endless("waits");
  else if (!strcmp(what, "leaves")) endless("counts"), exit(4);
  else if (!strcmp(what, "killed")) endless("counts"), raise(SIGKILL);
  else if (!strcmp(what, "die")) scale(100, 100, NULL, NULL), abort();
  else if (!strcmp(what, "over")) printf("%g\n", scale(100, 90, NULL, NULL));
  else printf("%g\n", scale(100, 100, NULL, NULL));
  wait(NULL);
  return 0;
}
