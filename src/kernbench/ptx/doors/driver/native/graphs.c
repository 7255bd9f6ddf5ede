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
