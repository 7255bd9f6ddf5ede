/* Copies of boxes between peers and in batches, as the driver's and the runtime's API have them. Built once for each
 * version of the runtime (-DVERSION), whose forms differ. Each line says what was asked, and the codes that came back. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { void *array; size_t x, y, z; void *address; size_t pitch, width, height; } Side;
typedef struct { Side src; int src_device; Side dst; int dst_device; size_t width, height, depth; } Peer;
typedef struct { Side src, dst; size_t width, height, depth; int kind; } Box;
typedef struct { int type; void *address; size_t row, height; int location[2]; size_t unused[0]; } Operand;
typedef struct { Operand src, dst; size_t width, height, depth; int order; unsigned flags; } Batched;
typedef struct { int operation; void *address; uint64_t value; unsigned flags; uint64_t alias, unused; } Operation;
typedef struct { size_t x, y, z, level; int kind; const void *host; void *device; void *array, *context; size_t pitch, height; } DriverSide;
typedef struct { DriverSide src, dst; size_t width, height, depth; } DriverPeer;

int cudaMalloc(void *, size_t);
int cudaMallocManaged(void *, size_t, unsigned);
int cudaMemset(void *, int, size_t);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemcpy3D(const Box *);
int cudaMemcpy3DPeer(const Peer *);
int cudaMemcpy3DPeerAsync(const Peer *, void *);
int cudaMemcpyPeer(void *, int, const void *, int, size_t);
int cudaStreamCreate(void **);
int cudaStreamSynchronize(void *);
int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);
int cudaGraphGetNodes(void *, void **, size_t *);
int cudaGraphMemcpyNodeGetParams(void *, Box *);
int cudaGraphInstantiateWithFlags(void **, void *, uint64_t);
int cudaGraphLaunch(void *, void *);
int cudaGetLastError(void);
int cudaMemGetDefaultMemPool(void **, const int *, int);
int cudaMemGetMemPool(void **, const int *, int);
int cudaMemSetMemPool(const int *, int, void *);
int cudaMemPoolCreate(void **, const void *);
int cudaDeviceGetMemPool(void **, int);
int cudaMemDiscardBatchAsync(void **, size_t *, size_t, uint64_t, void *);
int cudaMemPrefetchBatchAsync(void **, size_t *, size_t, int *, size_t *, size_t, uint64_t, void *);
#if VERSION >= 13
int cudaMemcpy3DBatchAsync(size_t, Batched *, uint64_t, void *);
#define BATCH(count, list, flags, stream) cudaMemcpy3DBatchAsync(count, list, flags, stream)
#else
int cudaMemcpy3DBatchAsync(size_t, Batched *, size_t *, uint64_t, void *);
#define BATCH(count, list, flags, stream) cudaMemcpy3DBatchAsync(count, list, &failed, flags, stream)
#endif
int cuMemcpy3DPeer(const DriverPeer *);
int cuMemcpy3DPeerAsync(const DriverPeer *, void *);
int cuMemcpy3DBatchAsync_v2(size_t, Batched *, uint64_t, void *);
int cuStreamBatchMemOp_v2(void *, unsigned, Operation *, unsigned);
int cuGetErrorName(int, const char **);

#define CHECK(call)                                     \
  do {                                                  \
    int code = (call);                                  \
    if (code) printf("%s: %d\n", #call, code), exit(3); \
  } while (0)

enum { X = 5, Y = 4, Z = 3, ROW = 16, ROWS = 6, BYTES = ROW * ROWS * Z };
static unsigned char host[BYTES], back[BYTES];
static void *stream;
static size_t failed = 77;

/* a number for the bytes of an X x Y x Z box in memory with rows of `row` bytes and layers of `rows` rows; others are 0 */
static unsigned long digest(const void *device, size_t row, size_t rows) {
  unsigned long sum = 0, inside = 0;
  CHECK(cudaMemcpy(back, device, row * rows * Z, 2));
  for (size_t i = 0; i < row * rows * Z; i++) sum += back[i] * (i + 1);
  for (size_t z = 0; z < Z; z++)
    for (size_t y = 0; y < Y; y++)
      for (size_t x = 0; x < X; x++) inside += host[(z * ROWS + y) * ROW + x] * ((z * rows + y) * row + x + 1);
  return sum == inside ? inside : 0;
}

