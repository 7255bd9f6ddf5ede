/* Graphs of the runtime API: those of the driver, with kernels by their stubs and copies as the runtime describes them. */
#include "driver.h"

EXPORT int cudaGraphCreate(Graph **graph, unsigned flags) { RUN(cuGraphCreate(graph, flags)); }
EXPORT int cudaGraphDestroy(Graph *graph) { RUN(cuGraphDestroy(graph)); }
EXPORT int cudaGraphClone(Graph **graph, Graph *original) { RUN(cuGraphClone(graph, original)); }
EXPORT int cudaGraphNodeFindInClone(Node **node, Node *original, Graph *graph) { RUN(cuGraphNodeFindInClone(node, original, graph)); }
EXPORT int cudaGraphDestroyNode(Node *node) { RUN(cuGraphDestroyNode(node)); }
EXPORT int cudaGraphNodeGetType(Node *node, int *type) { RUN(cuGraphNodeGetType(node, type)); }
EXPORT int cudaGraphGetNodes(Graph *graph, Node **nodes, size_t *count) { RUN(cuGraphGetNodes(graph, nodes, count)); }
EXPORT int cudaGraphGetRootNodes(Graph *graph, Node **nodes, size_t *count) { RUN(cuGraphGetRootNodes(graph, nodes, count)); }
EXPORT int cudaGraphInstantiateWithFlags(Executable **made, Graph *graph, unsigned long long flags) { RUN(cuGraphInstantiateWithFlags(made, graph, flags)); }
EXPORT int cudaGraphInstantiate(Executable **made, Graph *graph, unsigned long long flags) { RUN(cuGraphInstantiateWithFlags(made, graph, flags)); }
EXPORT int cudaGraphInstantiateWithParams(Executable **made, Graph *graph, InstantiateParameters *from) { RUN(cuGraphInstantiateWithParams(made, graph, from)); }
EXPORT int cudaGraphExecGetFlags(Executable *executable, uint64_t *flags) { RUN(cuGraphExecGetFlags(executable, flags)); }
EXPORT int cudaGraphExecDestroy(Executable *executable) { RUN(cuGraphExecDestroy(executable)); }
EXPORT int cudaGraphUpload(Executable *executable, void *stream) { RUN(cuGraphUpload(executable, stream)); }
EXPORT int cudaGraphLaunch(Executable *executable, void *stream) { RUN(cuGraphLaunch(executable, stream)); }
EXPORT int cudaGraphExecUpdate(Executable *executable, Graph *graph, UpdateResult *result) { RUN(cuGraphExecUpdate_v2(executable, graph, result)); }
EXPORT int cudaGraphDebugDotPrint(Graph *graph, const char *path, unsigned flags) { RUN(cuGraphDebugDotPrint(graph, path, flags)); }
EXPORT int cudaGraphNodeSetEnabled(Executable *executable, Node *node, unsigned enabled) { RUN(cuGraphNodeSetEnabled(executable, node, enabled)); }
EXPORT int cudaGraphNodeGetEnabled(Executable *executable, Node *node, unsigned *enabled) { RUN(cuGraphNodeGetEnabled(executable, node, enabled)); }
EXPORT int cudaGraphRetainUserObject(Graph *graph, void *object, unsigned count, unsigned flags) { RUN(cuGraphRetainUserObject(graph, object, count, flags)); }
EXPORT int cudaGraphReleaseUserObject(Graph *graph, void *object, unsigned count) { RUN(cuGraphReleaseUserObject(graph, object, count)); }

/* From version 13 on these take data of edges, which before had functions of their own. */
EXPORT int cudaGraphGetEdges_v2(Graph *graph, Node **from, Node **to, void *edges, size_t *count) { RUN(cuGraphGetEdges_v2(graph, from, to, edges, count)); }
EXPORT int cudaGraphNodeGetDependencies_v2(Node *node, Node **nodes, void *edges, size_t *count) { RUN(cuGraphNodeGetDependencies_v2(node, nodes, edges, count)); }
EXPORT int cudaGraphNodeGetDependentNodes_v2(Node *node, Node **nodes, void *edges, size_t *count) { RUN(cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count)); }
EXPORT int cudaGraphAddDependencies_v2(Graph *graph, Node *const *from, Node *const *to, const void *edges, size_t count) { RUN(cuGraphAddDependencies_v2(graph, from, to, edges, count)); }
EXPORT int cudaGraphRemoveDependencies_v2(Graph *graph, Node *const *from, Node *const *to, const void *edges, size_t count) { RUN(cuGraphRemoveDependencies_v2(graph, from, to, edges, count)); }

