/* Streams and events. Work is done when it is submitted, unless the stream is being captured into a graph. */
#include "driver.h"

static Stream legacy = {.magic = STREAM, .id = 1}, per_thread = {.magic = STREAM, .id = 2};
static Stream *streams;
static Event *events;
static int capture_mode;

/* NULL and 1 are the legacy stream, 2 is that of the thread. */
int stream_of(void *handle, Stream **stream) {
  uintptr_t number = (uintptr_t)handle;
  *stream = number <= 1 ? &legacy : number == 2 ? &per_thread : handle;
  return IS(*stream, STREAM) ? SUCCESS : INVALID_HANDLE;
}

EXPORT int cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
  READY();
  REQUIRE(stream && flags <= 1, INVALID_VALUE);
  Stream *made = fresh(STREAM, sizeof *made);
  REQUIRE(made, OUT_OF_MEMORY);
  made->flags = flags;
  made->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
  made->id = next_id() + 2;
  lock();
  made->next = streams;
  streams = made;
  unlock();
  *stream = made;
  return SUCCESS;
}

EXPORT int cuStreamCreate(Stream **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

EXPORT int cuStreamDestroy_v2(Stream *stream) {
  REQUIRE((uintptr_t)stream > 2 && IS(stream, STREAM), INVALID_HANDLE);
  show_printf();
  lock();
  for (Stream **at = &streams; *at; at = &(*at)->next)
    if (*at == stream) {
      *at = stream->next;
      break;
    }
  unlock();
  stream->magic = 0;
  return broken;
}

#define STREAM_OF(handle, name)               \
  Stream *name;                               \
  do {                                        \
    READY();                                  \
    int problem_ = stream_of(handle, &name);  \
    if (problem_) return problem_;            \
  } while (0)

EXPORT int cuStreamGetPriority(void *handle, int *priority) {
  STREAM_OF(handle, stream);
  REQUIRE(priority, INVALID_VALUE);
  *priority = stream->priority;
  return SUCCESS;
}

EXPORT int cuStreamGetFlags(void *handle, unsigned *flags) {
  STREAM_OF(handle, stream);
  REQUIRE(flags, INVALID_VALUE);
  *flags = stream->flags;
  return SUCCESS;
}

EXPORT int cuStreamGetId(void *handle, unsigned long long *id) {
  STREAM_OF(handle, stream);
  REQUIRE(id, INVALID_VALUE);
  *id = stream->id;
  return SUCCESS;
}

EXPORT int cuStreamGetDevice(void *handle, int *device) {
  STREAM_OF(handle, stream);
  (void)stream;
  REQUIRE(device, INVALID_VALUE);
  *device = 0;
  return SUCCESS;
}

EXPORT int cuStreamGetCtx(void *handle, Context **context) {
  STREAM_OF(handle, stream);
  (void)stream;
  REQUIRE(context, INVALID_VALUE);
  *context = current_context();
  return SUCCESS;
}

EXPORT int cuStreamGetCtx_v2(void *handle, Context **context, void **green) {
  if (green) *green = NULL;
  return cuStreamGetCtx(handle, context);
}

/* Asking or waiting for a stream that is captured breaks the capture. */
static int not_captured(Stream *stream) {
  if (!stream->capture) return SUCCESS;
  stream->capture->invalid = 1;
  return STREAM_CAPTURE_UNSUPPORTED;
}

EXPORT int cuStreamSynchronize(void *handle) {
  STREAM_OF(handle, stream);
  show_printf();
  return not_captured(stream);
}

EXPORT int cuStreamQuery(void *handle) {
  STREAM_OF(handle, stream);
  return not_captured(stream);
}

EXPORT int cuStreamCopyAttributes(void *to, void *from) { return (void)to, (void)from, ready(); }

EXPORT int cuStreamGetAttribute(void *handle, int attribute, void *value) {
  STREAM_OF(handle, stream);
  (void)attribute, (void)stream;
  REQUIRE(value, INVALID_VALUE);
  memset(value, 0, 64);
  return SUCCESS;
}

EXPORT int cuStreamSetAttribute(void *handle, int attribute, const void *value) {
  STREAM_OF(handle, stream);
  (void)attribute, (void)value, (void)stream;
  return SUCCESS;
}

/* What is submitted to a captured stream becomes a node behind the last ones of the stream. */
static Node *capture_node(Stream *stream, int type) {
  Node *node = add_node(stream->capture->graph, type, stream->last.items, stream->last.count);
  if (!node) return NULL;
  stream->last.count = 0;
  append(&stream->last, node);
  return node;
}

int submit_copy(const Copy *copy, void *handle) {
  STREAM_OF(handle, stream);
  if (!stream->capture) return perform_copy(copy);
  Node *node = capture_node(stream, NODE_COPY);
  REQUIRE(node, OUT_OF_MEMORY);
  node->of.copy = *copy;
  return SUCCESS;
}

int submit_fill(const Fill *fill, void *handle) {
  STREAM_OF(handle, stream);
  if (!stream->capture) return perform_fill(fill);
  Node *node = capture_node(stream, NODE_FILL);
  REQUIRE(node, OUT_OF_MEMORY);
  node->of.fill = *fill;
  return SUCCESS;
}

int submit_launch(const Launch *launch, void *handle) {
  STREAM_OF(handle, stream);
  if (!stream->capture) return perform_launch(launch);
  Node *node = capture_node(stream, NODE_KERNEL);
  REQUIRE(node, OUT_OF_MEMORY);
  node->of.launch = *launch;
  node->of.launch.parameters = malloc(launch->kernel->bytes + 1);
  REQUIRE(node->of.launch.parameters, OUT_OF_MEMORY);
  memcpy(node->of.launch.parameters, launch->parameters, launch->kernel->bytes);
  return SUCCESS;
}

int capture_allocation(Address address, size_t bytes, int type, void *handle) {
  STREAM_OF(handle, stream);
  if (!stream->capture) return SUCCESS;
  Node *node = capture_node(stream, type);
  REQUIRE(node, OUT_OF_MEMORY);
  node->of.memory.address = address;
  node->of.memory.bytes = bytes;
  return type == NODE_ALLOCATE ? keep_for_graphs(address, bytes) : SUCCESS;
}

EXPORT int cuLaunchHostFunc(void *handle, HostFunction function, void *data) {
  STREAM_OF(handle, stream);
  REQUIRE(function, INVALID_VALUE);
  if (!stream->capture) {
    show_printf();
    function(data);
    return SUCCESS;
  }
  Node *node = capture_node(stream, NODE_HOST);
  REQUIRE(node, OUT_OF_MEMORY);
  node->of.host.function = function;
  node->of.host.data = data;
  return SUCCESS;
}

EXPORT int cuStreamAddCallback(void *handle, void (*function)(void *, int, void *), void *data, unsigned flags) {
  STREAM_OF(handle, stream);
  (void)flags;
  REQUIRE(function, INVALID_VALUE);
  REQUIRE(!stream->capture, STREAM_CAPTURE_UNSUPPORTED);
  show_printf();
  function(handle, broken, data);
  return SUCCESS;
}

/* A wait that the memory does not satisfy now would never end: nothing else runs meanwhile. */
static int wait_for(Address at, uint64_t value, unsigned flags, size_t bytes) {
  Range range;
  REQUIRE(at % bytes == 0 && range_of(at, &range) == SUCCESS, INVALID_VALUE);
  uint64_t found = 0, sign = (uint64_t)1 << (8 * bytes - 1);
  memcpy(&found, ours_at(at), bytes);
  unsigned kind = flags & 3;
  int met = kind == 0 ? ((found - value) & (sign | (sign - 1))) < sign : kind == 1 ? found == value : kind == 2 ? (found & value) != 0 : ~(found | value) != 0;
  if (!met) complain("a stream waits for a value at %#lx that nothing written so far gives: on the emulator, where calls are done one after the other, it would wait for ever", (unsigned long)at);
  return met ? SUCCESS : NOT_READY;
}

static int write_value(Address at, uint64_t value, unsigned element, void *handle) {
  STREAM_OF(handle, stream);
  (void)stream;
  REQUIRE(at % element == 0, INVALID_VALUE);
  Fill low = {at, 4, 1, 1, (unsigned)value, 4}, high = {at + 4, 4, 1, 1, (unsigned)(value >> 32), 4};
  int status = submit_fill(&low, handle);
  return status || element == 4 ? status : submit_fill(&high, handle);
}

EXPORT int cuStreamWriteValue32_v2(void *s, Address at, uint32_t value, unsigned flags) { return (void)flags, write_value(at, value, 4, s); }
EXPORT int cuStreamWriteValue64_v2(void *s, Address at, uint64_t value, unsigned flags) { return (void)flags, write_value(at, value, 8, s); }

EXPORT int cuStreamWaitValue32_v2(void *s, Address at, uint32_t value, unsigned flags) {
  STREAM_OF(s, stream);
  REQUIRE(!stream->capture, NOT_SUPPORTED);
  return wait_for(at, value, flags, 4);
}

EXPORT int cuStreamWaitValue64_v2(void *s, Address at, uint64_t value, unsigned flags) {
  STREAM_OF(s, stream);
  REQUIRE(!stream->capture, NOT_SUPPORTED);
  return wait_for(at, value, flags, 8);
}

EXPORT int cuEventCreate(Event **event, unsigned flags) {
  READY();
  REQUIRE(event, INVALID_VALUE);
  *event = fresh(EVENT, sizeof **event);
  REQUIRE(*event, OUT_OF_MEMORY);
  (*event)->flags = flags;
  lock();
  (*event)->next = events;
  if (events) events->previous = *event;
  events = *event;
  unlock();
  return SUCCESS;
}

EXPORT int cuEventDestroy_v2(Event *event) {
  REQUIRE(IS(event, EVENT), INVALID_HANDLE);
  lock();
  if (event->previous) event->previous->next = event->next;
  else events = event->next;
  if (event->next) event->next->previous = event->previous;
  unlock();
  event->magic = 0;
  return broken;
}

/* A context that is reset takes its streams and events along: their handles name nothing any more. */
void reset_streams(void) {
  lock();
  for (Stream *at = streams; at; at = at->next) at->magic = 0;
  for (Event *at = events; at; at = at->next) at->magic = 0;
  streams = NULL;
  events = NULL;
  Stream *const left[] = {&legacy, &per_thread};
  for (int i = 0; i < 2; i++) {
    left[i]->capture = NULL;
    left[i]->last.count = 0;
  }
  unlock();
}

enum { RECORD_EXTERNAL = 1, NO_TIMING = 2 };

EXPORT int cuEventRecordWithFlags(Event *event, void *handle, unsigned flags) {
  STREAM_OF(handle, stream);
  REQUIRE(IS(event, EVENT), INVALID_HANDLE);
  if (stream->capture && flags & RECORD_EXTERNAL) {
    Node *node = capture_node(stream, NODE_RECORD);
    REQUIRE(node, OUT_OF_MEMORY);
    node->of.event = event;
    return SUCCESS;
  }
  event->capture = stream->capture;
  event->last.count = 0;
  if (stream->capture)
    for (size_t i = 0; i < stream->last.count; i++) append(&event->last, stream->last.items[i]);
  else {
    event->recorded = 1;
    event->time = device_clock();
    event->launches = launches_done();
  }
  return SUCCESS;
}

EXPORT int cuEventRecord(Event *event, void *handle) { return cuEventRecordWithFlags(event, handle, 0); }

EXPORT int cuEventQuery(Event *event) {
  READY();
  REQUIRE(IS(event, EVENT), INVALID_HANDLE);
  return event->capture ? CAPTURED_EVENT : SUCCESS;
}

EXPORT int cuEventSynchronize(Event *event) {
  show_printf();
  return cuEventQuery(event);
}

EXPORT int cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *end) {
  READY();
  REQUIRE(milliseconds, INVALID_VALUE);
  REQUIRE(IS(start, EVENT) && IS(end, EVENT), INVALID_HANDLE);
  REQUIRE(start->recorded && end->recorded && !((start->flags | end->flags) & NO_TIMING), INVALID_HANDLE);
  /* what is predicted for the launches between them, where that is known; the verdict says which time a program got */
  Reply reply;
  ASK(&reply, REQUEST_TIMED, NULL, 0, start->launches, end->launches);
  *milliseconds = reply.words[0] ? (float)((double)reply.words[0] * 1e-9) : (float)((double)(int64_t)(end->time - start->time) * 1e-6);
  release(&reply);
  return SUCCESS;
}