static void *cleared(void) {
  void *made;
  CHECK(cudaMalloc(&made, BYTES));
  CHECK(cudaMemset(made, 0, BYTES));
  return made;
}

static void said(int code) { printf(" %d", code), cudaGetLastError(); }

static void peers(void *from) {
  void *to = cleared(), *third = cleared(), *fourth = cleared();
  Peer peer = {{0, 0, 0, 0, from, ROW, X, ROWS}, 0, {0, 0, 0, 0, to, ROW, X, ROWS}, 0, X, Y, Z};
  CHECK(cudaMemcpy3DPeer(&peer));
  /* packed more tightly, and behind an offset */
  peer.dst = (Side){0, 1, 1, 1, (char *)third - 1 - X - X * Y, X, X, Y};
  CHECK(cudaMemcpy3DPeerAsync(&peer, stream));
  DriverPeer driver = {{.kind = 2, .device = from, .pitch = ROW, .height = ROWS}, {.kind = 2, .device = fourth, .pitch = ROW, .height = ROWS}, X, Y, Z};
  CHECK(cuMemcpy3DPeer(&driver));
  printf("peers %d %d %d\n", digest(to, ROW, ROWS) != 0, digest(third, X, Y) != 0, digest(fourth, ROW, ROWS) != 0);
  printf("refused");
  peer.dst = peer.src, peer.dst.address = to;
  Peer wrong = peer;
  wrong.src_device = 1, said(cudaMemcpy3DPeer(&wrong));
  wrong = peer, wrong.dst.pitch = X - 1, said(cudaMemcpy3DPeer(&wrong));
  wrong = peer, wrong.dst.array = to, said(cudaMemcpy3DPeer(&wrong));
  wrong = peer, wrong.depth = (size_t)1 << 60, said(cudaMemcpy3DPeer(&wrong));
  wrong = peer, wrong.depth = 40000, said(cudaMemcpy3DPeerAsync(&wrong, stream));
  wrong = peer, wrong.src.address = host, said(cudaMemcpy3DPeer(&wrong));
  wrong = peer, wrong.width = 0, said(cudaMemcpy3DPeer(&wrong));
  said(cudaMemcpy3DPeer(NULL)), said(cudaMemcpyPeer(to, 0, from, 3, 4));
  said(cudaMemcpy2D(to, (size_t)1 << 40, host, 8, 8, (size_t)1 << 40, 1));
  said(cuMemcpy3DPeer(NULL)), driver.dst.kind = 3, said(cuMemcpy3DPeerAsync(&driver, stream));
  printf("\n");
}

static Batched batched(void *to, void *from) {
  return (Batched){{1, from, ROW, ROWS, {0, 0}}, {1, to, ROW, ROWS, {0, 0}}, X, Y, Z, 1, 0};
}