static int new_forms(void) { return major() >= 13; }

EXPORT int cudaGraphGetEdges(Graph *graph, Node **from, Node **to, void *edges, size_t *count) { return new_forms() ? cudaGraphGetEdges_v2(graph, from, to, edges, count) : cudaGraphGetEdges_v2(graph, from, to, NULL, edges); }
EXPORT int cudaGraphNodeGetDependencies(Node *node, Node **nodes, void *edges, size_t *count) { return new_forms() ? cudaGraphNodeGetDependencies_v2(node, nodes, edges, count) : cudaGraphNodeGetDependencies_v2(node, nodes, NULL, edges); }
EXPORT int cudaGraphNodeGetDependentNodes(Node *node, Node **nodes, void *edges, size_t *count) { return new_forms() ? cudaGraphNodeGetDependentNodes_v2(node, nodes, edges, count) : cudaGraphNodeGetDependentNodes_v2(node, nodes, NULL, edges); }
EXPORT int cudaGraphAddDependencies(Graph *graph, Node *const *from, Node *const *to, const void *edges, size_t count) { return cudaGraphAddDependencies_v2(graph, from, to, NULL, new_forms() ? count : (size_t)edges); }
EXPORT int cudaGraphRemoveDependencies(Graph *graph, Node *const *from, Node *const *to, const void *edges, size_t count) { return cudaGraphRemoveDependencies_v2(graph, from, to, NULL, new_forms() ? count : (size_t)edges); }
EXPORT int cudaStreamUpdateCaptureDependencies(void *stream, Node **nodes, const void *edges, size_t count, unsigned flags) { return new_forms() ? cudaStreamUpdateCaptureDependencies_v2(stream, nodes, edges, count, flags) : cudaStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, (size_t)edges, (unsigned)count); }

/* Parameters of kernel nodes are those of the driver, but for the function. */
static int with_kernel(const KernelParameters *from, KernelParameters *to) {
  REQUIRE(from, INVALID_VALUE);
  memset(to, 0, sizeof *to);
  memcpy(to, from, offsetof(KernelParameters, kernel));
  return kernel_of(from->function, &to->function);
}

static int add_kernel(Node **node, Graph *graph, Node *const *before, size_t count, const KernelParameters *from) {
  KernelParameters own;
  int error = with_kernel(from, &own);
  return error ? error : cuGraphAddKernelNode_v2(node, graph, before, count, &own);
}

static int change_kernel(Executable *executable, Node *node, const KernelParameters *from) {
  KernelParameters own;
  int error = with_kernel(from, &own);
  if (error) return error;
  return executable ? cuGraphExecKernelNodeSetParams_v2(executable, node, &own) : cuGraphKernelNodeSetParams_v2(node, &own);
}

static int kernel_parameters(Node *node, KernelParameters *out) {
  KernelParameters own;
  REQUIRE(out, INVALID_VALUE);
  int error = cuGraphKernelNodeGetParams_v2(node, &own);
  if (!error) memcpy(out, &own, offsetof(KernelParameters, kernel));
  return error;
}

EXPORT int cudaGraphAddKernelNode(Node **node, Graph *graph, Node *const *before, size_t count, const KernelParameters *from) { RUN(add_kernel(node, graph, before, count, from)); }
EXPORT int cudaGraphKernelNodeGetParams(Node *node, KernelParameters *out) { RUN(kernel_parameters(node, out)); }
EXPORT int cudaGraphKernelNodeSetParams(Node *node, const KernelParameters *from) { RUN(change_kernel(NULL, node, from)); }
EXPORT int cudaGraphExecKernelNodeSetParams(Executable *executable, Node *node, const KernelParameters *from) { RUN(change_kernel(executable, node, from)); }
EXPORT int cudaGraphKernelNodeSetAttribute(Node *node, int attribute, const void *value) { RUN(cuGraphKernelNodeSetAttribute(node, attribute, value)); }
EXPORT int cudaGraphKernelNodeGetAttribute(Node *node, int attribute, unsigned *value) { RUN(cuGraphKernelNodeGetAttribute(node, attribute, value)); }
EXPORT int cudaGraphKernelNodeCopyAttributes(Node *to, Node *from) { RUN(cuGraphKernelNodeCopyAttributes(to, from)); }

