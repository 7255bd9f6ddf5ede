/* What the parts of the stand-in driver library share: error codes, objects behind handles, the link to the emulator.
 *
 * The types of the driver API are written down here by their binary layout, so that no CUDA header is needed. */
#ifndef KERNBENCH_DRIVER_H
#define KERNBENCH_DRIVER_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t Address;

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NOT_INITIALIZED = 3,
  DEINITIALIZED = 4,
  INVALID_DIRECTION = 21,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  UNSUPPORTED_LIMIT = 215,
  FILE_NOT_FOUND = 301,
  OPERATING_SYSTEM = 304,
  INVALID_HANDLE = 400,
  ILLEGAL_STATE = 401,
  NOT_FOUND = 500,
  NOT_READY = 600,
  LAUNCH_OUT_OF_RESOURCES = 701,
  HOST_MEMORY_ALREADY_REGISTERED = 712,
  HOST_MEMORY_NOT_REGISTERED = 713,
  LAUNCH_FAILED = 719,
  NOT_SUPPORTED = 801,
  STREAM_CAPTURE_UNSUPPORTED = 900,
  STREAM_CAPTURE_INVALIDATED = 901,
  STREAM_CAPTURE_MERGE = 902,
  STREAM_CAPTURE_UNMATCHED = 903,
  STREAM_CAPTURE_UNJOINED = 904,
  CAPTURED_EVENT = 907,
  GRAPH_EXEC_UPDATE_FAILURE = 910,
  INVALID_CLUSTER_SIZE = 912,
};

/* What the emulator is asked; requests.py has the same list, which a test compares. */
enum Request {
  REQUEST_HELLO = 1,
  REQUEST_ALLOCATE = 2,
  REQUEST_FREE = 3,
  REQUEST_RANGE = 4,
  REQUEST_COPY = 5,
  REQUEST_SET = 6,
  REQUEST_USAGE = 7,
  REQUEST_LOAD = 8,
  REQUEST_UNLOAD = 9,
  REQUEST_KERNEL = 10,
  REQUEST_KERNEL_NAMES = 11,
  REQUEST_VARIABLE = 12,
  REQUEST_LAUNCH = 13,
  REQUEST_OCCUPANCY = 14,
  REQUEST_TENSOR_MAP = 15,
  REQUEST_LIMIT = 16,
  REQUEST_REGISTER = 17,
  REQUEST_UNREGISTER = 18,
  REQUEST_REFUSED = 19,
  REQUEST_ERROR_SEEN = 20,
  REQUEST_TIMED = 21,
  REQUEST_CALLER = 22,
  REQUEST_RESET = 23,
  REQUEST_TOUCHED = 24,
};

enum { REPLY_WORDS = 192, ATTRIBUTES = 160 };

typedef struct {
  int status;
  uint32_t count;
  uint64_t words[REPLY_WORDS];
  char *data;
  size_t bytes;
} Reply;

/* Ask the emulator; returns the driver's error code. The caller releases the reply. */
int ask(uint32_t request, const uint64_t *words, size_t count, const void *data, size_t bytes, Reply *reply);
void release(Reply *reply);

#define ASK(reply, request, data, bytes, ...)                                                                \
  ask(request, (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), \
      data, bytes, reply)

/* Objects behind handles. They are never given back to the allocator, so that a stale handle is recognised. */
enum Magic {
  CONTEXT = 0x4b42c001,
  MODULE,
  KERNEL,
  STREAM,
  EVENT,
  GRAPH,
  NODE,
  EXECUTABLE,
  POOL,
  LINKER,
  REFUSED_KERNEL,
};

typedef struct {
  uint32_t magic;
  unsigned flags;
  uint64_t id;
} Context;

typedef struct {
  uint32_t magic;
  uint64_t id;
} Module;

typedef struct Kernel {
  uint32_t magic;
  uint64_t id;
  Module *module;
  char *name;
  int attributes[16];
  uint32_t count;
  uint32_t *sizes, *offsets;
  uint32_t bytes;
  struct Kernel *next;
} Kernel;

typedef struct Node Node;
typedef struct Graph Graph;
typedef struct Stream Stream;

typedef struct {
  Node **items;
  size_t count, room;
} NodeList;

typedef struct {
  uint64_t id;
  Graph *graph;
  Stream *origin;
  int invalid;
} Capture;

struct Stream {
  uint32_t magic;
  unsigned flags;
  int priority;
  uint64_t id;
  Capture *capture;
  NodeList last;
  Stream *next;
};