static void batches(void *from) {
  void *to[3] = {cleared(), cleared(), cleared()}, *nodes[2], *graph, *executable;
  Batched list[2] = {batched(to[0], from), batched(to[1], from)};
  list[1].dst.row = list[1].dst.height = 0;
  CHECK(BATCH(2, list, 0, stream));
  Batched same = batched(to[2], from);
  CHECK(cuMemcpy3DBatchAsync_v2(1, &same, 0, stream));
  printf("batches %d %d %d", digest(to[0], ROW, ROWS) != 0, digest(to[1], X, Y) != 0, digest(to[2], ROW, ROWS) != 0);
  CHECK(cudaMemset(to[0], 0, BYTES));
  CHECK(cudaStreamBeginCapture(stream, 0));
  CHECK(BATCH(2, list, 0, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  size_t count = 2;
  Box box;
  CHECK(cudaGraphGetNodes(graph, nodes, &count));
  CHECK(cudaGraphMemcpyNodeGetParams(nodes[0], &box));
  printf(" nodes %zu box %zu %zu %zu kind %d", count, box.width, box.height, box.src.height, box.kind);
  CHECK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  CHECK(cudaGraphLaunch(executable, stream));
  printf(" %d\nrefused", digest(to[0], ROW, ROWS) != 0);
#define WRONG(change) list[1] = batched(to[1], from), change, said(BATCH(2, list, 0, stream))
  WRONG(list[1].order = 0);
  WRONG(list[1].flags = 2);
  WRONG(list[1].width = 0);
  WRONG(list[1].src.row = X - 1);
  WRONG(list[1].dst.height = Y - 1);
  WRONG(list[1].dst.type = 2);
  WRONG(list[1].dst.type = 7);
  WRONG(list[1].depth = 4);
  WRONG(list[1].dst.address = NULL);
  WRONG(list[1].height = list[1].src.height = list[1].dst.height = (size_t)1 << 62);
  list[1] = batched(to[1], from);
  printf(" failed %zu", failed);
  said(BATCH(2, list, 1, stream)), said(BATCH(0, list, 0, stream)), said(BATCH(2, NULL, 0, stream)), said(BATCH(2, list, 0, NULL));
  printf("\n");
}

static void operations(void) {
  unsigned *word;
  CHECK(cudaMallocManaged(&word, 16, 1));
  Operation list[] = {{2, word, 5, 0, 0, 0}, {1, word, 5, 1, 0, 0}, {6, 0, 0, 0, 0, 0}, {5, word + 2, (uint64_t)7 << 32, 0, 0, 0}, {4, word + 2, (uint64_t)7 << 32, 0, 0, 0}};
  CHECK(cuStreamBatchMemOp_v2(stream, 5, list, 0));
  printf("operations %u %u refused", word[0], word[3]);
  list[1].address = (void *)64, said(cuStreamBatchMemOp_v2(stream, 5, list, 0));
  list[1].address = (char *)word + 1, said(cuStreamBatchMemOp_v2(stream, 5, list, 0));
  list[1].operation = 9, said(cuStreamBatchMemOp_v2(stream, 5, list, 0));
  said(cuStreamBatchMemOp_v2(stream, 0, list, 0)), said(cuStreamBatchMemOp_v2(stream, 1, NULL, 0)), said(cuStreamBatchMemOp_v2(stream, 1, list, 3));
  printf("\n");
}

static void memory(void) {
  int device[] = {1, 0}, of_host[] = {2, 0}, properties[22] = {1, 0, 1, 0};
  void *pool, *set, *managed, *ranges[2];
  size_t bytes[] = {16, 16}, which[] = {0};
  CHECK(cudaMallocManaged(&managed, 32, 1));
  ranges[0] = managed, ranges[1] = (char *)managed + 16;
  CHECK(cudaMemDiscardBatchAsync(ranges, bytes, 2, 0, stream));
  CHECK(cudaMemPrefetchBatchAsync(ranges, bytes, 2, device, which, 1, 0, stream));
  printf("memory");
  bytes[1] = 17, said(cudaMemDiscardBatchAsync(ranges, bytes, 2, 0, stream));
  bytes[1] = 16, ranges[1] = cleared(), said(cudaMemPrefetchBatchAsync(ranges, bytes, 2, device, which, 1, 0, stream));
  CHECK(cudaMemPoolCreate(&pool, properties));
  CHECK(cudaMemSetMemPool(device, 1, pool));
  CHECK(cudaMemGetMemPool(&set, device, 1));
  printf(" pool %d", set == pool);
  CHECK(cudaDeviceGetMemPool(&set, 0));
  printf("%d", set == pool);
  CHECK(cudaMemGetDefaultMemPool(&set, device, 1));
  printf("%d", set == pool);
  said(cudaMemSetMemPool(of_host, 1, pool)), said(cudaMemGetMemPool(NULL, device, 1)), said(cudaMemGetMemPool(&set, device, 9));
  printf("\n");
}

int main(void) {
  void *from = cleared();
  for (int i = 0; i < BYTES; i++) host[i] = (unsigned char)(3 * i + 1);
  CHECK(cudaMemcpy(from, host, BYTES, 1));
  CHECK(cudaStreamCreate(&stream));
  peers(from);
  batches(from);
  operations();
  memory();
  CHECK(cudaStreamSynchronize(stream));
  return 0;
}