static int add_copy(Node **made, Graph *graph, Node *const *before, size_t count, const Copy *copy) {
  REQUIRE(copy->named >= 0, INVALID_DIRECTION);
  ADD(NODE_COPY);
  node->of.copy = *copy;
  return SUCCESS;
}

static int change_copy(Executable *executable, Node *node, const Copy *copy) {
  Node *own = executable ? part(executable, node) : node;
  REQUIRE(IS(own, NODE) && own->type == NODE_COPY, INVALID_VALUE);
  REQUIRE(copy->named >= 0, INVALID_DIRECTION);
  own->of.copy = *copy;
  return SUCCESS;
}

static int add_box(Node **node, Graph *graph, Node *const *before, size_t count, const Copy3DParameters *from) {
  Copy copy;
  int error = box(from, &copy);
  return error ? error : add_copy(node, graph, before, count, &copy);
}

static int change_box(Executable *executable, Node *node, const Copy3DParameters *from) {
  Copy copy;
  int error = box(from, &copy);
  return error ? error : change_copy(executable, node, &copy);
}

static Copy line(Address dst, Address src, size_t n, int kind) { return (Copy){dst, src, n, n, n, n, n, 1, 1, named_by_kind(kind)}; }

EXPORT int cudaGraphAddMemcpyNode(Node **node, Graph *graph, Node *const *before, size_t count, const Copy3DParameters *from) { RUN(add_box(node, graph, before, count, from)); }
EXPORT int cudaGraphMemcpyNodeSetParams(Node *node, const Copy3DParameters *from) { RUN(change_box(NULL, node, from)); }
EXPORT int cudaGraphExecMemcpyNodeSetParams(Executable *executable, Node *node, const Copy3DParameters *from) { RUN(change_box(executable, node, from)); }

static int box_parameters(Node *node, Copy3DParameters *out) {
  REQUIRE(IS(node, NODE) && node->type == NODE_COPY && out, INVALID_VALUE);
  const Copy *copy = &node->of.copy;
  memset(out, 0, sizeof *out);
  out->src.at = (Pitched){copy->src, copy->src_pitch, copy->width, copy->src_pitch ? copy->src_slice / copy->src_pitch : copy->height};
  out->dst.at = (Pitched){copy->dst, copy->dst_pitch, copy->width, copy->dst_pitch ? copy->dst_slice / copy->dst_pitch : copy->height};
  out->extent = (Extent){copy->width, copy->height, copy->depth};
  for (out->kind = BY_ADDRESS; named_by_kind(out->kind) != copy->named && out->kind > 0;) out->kind--;
  return SUCCESS;
}

EXPORT int cudaGraphMemcpyNodeGetParams(Node *node, Copy3DParameters *out) { RUN(box_parameters(node, out)); }

EXPORT int cudaGraphAddMemcpyNode1D(Node **node, Graph *graph, Node *const *before, size_t count, Address dst, Address src, size_t n, int kind) {
  Copy copy = line(dst, src, n, kind);
  RUN(add_copy(node, graph, before, count, &copy));
}

EXPORT int cudaGraphMemcpyNodeSetParams1D(Node *node, Address dst, Address src, size_t n, int kind) {
  Copy copy = line(dst, src, n, kind);
  RUN(change_copy(NULL, node, &copy));
}

EXPORT int cudaGraphExecMemcpyNodeSetParams1D(Executable *executable, Node *node, Address dst, Address src, size_t n, int kind) {
  Copy copy = line(dst, src, n, kind);
  RUN(change_copy(executable, node, &copy));
}

