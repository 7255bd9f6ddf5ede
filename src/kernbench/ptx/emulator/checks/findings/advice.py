"""Parts of hints that use terms of front ends: all front ends' terms, as a kernel may come from any.

If the front end of a kernel is known, its own terms replace them (`doors.terms.words`).
"""

# ways to initialise an array
MADE = "torch.zeros, cudaMemset or a copy, device.array"
# memory that a kernel can be passed a pointer to
ON_DEVICE = "a tensor on 'cuda', memory of cudaMalloc, or an array of kernbench's own device"
# how to keep an access inside its array
BOUNDS = "compare the index with the size before the access"
# how to let an index have more than 32 bits
WIDEN = "compute it in 64 bits"
# barriers of a block
BARRIER = "bar.sync, __syncthreads, Triton's tl.debug_barrier"
SHARED_BARRIER = "bar.sync (__syncthreads), lanes of one warp by bar.warp.sync (__syncwarp)"
