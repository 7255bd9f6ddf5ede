/* Graphs: nodes with what they wait for; an executable graph is a copy that is run in an order that respects it. */
#include "driver.h"

void append(NodeList *list, Node *node) {
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i] == node) return;
  if (list->count == list->room) {
    size_t room = 2 * list->room + 4;
    Node **longer = realloc(list->items, room * sizeof *longer);
    if (!longer) return;
    list->items = longer;
    list->room = room;
  }
  list->items[list->count++] = node;
}

static void drop(NodeList *list, const Node *node) {
  size_t kept = 0;
  for (size_t i = 0; i < list->count; i++)
    if (list->items[i] != node) list->items[kept++] = list->items[i];
  list->count = kept;
}

Graph *new_graph(void) { return fresh(GRAPH, sizeof(Graph)); }

Node *add_node(Graph *graph, int type, Node *const *before, size_t count) {
  Node *node = fresh(NODE, sizeof *node);
  if (!node) return NULL;
  node->type = type;
  node->enabled = 1;
  node->graph = graph;
  node->original = node;
  for (size_t i = 0; i < count; i++) append(&node->before, before[i]);
  append(&graph->nodes, node);
  return node;
}

int cuEventRecord(Event *event, void *stream);

static int perform_node(Node *node) {
  if (!node->enabled) return SUCCESS;
  switch (node->type) {
    case NODE_KERNEL: return perform_launch(&node->of.launch);
    case NODE_COPY: return perform_copy(&node->of.copy);
    case NODE_FILL: return perform_fill(&node->of.fill);
    case NODE_HOST: show_printf(); node->of.host.function(node->of.host.data); return SUCCESS;
    case NODE_GRAPH: return perform_graph(node->of.child);
    case NODE_RECORD: return cuEventRecord(node->of.event, NULL);
    default: return SUCCESS;
  }
}

/* Depth first: a node after all it waits for. Nodes of one run carry the same mark. */
static int perform_after(Node *node, size_t mark) {
  int status = SUCCESS;
  if (node->visited == mark) return SUCCESS;
  node->visited = mark;
  for (size_t i = 0; i < node->before.count && !status; i++) status = perform_after(node->before.items[i], mark);
  return status ? status : perform_node(node);
}

int perform_graph(Graph *graph) {
  int status = SUCCESS;
  size_t mark = (size_t)next_id() + (1u << 20);
  for (size_t i = 0; i < graph->nodes.count && !status; i++) status = perform_after(graph->nodes.items[i], mark);
  return status;
}

static Node *twin(const Graph *graph, const Node *original) {
  for (size_t i = 0; i < graph->nodes.count; i++)
    if (graph->nodes.items[i]->original == original) return graph->nodes.items[i];
  return NULL;
}

static char *copied(const char *data, size_t bytes) {
  char *made = malloc(bytes + 1);
  if (made) memcpy(made, data, bytes);
  return made;
}

/* Two passes, as a node may wait for one that was added later. */
static Graph *copy_of(const Graph *from) {
  Graph *made = new_graph();
  for (size_t i = 0; made && i < from->nodes.count; i++) {
    Node *old = from->nodes.items[i], *node = add_node(made, old->type, NULL, 0);
    if (!node) return NULL;
    node->original = old;
    node->enabled = old->enabled;
    node->of = old->of;
    if (old->type == NODE_KERNEL) node->of.launch.parameters = copied(old->of.launch.parameters, old->of.launch.kernel->bytes);
    if (old->type == NODE_GRAPH) node->of.child = copy_of(old->of.child);
  }
  for (size_t i = 0; made && i < from->nodes.count; i++)
    for (size_t k = 0; k < from->nodes.items[i]->before.count; k++)
      append(&made->nodes.items[i]->before, twin(made, from->nodes.items[i]->before.items[k]));
  return made;
}