EXPORT int cudaGraphAddMemsetNode(Node **node, Graph *graph, Node *const *before, size_t count, const FillParameters *from) { RUN(cuGraphAddMemsetNode(node, graph, before, count, from, NULL)); }
EXPORT int cudaGraphMemsetNodeGetParams(Node *node, FillParameters *out) { RUN(cuGraphMemsetNodeGetParams(node, out)); }
EXPORT int cudaGraphMemsetNodeSetParams(Node *node, const FillParameters *from) { RUN(cuGraphMemsetNodeSetParams(node, from)); }
EXPORT int cudaGraphExecMemsetNodeSetParams(Executable *executable, Node *node, const FillParameters *from) { RUN(cuGraphExecMemsetNodeSetParams(executable, node, from, NULL)); }
EXPORT int cudaGraphAddHostNode(Node **node, Graph *graph, Node *const *before, size_t count, const HostParameters *from) { RUN(cuGraphAddHostNode(node, graph, before, count, from)); }
EXPORT int cudaGraphHostNodeGetParams(Node *node, HostParameters *out) { RUN(cuGraphHostNodeGetParams(node, out)); }
EXPORT int cudaGraphHostNodeSetParams(Node *node, const HostParameters *from) { RUN(cuGraphHostNodeSetParams(node, from)); }
EXPORT int cudaGraphExecHostNodeSetParams(Executable *executable, Node *node, const HostParameters *from) { RUN(cuGraphExecHostNodeSetParams(executable, node, from)); }
EXPORT int cudaGraphAddChildGraphNode(Node **node, Graph *graph, Node *const *before, size_t count, Graph *child) { RUN(cuGraphAddChildGraphNode(node, graph, before, count, child)); }
EXPORT int cudaGraphChildGraphNodeGetGraph(Node *node, Graph **child) { RUN(cuGraphChildGraphNodeGetGraph(node, child)); }
EXPORT int cudaGraphExecChildGraphNodeSetParams(Executable *executable, Node *node, Graph *child) { RUN(cuGraphExecChildGraphNodeSetParams(executable, node, child)); }
EXPORT int cudaGraphAddEmptyNode(Node **node, Graph *graph, Node *const *before, size_t count) { RUN(cuGraphAddEmptyNode(node, graph, before, count)); }
EXPORT int cudaGraphAddEventRecordNode(Node **node, Graph *graph, Node *const *before, size_t count, Event *event) { RUN(cuGraphAddEventRecordNode(node, graph, before, count, event)); }
EXPORT int cudaGraphAddEventWaitNode(Node **node, Graph *graph, Node *const *before, size_t count, Event *event) { RUN(cuGraphAddEventWaitNode(node, graph, before, count, event)); }
EXPORT int cudaGraphAddMemAllocNode(Node **node, Graph *graph, Node *const *before, size_t count, AllocateParameters *from) { RUN(cuGraphAddMemAllocNode(node, graph, before, count, from)); }
EXPORT int cudaGraphMemAllocNodeGetParams(Node *node, AllocateParameters *out) { RUN(cuGraphMemAllocNodeGetParams(node, out)); }
EXPORT int cudaGraphAddMemFreeNode(Node **node, Graph *graph, Node *const *before, size_t count, Address address) { RUN(cuGraphAddMemFreeNode(node, graph, before, count, address)); }
EXPORT int cudaGraphMemFreeNodeGetParams(Node *node, Address *out) { RUN(cuGraphMemFreeNodeGetParams(node, out)); }
EXPORT int cudaDeviceGetGraphMemAttribute(int device, int attribute, uint64_t *value) { RUN(cuDeviceGetGraphMemAttribute(device, attribute, value)); }
EXPORT int cudaDeviceSetGraphMemAttribute(int device, int attribute, const uint64_t *value) { RUN(cuDeviceSetGraphMemAttribute(device, attribute, value)); }

/* A copy to (TO_DEVICE) or from (FROM_DEVICE) a symbol. */
static int symbol_line(const void *symbol, size_t offset, Address other, size_t n, int kind, int wanted, Copy *copy) {
  Address address;
  size_t bytes;
  int error = symbol_of(symbol, &address, &bytes);
  if (error) return error;
  REQUIRE(offset <= bytes && n <= bytes - offset, INVALID_VALUE);
  REQUIRE(suits_symbol(kind, wanted), INVALID_DIRECTION);
  *copy = wanted == TO_DEVICE ? line(address + offset, other, n, kind) : line(other, address + offset, n, kind);
  return SUCCESS;
}