EXPORT int cuStreamWaitEvent(void *handle, Event *event, unsigned flags) {
  STREAM_OF(handle, stream);
  (void)flags;
  REQUIRE(IS(event, EVENT), INVALID_HANDLE);
  if (!event->capture) return SUCCESS;
  REQUIRE(!stream->capture || stream->capture == event->capture, STREAM_CAPTURE_MERGE);
  stream->capture = event->capture;
  for (size_t i = 0; i < event->last.count; i++) append(&stream->last, event->last.items[i]);
  return SUCCESS;
}

/* Capture. */
static int begin(void *handle, Graph *graph, Node *const *before, size_t count) {
  STREAM_OF(handle, stream);
  REQUIRE(stream != &legacy, STREAM_CAPTURE_UNSUPPORTED);
  REQUIRE(!stream->capture, ILLEGAL_STATE);
  Capture *made = calloc(1, sizeof *made);
  REQUIRE(made && graph, OUT_OF_MEMORY);
  *made = (Capture){next_id(), graph, stream, 0};
  stream->capture = made;
  stream->last.count = 0;
  for (size_t i = 0; i < count; i++) append(&stream->last, before[i]);
  return SUCCESS;
}

EXPORT int cuStreamBeginCapture_v2(void *handle, int mode) { return (void)mode, begin(handle, new_graph(), NULL, 0); }
EXPORT int cuStreamBeginCapture(void *handle) { return cuStreamBeginCapture_v2(handle, 0); }