typedef struct Event {
  uint32_t magic;
  unsigned flags;
  int recorded;
  uint64_t time, launches;
  Capture *capture;
  NodeList last;
  struct Event *previous, *next;
} Event;

/* What a call says of where its copy comes from and goes to: nothing, or the host (1) or the device (2), the source times 4. */
enum Named { NOT_NAMED, HOST_TO_HOST = 5, HOST_TO_DEVICE = 6, DEVICE_TO_HOST = 9, DEVICE_TO_DEVICE = 10 };

/* A copy of depth x height rows of width bytes; also how plain copies are written down. */
typedef struct {
  Address dst, src;
  size_t dst_pitch, dst_slice, src_pitch, src_slice;
  size_t width, height, depth;
  int named;
} Copy;

typedef struct {
  Address dst;
  size_t pitch, width, height;
  unsigned value, element;
} Fill;

typedef struct {
  Kernel *kernel;
  unsigned grid[3], block[3], cluster[3];
  unsigned shared_bytes;
  int cooperative;
  char *parameters;
} Launch;

typedef void (*HostFunction)(void *);

enum NodeType { NODE_KERNEL, NODE_COPY, NODE_FILL, NODE_HOST, NODE_GRAPH, NODE_EMPTY, NODE_WAIT, NODE_RECORD, NODE_ALLOCATE = 10, NODE_FREE };

struct Node {
  uint32_t magic;
  int type, enabled;
  Graph *graph;
  Node *original;
  NodeList before;
  size_t visited;
  union {
    Launch launch;
    Copy copy;
    Fill fill;
    struct { HostFunction function; void *data; } host;
    Graph *child;
    Event *event;
    struct { Address address; size_t bytes; } memory;
  } of;
};

struct Graph {
  uint32_t magic;
  NodeList nodes;
};

typedef struct {
  uint32_t magic;
  Graph *graph;
  uint64_t flags;
} Executable;

/* `kind` is what memory of it is allocated as. */
typedef struct {
  uint32_t magic;
  int kind;
  uint64_t attributes[16];
} Pool;

/* link.c */
extern Reply hello;
extern int runtime_in_use;
int initialised(void);
/* What a program can do without a function that is not emulated, to be put behind its name; "" where nothing is known. */
const char *instead_of(const char *name);
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *fresh(uint32_t magic, size_t bytes);
uint64_t next_id(void);
void lock(void);
void unlock(void);
/* A call of this thread was refused, and the program has not asked for the error since. */
extern _Thread_local int unseen;

/* Who made a call, or an access, that was refused: the fault's number, and where in the program it was. */
void say_caller_at(uint64_t fault, Address at);

/* host_access.c */
void *ours_at(Address address);
void grant(Address address, size_t bytes);
int map_for_host(int file, Address base, size_t bytes);

/* linked_in.c and compilers.c */
int stands_in(uintptr_t base);
int newest_compiler(void);

/* device.c */
extern int broken;
int ready(void);
Context *current_context(void);
void show_printf(void);

/* memory.c */
int reset_memory(void);
int box_of(Copy *copy, Address dst, size_t dst_pitch, size_t dst_rows, Address src, size_t src_pitch, size_t src_rows, const size_t *extent);
int copy_line(Address dst, Address src, size_t bytes, int named, void *stream);
int perform_copy(const Copy *copy);
int perform_fill(const Fill *fill);
int allocate_for_graphs(Address *address, size_t bytes);
int keep_for_graphs(Address address, size_t bytes);

/* launch.c */
int perform_launch(const Launch *launch);
int refuse_launch(const char *name, const unsigned *grid, const unsigned *block, int error, const char *why);
uint64_t device_clock(void);
uint64_t launches_done(void);

/* streams.c and graphs.c */
void reset_streams(void);
int stream_of(void *handle, Stream **stream);
int submit_copy(const Copy *copy, void *stream);
int submit_fill(const Fill *fill, void *stream);
int submit_launch(const Launch *launch, void *stream);
Node *add_node(Graph *graph, int type, Node *const *before, size_t count);
Graph *new_graph(void);
void append(NodeList *list, Node *node);
int perform_graph(Graph *graph);

#define IS(handle, kind) ((handle) != NULL && *(const uint32_t *)(handle) == (kind))
#define REQUIRE(condition, error) \
  do {                            \
    if (!(condition)) return error; \
  } while (0)
#define READY()                     \
  do {                              \
    int problem_ = ready();         \
    if (problem_) return problem_;  \
  } while (0)

#endif
