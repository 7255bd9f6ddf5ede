/* Nodes of graphs, kind by kind: how they are added, and how what they do is read and changed. */
#include "driver.h"

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

/* Properties of a pool, who may access it, how much; where it lies is known at once. */
typedef struct {
  int type, handles, location, device;
  char others[72];
  const void *access;
  size_t accesses, bytes;
  Address address;
} AllocateParameters;

EXPORT int cuGraphAddMemAllocNode(Node **made, Graph *graph, Node *const *before, size_t count, AllocateParameters *from) {
  REQUIRE(from && from->bytes, INVALID_VALUE);
  int status = allocate_for_graphs(&from->address, from->bytes);
  if (status) return status;
  ADD(NODE_ALLOCATE);
  node->of.memory.address = from->address;
  node->of.memory.bytes = from->bytes;
  return SUCCESS;
}

EXPORT int cuGraphMemAllocNodeGetParams(Node *node, AllocateParameters *out) {
  REQUIRE(IS(node, NODE) && node->type == NODE_ALLOCATE && out, INVALID_VALUE);
  *out = (AllocateParameters){.type = 1, .location = 1, .bytes = node->of.memory.bytes, .address = node->of.memory.address};
  return SUCCESS;
}

EXPORT int cuGraphAddMemFreeNode(Node **made, Graph *graph, Node *const *before, size_t count, Address address) {
  REQUIRE(address, INVALID_VALUE);
  ADD(NODE_FREE);
  node->of.memory.address = address;
  return SUCCESS;
}

EXPORT int cuGraphMemFreeNodeGetParams(Node *node, Address *out) {
  REQUIRE(IS(node, NODE) && node->type == NODE_FREE && out, INVALID_VALUE);
  *out = node->of.memory.address;
  return SUCCESS;
}

/* The general form: a type, three reserved words, then the parameters of that type. */
typedef struct {
  int type, reserved[3];
  char of[29 * 8];
} NodeParameters;

/* Node types that are not emulated, by the words in the names of their functions. */
static const char *kind_of(int type) {
  static const char *const kinds[] = {"ExternalSemaphores", "ExternalSemaphores", "allocation", "free", "BatchMemOp", "Conditional"};
  return type >= 8 && type < 14 ? kinds[type - 8] : "unknown";
}

static int set_node(Node *node, const NodeParameters *from) {
  switch (from->type) {
    case NODE_KERNEL: return set_kernel(node, (const KernelParameters *)from->of);
    case NODE_COPY: return read_3d(from->of + 16, &node->of.copy);
    case NODE_FILL: return node->of.fill = fill_of((const FillParameters *)from->of), SUCCESS;
    case NODE_HOST: memcpy(&node->of.host, from->of, sizeof node->of.host); return SUCCESS;
    case NODE_GRAPH: return (node->of.child = copy_of(*(Graph *const *)from->of)) ? SUCCESS : OUT_OF_MEMORY;
    case NODE_EMPTY: return SUCCESS;
    case NODE_WAIT: case NODE_RECORD: node->of.event = *(Event *const *)from->of; return SUCCESS;
    default: complain("nodes of type %d (%s) are not emulated in graphs%s", from->type, kind_of(from->type), instead_of(kind_of(from->type))); return NOT_SUPPORTED;
  }
}

EXPORT int cuGraphAddNode_v2(Node **made, Graph *graph, Node *const *before, const void *edges, size_t count, NodeParameters *from) {
  (void)edges;
  REQUIRE(from, INVALID_VALUE);
  if (from->type == NODE_ALLOCATE) return cuGraphAddMemAllocNode(made, graph, before, count, (AllocateParameters *)from->of);
  if (from->type == NODE_FREE) return cuGraphAddMemFreeNode(made, graph, before, count, *(const Address *)from->of);
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