EXPORT int cuStreamBeginCaptureToGraph(void *handle, Graph *graph, Node *const *before, const void *edges, size_t count, int mode) {
  (void)edges, (void)mode;
  REQUIRE(IS(graph, GRAPH), INVALID_VALUE);
  return begin(handle, graph, before, count);
}

static void reach(Node *node, size_t mark) {
  if (node->visited == mark) return;
  node->visited = mark;
  for (size_t i = 0; i < node->before.count; i++) reach(node->before.items[i], mark);
}

/* Streams that joined the capture must have been waited for by the one that began it. */
static int leave(Stream *origin, Capture *capture) {
  int joined = 1;
  size_t mark = (size_t)next_id() + (1u << 20);
  for (size_t i = 0; i < origin->last.count; i++) reach(origin->last.items[i], mark);
  lock();
  for (Stream *at = streams; at; at = at->next) {
    if (at->capture != capture) continue;
    for (size_t i = 0; i < at->last.count; i++) joined &= at->last.items[i]->visited == mark;
    at->capture = NULL;
    at->last.count = 0;
  }
  unlock();
  origin->capture = NULL;
  origin->last.count = 0;
  return joined ? SUCCESS : STREAM_CAPTURE_UNJOINED;
}

EXPORT int cuStreamEndCapture(void *handle, Graph **graph) {
  STREAM_OF(handle, stream);
  REQUIRE(graph, INVALID_VALUE);
  Capture *capture = stream->capture;
  REQUIRE(capture, ILLEGAL_STATE);
  REQUIRE(capture->origin == stream, STREAM_CAPTURE_UNMATCHED);
  int status = leave(stream, capture);
  if (capture->invalid) status = STREAM_CAPTURE_INVALIDATED;
  *graph = status ? NULL : capture->graph;
  return status;
}