EXPORT int cuGraphCreate(Graph **graph, unsigned flags) {
  (void)flags;
  READY();
  REQUIRE(graph, INVALID_VALUE);
  *graph = new_graph();
  return *graph ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int cuGraphDestroy(Graph *graph) {
  REQUIRE(IS(graph, GRAPH), INVALID_VALUE);
  graph->magic = 0;
  return SUCCESS;
}

EXPORT int cuGraphClone(Graph **graph, Graph *original) {
  REQUIRE(graph && IS(original, GRAPH), INVALID_VALUE);
  *graph = copy_of(original);
  return *graph ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int cuGraphNodeFindInClone(Node **node, Node *original, Graph *graph) {
  REQUIRE(node && IS(graph, GRAPH), INVALID_VALUE);
  *node = twin(graph, original);
  return *node ? SUCCESS : INVALID_VALUE;
}

#define ADD(type)                                                              \
  READY();                                                                     \
  REQUIRE(made && IS(graph, GRAPH) && (before || !count), INVALID_VALUE);      \
  Node *node = add_node(graph, type, before, count);                           \
  REQUIRE(node, OUT_OF_MEMORY);                                                \
  *made = node

typedef struct {
  Kernel *function;
  unsigned grid[3], block[3], shared_bytes;
  void **pointers, **extra;
  Kernel *kernel;
  Context *context;
} KernelParameters;

int pack(Launch *launch, void **pointers, void **extra);

static int set_kernel(Node *node, const KernelParameters *from) {
  Launch launch = {.kernel = from->function ? from->function : from->kernel, .shared_bytes = from->shared_bytes};
  memcpy(launch.grid, from->grid, sizeof launch.grid);
  memcpy(launch.block, from->block, sizeof launch.block);
  memcpy(launch.cluster, node->of.launch.cluster, sizeof launch.cluster);
  launch.cooperative = node->of.launch.cooperative;
  int status = pack(&launch, from->pointers, from->extra);
  if (!status) node->of.launch = launch;
  return status;
}

EXPORT int cuGraphAddKernelNode_v2(Node **made, Graph *graph, Node *const *before, size_t count, const KernelParameters *from) {
  REQUIRE(from, INVALID_VALUE);
  ADD(NODE_KERNEL);
  int status = set_kernel(node, from);
  if (status) drop(&graph->nodes, node);
  return status;
}

EXPORT int cuGraphKernelNodeSetParams_v2(Node *node, const KernelParameters *from) {
  REQUIRE(IS(node, NODE) && node->type == NODE_KERNEL && from, INVALID_VALUE);
  return set_kernel(node, from);
}

EXPORT int cuGraphKernelNodeGetParams_v2(Node *node, KernelParameters *out) {
  REQUIRE(IS(node, NODE) && node->type == NODE_KERNEL && out, INVALID_VALUE);
  const Launch *launch = &node->of.launch;
  void **pointers = calloc(launch->kernel->count + 1, sizeof *pointers);
  REQUIRE(pointers, OUT_OF_MEMORY);
  char *at = launch->parameters;
  for (uint32_t i = 0; i < launch->kernel->count; at += launch->kernel->sizes[i++]) pointers[i] = at;
  *out = (KernelParameters){.function = launch->kernel, .shared_bytes = launch->shared_bytes, .pointers = pointers, .kernel = launch->kernel};
  memcpy(out->grid, launch->grid, sizeof out->grid);
  memcpy(out->block, launch->block, sizeof out->block);
  return SUCCESS;
}

void apply_attribute(Launch *launch, int id, const void *value);

EXPORT int cuGraphKernelNodeSetAttribute(Node *node, int attribute, const void *value) {
  REQUIRE(IS(node, NODE) && node->type == NODE_KERNEL && value, INVALID_VALUE);
  apply_attribute(&node->of.launch, attribute, value);
  return SUCCESS;
}

EXPORT int cuGraphKernelNodeGetAttribute(Node *node, int attribute, unsigned *value) {
  REQUIRE(IS(node, NODE) && node->type == NODE_KERNEL && value, INVALID_VALUE);
  memset(value, 0, 64);
  if (attribute == 2) *value = (unsigned)node->of.launch.cooperative;
  if (attribute == 4) memcpy(value, node->of.launch.cluster, sizeof node->of.launch.cluster);
  return SUCCESS;
}

EXPORT int cuGraphKernelNodeCopyAttributes(Node *to, Node *from) {
  REQUIRE(IS(to, NODE) && IS(from, NODE), INVALID_VALUE);
  memcpy(to->of.launch.cluster, from->of.launch.cluster, sizeof to->of.launch.cluster);
  to->of.launch.cooperative = from->of.launch.cooperative;
  return SUCCESS;
}

int read_3d(const void *description, Copy *copy);
void write_3d(const Copy *copy, void *description);

EXPORT int cuGraphAddMemcpyNode(Node **made, Graph *graph, Node *const *before, size_t count, const void *from, Context *context) {
  Copy copy;
  (void)context;
  int status = read_3d(from, &copy);
  if (status) return status;
  ADD(NODE_COPY);
  node->of.copy = copy;
  return SUCCESS;
}

EXPORT int cuGraphMemcpyNodeSetParams(Node *node, const void *from) {
  REQUIRE(IS(node, NODE) && node->type == NODE_COPY, INVALID_VALUE);
  return read_3d(from, &node->of.copy);
}

EXPORT int cuGraphMemcpyNodeGetParams(Node *node, void *out) {
  REQUIRE(IS(node, NODE) && node->type == NODE_COPY && out, INVALID_VALUE);
  write_3d(&node->of.copy, out);
  return SUCCESS;
}

typedef struct {
  Address dst;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
} FillParameters;

static Fill fill_of(const FillParameters *from) { return (Fill){from->dst, from->pitch, from->width, from->height, from->value, from->element}; }

EXPORT int cuGraphAddMemsetNode(Node **made, Graph *graph, Node *const *before, size_t count, const FillParameters *from, Context *context) {
  (void)context;
  REQUIRE(from && (from->element == 1 || from->element == 2 || from->element == 4), INVALID_VALUE);
  ADD(NODE_FILL);
  node->of.fill = fill_of(from);
  return SUCCESS;
}

EXPORT int cuGraphMemsetNodeSetParams(Node *node, const FillParameters *from) {
  REQUIRE(IS(node, NODE) && node->type == NODE_FILL && from, INVALID_VALUE);
  node->of.fill = fill_of(from);
  return SUCCESS;
}

EXPORT int cuGraphMemsetNodeGetParams(Node *node, FillParameters *out) {
  REQUIRE(IS(node, NODE) && node->type == NODE_FILL && out, INVALID_VALUE);
  const Fill *fill = &node->of.fill;
  *out = (FillParameters){fill->dst, fill->pitch, fill->value, fill->element, fill->width, fill->height};
  return SUCCESS;
}

typedef struct {
  HostFunction function;
  void *data;
} HostParameters;

EXPORT int cuGraphAddHostNode(Node **made, Graph *graph, Node *const *before, size_t count, const HostParameters *from) {
  REQUIRE(from && from->function, INVALID_VALUE);
  ADD(NODE_HOST);
  node->of.host.function = from->function;
  node->of.host.data = from->data;
  return SUCCESS;
}

EXPORT int cuGraphHostNodeSetParams(Node *node, const HostParameters *from) {
  REQUIRE(IS(node, NODE) && node->type == NODE_HOST && from && from->function, INVALID_VALUE);
  node->of.host.function = from->function;
  node->of.host.data = from->data;
  return SUCCESS;
}

EXPORT int cuGraphHostNodeGetParams(Node *node, HostParameters *out) {
  REQUIRE(IS(node, NODE) && node->type == NODE_HOST && out, INVALID_VALUE);
  *out = (HostParameters){node->of.host.function, node->of.host.data};
  return SUCCESS;
}

EXPORT int cuGraphAddChildGraphNode(Node **made, Graph *graph, Node *const *before, size_t count, Graph *child) {
  REQUIRE(IS(child, GRAPH), INVALID_VALUE);
  ADD(NODE_GRAPH);
  node->of.child = copy_of(child);
  return node->of.child ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT int cuGraphChildGraphNodeGetGraph(Node *node, Graph **child) {
  REQUIRE(IS(node, NODE) && node->type == NODE_GRAPH && child, INVALID_VALUE);
  *child = node->of.child;
  return SUCCESS;
}

EXPORT int cuGraphAddEmptyNode(Node **made, Graph *graph, Node *const *before, size_t count) {
  ADD(NODE_EMPTY);
  return SUCCESS;
}

EXPORT int cuGraphAddEventRecordNode(Node **made, Graph *graph, Node *const *before, size_t count, Event *event) {
  REQUIRE(IS(event, EVENT), INVALID_VALUE);
  ADD(NODE_RECORD);
  node->of.event = event;
  return SUCCESS;
}

EXPORT int cuGraphAddEventWaitNode(Node **made, Graph *graph, Node *const *before, size_t count, Event *event) {
  REQUIRE(IS(event, EVENT), INVALID_VALUE);
  ADD(NODE_WAIT);
  node->of.event = event;
  return SUCCESS;
}

/* The general form: a type, three reserved words, then the parameters of that type. */
typedef struct {
  int type, reserved[3];
  char of[29 * 8];
} NodeParameters;

static int set_node(Node *node, const NodeParameters *from) {
  switch (from->type) {
    case NODE_KERNEL: return set_kernel(node, (const KernelParameters *)from->of);
    case NODE_COPY: return read_3d(from->of + 16, &node->of.copy);
    case NODE_FILL: return node->of.fill = fill_of((const FillParameters *)from->of), SUCCESS;
    case NODE_HOST: memcpy(&node->of.host, from->of, sizeof node->of.host); return SUCCESS;
    case NODE_GRAPH: return (node->of.child = copy_of(*(Graph *const *)from->of)) ? SUCCESS : OUT_OF_MEMORY;
    case NODE_EMPTY: return SUCCESS;
    case NODE_WAIT: case NODE_RECORD: node->of.event = *(Event *const *)from->of; return SUCCESS;
    default: complain("nodes of type %d are not emulated in graphs", from->type); return NOT_SUPPORTED;
  }
}

EXPORT int cuGraphAddNode_v2(Node **made, Graph *graph, Node *const *before, const void *edges, size_t count, NodeParameters *from) {
  (void)edges;
  REQUIRE(from, INVALID_VALUE);
  ADD(from->type);
  int status = set_node(node, from);
  if (status) drop(&graph->nodes, node);
  return status;
}

EXPORT int cuGraphAddNode(Node **made, Graph *graph, Node *const *before, size_t count, NodeParameters *from) {
  return cuGraphAddNode_v2(made, graph, before, NULL, count, from);
}

EXPORT int cuGraphNodeSetParams(Node *node, NodeParameters *from) {
  REQUIRE(IS(node, NODE) && from && node->type == from->type, INVALID_VALUE);
  return set_node(node, from);
}

EXPORT int cuGraphNodeGetType(Node *node, int *type) {
  REQUIRE(IS(node, NODE) && type, INVALID_VALUE);
  *type = node->type;
  return SUCCESS;
}

/* Lists: with no room given, how many there are; else as many as fit. */
static int give(const NodeList *list, Node **out, size_t *count) {
  REQUIRE(count, INVALID_VALUE);
  for (size_t i = 0; out && i < *count; i++) out[i] = i < list->count ? list->items[i] : NULL;
  if (!out || *count > list->count) *count = list->count;
  return SUCCESS;
}

EXPORT int cuGraphGetNodes(Graph *graph, Node **nodes, size_t *count) {
  REQUIRE(IS(graph, GRAPH), INVALID_VALUE);
  return give(&graph->nodes, nodes, count);
}

EXPORT int cuGraphGetRootNodes(Graph *graph, Node **nodes, size_t *count) {
  NodeList roots = {0};
  REQUIRE(IS(graph, GRAPH), INVALID_VALUE);
  for (size_t i = 0; i < graph->nodes.count; i++)
    if (!graph->nodes.items[i]->before.count) append(&roots, graph->nodes.items[i]);
  int status = give(&roots, nodes, count);
  free(roots.items);
  return status;
}

EXPORT int cuGraphGetEdges_v2(Graph *graph, Node **from, Node **to, void *edges, size_t *count) {
  REQUIRE(IS(graph, GRAPH) && count, INVALID_VALUE);
  size_t found = 0;
  for (size_t i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.items[i];
    for (size_t k = 0; k < node->before.count; k++, found++)
      if (from && to && found < *count) from[found] = node->before.items[k], to[found] = node;
  }
  if (edges && from) memset(edges, 0, 8 * (found < *count ? found : *count));
  *count = found;
  return SUCCESS;
}

EXPORT int cuGraphGetEdges(Graph *graph, Node **from, Node **to, size_t *count) { return cuGraphGetEdges_v2(graph, from, to, NULL, count); }

EXPORT int cuGraphNodeGetDependencies_v2(Node *node, Node **nodes, void *edges, size_t *count) {
  REQUIRE(IS(node, NODE), INVALID_VALUE);
  int status = give(&node->before, nodes, count);
  if (edges && nodes && !status) memset(edges, 0, 8 * *count);
  return status;
}

EXPORT int cuGraphNodeGetDependencies(Node *node, Node **nodes, size_t *count) { return cuGraphNodeGetDependencies_v2(node, nodes, NULL, count); }

EXPORT int cuGraphNodeGetDependentNodes_v2(Node *node, Node **nodes, void *edges, size_t *count) {
  NodeList after = {0};
  REQUIRE(IS(node, NODE), INVALID_VALUE);
  for (size_t i = 0; i < node->graph->nodes.count; i++)
    for (size_t k = 0; k < node->graph->nodes.items[i]->before.count; k++)
      if (node->graph->nodes.items[i]->before.items[k] == node) append(&after, node->graph->nodes.items[i]);
  int status = give(&after, nodes, count);
  if (edges && nodes && !status) memset(edges, 0, 8 * *count);
  free(after.items);
  return status;
}

EXPORT int cuGraphNodeGetDependentNodes(Node *node, Node **nodes, size_t *count) { return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, count); }

EXPORT int cuGraphAddDependencies_v2(Graph *graph, Node *const *from, Node *const *to, const void *edges, size_t count) {
  (void)edges;
  REQUIRE(IS(graph, GRAPH), INVALID_VALUE);
  for (size_t i = 0; i < count; i++) append(&to[i]->before, from[i]);
  return SUCCESS;
}

EXPORT int cuGraphRemoveDependencies_v2(Graph *graph, Node *const *from, Node *const *to, const void *edges, size_t count) {
  (void)edges;
  REQUIRE(IS(graph, GRAPH), INVALID_VALUE);
  for (size_t i = 0; i < count; i++) drop(&to[i]->before, from[i]);
  return SUCCESS;
}

EXPORT int cuGraphAddDependencies(Graph *graph, Node *const *from, Node *const *to, size_t count) { return cuGraphAddDependencies_v2(graph, from, to, NULL, count); }
EXPORT int cuGraphRemoveDependencies(Graph *graph, Node *const *from, Node *const *to, size_t count) { return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count); }

EXPORT int cuGraphDestroyNode(Node *node) {
  REQUIRE(IS(node, NODE), INVALID_VALUE);
  drop(&node->graph->nodes, node);
  for (size_t i = 0; i < node->graph->nodes.count; i++) drop(&node->graph->nodes.items[i]->before, node);
  node->magic = 0;
  return SUCCESS;
}

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

EXPORT int cuGraphDebugDotPrint(Graph *graph, const char *path, unsigned flags) {
  static const char *const kinds[] = {"kernel", "copy", "fill", "host", "graph", "empty", "wait", "record", "", "", "allocate", "free"};
  (void)flags;
  REQUIRE(IS(graph, GRAPH) && path, INVALID_VALUE);
  FILE *file = fopen(path, "w");
  REQUIRE(file, OPERATING_SYSTEM);
  fputs("digraph {\n", file);
  for (size_t i = 0; i < graph->nodes.count; i++) {
    Node *node = graph->nodes.items[i];
    fprintf(file, "  \"%p\" [label=\"%s\"];\n", (void *)node, node->type == NODE_KERNEL ? node->of.launch.kernel->name : kinds[node->type]);
    for (size_t k = 0; k < node->before.count; k++) fprintf(file, "  \"%p\" -> \"%p\";\n", (void *)node->before.items[k], (void *)node);
  }
  fputs("}\n", file);
  return fclose(file) ? OPERATING_SYSTEM : SUCCESS;
}

EXPORT int cuGraphEventRecordNodeGetEvent(Node *node, Event **event) {
  REQUIRE(IS(node, NODE) && event, INVALID_VALUE);
  *event = node->of.event;
  return SUCCESS;
}

EXPORT int cuGraphEventWaitNodeGetEvent(Node *node, Event **event) { return cuGraphEventRecordNodeGetEvent(node, event); }

EXPORT int cuGraphEventRecordNodeSetEvent(Node *node, Event *event) {
  REQUIRE(IS(node, NODE) && IS(event, EVENT), INVALID_VALUE);
  node->of.event = event;
  return SUCCESS;
}

EXPORT int cuGraphEventWaitNodeSetEvent(Node *node, Event *event) { return cuGraphEventRecordNodeSetEvent(node, event); }
EXPORT int cuDeviceGraphMemTrim(int device) { return device == 0 ? SUCCESS : INVALID_DEVICE; }

/* User objects live as long as the process: nothing is given back before that either. */
EXPORT int cuUserObjectCreate(void **object, void *pointer, HostFunction destroy, unsigned count, unsigned flags) {
  (void)destroy, (void)count, (void)flags;
  REQUIRE(object, INVALID_VALUE);
  *object = pointer ? pointer : (void *)object;
  return SUCCESS;
}

EXPORT int cuUserObjectRetain(void *object, unsigned count) { return (void)object, (void)count, SUCCESS; }
EXPORT int cuUserObjectRelease(void *object, unsigned count) { return (void)object, (void)count, SUCCESS; }
EXPORT int cuGraphRetainUserObject(Graph *graph, void *object, unsigned count, unsigned flags) { return (void)object, (void)count, (void)flags, IS(graph, GRAPH) ? SUCCESS : INVALID_VALUE; }
EXPORT int cuGraphReleaseUserObject(Graph *graph, void *object, unsigned count) { return (void)object, (void)count, IS(graph, GRAPH) ? SUCCESS : INVALID_VALUE; }