static int add_symbol(Node **node, Graph *graph, Node *const *before, size_t count, const void *symbol, size_t offset, Address other, size_t n, int kind, int wanted) {
  Copy copy;
  int error = symbol_line(symbol, offset, other, n, kind, wanted, &copy);
  return error ? error : add_copy(node, graph, before, count, &copy);
}

static int change_symbol(Executable *executable, Node *node, const void *symbol, size_t offset, Address other, size_t n, int kind, int wanted) {
  Copy copy;
  int error = symbol_line(symbol, offset, other, n, kind, wanted, &copy);
  return error ? error : change_copy(executable, node, &copy);
}

EXPORT int cudaGraphAddMemcpyNodeToSymbol(Node **node, Graph *graph, Node *const *before, size_t count, const void *symbol, Address src, size_t n, size_t offset, int kind) {
  RUN(add_symbol(node, graph, before, count, symbol, offset, src, n, kind, TO_DEVICE));
}

EXPORT int cudaGraphAddMemcpyNodeFromSymbol(Node **node, Graph *graph, Node *const *before, size_t count, Address dst, const void *symbol, size_t n, size_t offset, int kind) {
  RUN(add_symbol(node, graph, before, count, symbol, offset, dst, n, kind, FROM_DEVICE));
}

EXPORT int cudaGraphMemcpyNodeSetParamsToSymbol(Node *node, const void *symbol, Address src, size_t n, size_t offset, int kind) { RUN(change_symbol(NULL, node, symbol, offset, src, n, kind, TO_DEVICE)); }
EXPORT int cudaGraphMemcpyNodeSetParamsFromSymbol(Node *node, Address dst, const void *symbol, size_t n, size_t offset, int kind) { RUN(change_symbol(NULL, node, symbol, offset, dst, n, kind, FROM_DEVICE)); }
EXPORT int cudaGraphExecMemcpyNodeSetParamsToSymbol(Executable *executable, Node *node, const void *symbol, Address src, size_t n, size_t offset, int kind) { RUN(change_symbol(executable, node, symbol, offset, src, n, kind, TO_DEVICE)); }
EXPORT int cudaGraphExecMemcpyNodeSetParamsFromSymbol(Executable *executable, Node *node, Address dst, const void *symbol, size_t n, size_t offset, int kind) { RUN(change_symbol(executable, node, symbol, offset, dst, n, kind, FROM_DEVICE)); }

/* The general form is the driver's, but for kernels and copies, whose description lies behind its flags. */
static int add_any(Node **node, Graph *graph, Node *const *before, size_t count, NodeParameters *from) {
  REQUIRE(from, INVALID_VALUE);
  if (from->type == NODE_KERNEL) return add_kernel(node, graph, before, count, (const KernelParameters *)from->of);
  if (from->type == NODE_COPY) return add_box(node, graph, before, count, (const Copy3DParameters *)(from->of + 16));
  return cuGraphAddNode_v2(node, graph, before, NULL, count, from);
}

static int change_any(Executable *executable, Node *node, NodeParameters *from) {
  REQUIRE(IS(node, NODE) && from && node->type == from->type, INVALID_VALUE);
  if (from->type == NODE_KERNEL) return change_kernel(executable, node, (const KernelParameters *)from->of);
  if (from->type == NODE_COPY) return change_box(executable, node, (const Copy3DParameters *)(from->of + 16));
  return executable ? cuGraphExecNodeSetParams(executable, node, from) : cuGraphNodeSetParams(node, from);
}

EXPORT int cudaGraphAddNode_v2(Node **node, Graph *graph, Node *const *before, const void *edges, size_t count, NodeParameters *from) {
  (void)edges;
  RUN(add_any(node, graph, before, count, from));
}

EXPORT int cudaGraphAddNode(Node **node, Graph *graph, Node *const *before, const void *edges, size_t count, NodeParameters *from) { return new_forms() ? cudaGraphAddNode_v2(node, graph, before, edges, count, from) : cudaGraphAddNode_v2(node, graph, before, NULL, (size_t)edges, (NodeParameters *)count); }
EXPORT int cudaGraphNodeSetParams(Node *node, NodeParameters *from) { RUN(change_any(NULL, node, from)); }
EXPORT int cudaGraphExecNodeSetParams(Executable *executable, Node *node, NodeParameters *from) { RUN(change_any(executable, node, from)); }