EXPORT int cuStreamGetCaptureInfo_v3(void *handle, int *status, uint64_t *id, Graph **graph, Node *const **before, const void **edges, size_t *count) {
  STREAM_OF(handle, stream);
  Capture *capture = stream->capture;
  if (status) *status = !capture ? 0 : capture->invalid ? 2 : 1;
  if (id) *id = capture ? capture->id : 0;
  if (graph) *graph = capture ? capture->graph : NULL;
  if (before) *before = stream->last.items;
  if (edges) *edges = NULL;
  if (count) *count = capture ? stream->last.count : 0;
  return SUCCESS;
}

EXPORT int cuStreamGetCaptureInfo_v2(void *handle, int *status, uint64_t *id, Graph **graph, Node *const **before, size_t *count) {
  return cuStreamGetCaptureInfo_v3(handle, status, id, graph, before, NULL, count);
}

EXPORT int cuStreamGetCaptureInfo(void *handle, int *status, uint64_t *id) {
  return cuStreamGetCaptureInfo_v3(handle, status, id, NULL, NULL, NULL, NULL);
}

EXPORT int cuStreamIsCapturing(void *handle, int *status) { return cuStreamGetCaptureInfo(handle, status, NULL); }

EXPORT int cuStreamUpdateCaptureDependencies_v2(void *handle, Node **nodes, const void *edges, size_t count, unsigned flags) {
  STREAM_OF(handle, stream);
  (void)edges;
  REQUIRE(stream->capture, ILLEGAL_STATE);
  if (flags & 1) stream->last.count = 0;
  for (size_t i = 0; i < count; i++) append(&stream->last, nodes[i]);
  return SUCCESS;
}

EXPORT int cuStreamUpdateCaptureDependencies(void *handle, Node **nodes, size_t count, unsigned flags) {
  return cuStreamUpdateCaptureDependencies_v2(handle, nodes, NULL, count, flags);
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
  REQUIRE(mode, INVALID_VALUE);
  int old = capture_mode;
  capture_mode = *mode;
  *mode = old;
  return SUCCESS;
}

EXPORT int cuCtxRecordEvent(Context *context, Event *event) { return (void)context, cuEventRecord(event, NULL); }
EXPORT int cuCtxWaitEvent(Context *context, Event *event) { return (void)context, cuStreamWaitEvent(NULL, event, 0); }
