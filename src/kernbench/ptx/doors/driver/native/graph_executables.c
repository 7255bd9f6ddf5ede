/* Executable graphs: copies that are launched, and whose nodes can be changed one by one or all together. */
#include "driver.h"

EXPORT int cuGraphInstantiateWithFlags(Executable **made, Graph *graph, unsigned long long flags) {
  READY();
  REQUIRE(made && IS(graph, GRAPH), INVALID_VALUE);
  *made = fresh(EXECUTABLE, sizeof **made);
  REQUIRE(*made && ((*made)->graph = copy_of(graph)), OUT_OF_MEMORY);
  (*made)->flags = flags;
  return SUCCESS;
}

EXPORT int cuGraphInstantiate_v2(Executable **made, Graph *graph, Node **failed, char *log, size_t room) {
  if (failed) *failed = NULL;
  if (log && room) *log = 0;
  return cuGraphInstantiateWithFlags(made, graph, 0);
}

typedef struct {
  uint64_t flags;
  void *stream;
  Node *failed;
  int result;
} InstantiateParameters;

EXPORT int cuGraphInstantiateWithParams(Executable **made, Graph *graph, InstantiateParameters *from) {
  REQUIRE(from, INVALID_VALUE);
  from->failed = NULL;
  from->result = 0;
  return cuGraphInstantiateWithFlags(made, graph, from->flags);
}

EXPORT int cuGraphExecGetFlags(Executable *executable, uint64_t *flags) {
  REQUIRE(IS(executable, EXECUTABLE) && flags, INVALID_VALUE);
  *flags = executable->flags;
  return SUCCESS;
}

EXPORT int cuGraphExecDestroy(Executable *executable) {
  REQUIRE(IS(executable, EXECUTABLE), INVALID_VALUE);
  executable->magic = 0;
  return SUCCESS;
}

EXPORT int cuGraphUpload(Executable *executable, void *stream) {
  (void)stream;
  return IS(executable, EXECUTABLE) ? ready() : INVALID_VALUE;
}

EXPORT int cuGraphLaunch(Executable *executable, void *handle) {
  Stream *stream;
  READY();
  REQUIRE(IS(executable, EXECUTABLE), INVALID_VALUE);
  int status = stream_of(handle, &stream);
  if (status) return status;
  REQUIRE(!stream->capture, STREAM_CAPTURE_UNSUPPORTED);
  return perform_graph(executable->graph);
}

static Node *part(const Executable *executable, const Node *node) {
  return IS(executable, EXECUTABLE) && IS(node, NODE) ? twin(executable->graph, node) : NULL;
}

#define PART(kind)                              \
  Node *own = part(executable, node);           \
  REQUIRE(own && own->type == kind, INVALID_VALUE)

EXPORT int cuGraphExecKernelNodeSetParams_v2(Executable *executable, Node *node, const KernelParameters *from) {
  PART(NODE_KERNEL);
  return cuGraphKernelNodeSetParams_v2(own, from);
}

EXPORT int cuGraphExecMemcpyNodeSetParams(Executable *executable, Node *node, const void *from, Context *context) {
  (void)context;
  PART(NODE_COPY);
  return cuGraphMemcpyNodeSetParams(own, from);
}

EXPORT int cuGraphExecMemsetNodeSetParams(Executable *executable, Node *node, const FillParameters *from, Context *context) {
  (void)context;
  PART(NODE_FILL);
  return cuGraphMemsetNodeSetParams(own, from);
}

EXPORT int cuGraphExecHostNodeSetParams(Executable *executable, Node *node, const HostParameters *from) {
  PART(NODE_HOST);
  return cuGraphHostNodeSetParams(own, from);
}

EXPORT int cuGraphExecChildGraphNodeSetParams(Executable *executable, Node *node, Graph *child) {
  PART(NODE_GRAPH);
  REQUIRE(IS(child, GRAPH), INVALID_VALUE);
  return (own->of.child = copy_of(child)) ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int cuGraphExecNodeSetParams(Executable *executable, Node *node, NodeParameters *from) {
  Node *own = part(executable, node);
  REQUIRE(own && from, INVALID_VALUE);
  return cuGraphNodeSetParams(own, from);
}

EXPORT int cuGraphExecEventRecordNodeSetEvent(Executable *executable, Node *node, Event *event) {
  PART(NODE_RECORD);
  own->of.event = event;
  return SUCCESS;
}

EXPORT int cuGraphExecEventWaitNodeSetEvent(Executable *executable, Node *node, Event *event) {
  PART(NODE_WAIT);
  own->of.event = event;
  return SUCCESS;
}

EXPORT int cuGraphNodeSetEnabled(Executable *executable, Node *node, unsigned enabled) {
  Node *own = part(executable, node);
  REQUIRE(own, INVALID_VALUE);
  own->enabled = enabled != 0;
  return SUCCESS;
}

EXPORT int cuGraphNodeGetEnabled(Executable *executable, Node *node, unsigned *enabled) {
  Node *own = part(executable, node);
  REQUIRE(own && enabled, INVALID_VALUE);
  *enabled = (unsigned)own->enabled;
  return SUCCESS;
}

static int same_shape(const Graph *one, const Graph *other) {
  if (one->nodes.count != other->nodes.count) return 0;
  for (size_t i = 0; i < one->nodes.count; i++)
    if (one->nodes.items[i]->type != other->nodes.items[i]->type) return 0;
  return 1;
}

typedef struct {
  int result;
  Node *node, *from;
} UpdateResult;

EXPORT int cuGraphExecUpdate_v2(Executable *executable, Graph *graph, UpdateResult *result) {
  REQUIRE(IS(executable, EXECUTABLE) && IS(graph, GRAPH), INVALID_VALUE);
  int same = same_shape(executable->graph, graph);
  if (result) *result = (UpdateResult){same ? 0 : 2, NULL, NULL};
  if (!same) return GRAPH_EXEC_UPDATE_FAILURE;
  return (executable->graph = copy_of(graph)) ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int cuGraphExecUpdate(Executable *executable, Graph *graph, Node **failed, int *result) {
  UpdateResult full;
  int status = cuGraphExecUpdate_v2(executable, graph, &full);
  if (failed) *failed = NULL;
  if (result) *result = full.result;
  return status;
}
