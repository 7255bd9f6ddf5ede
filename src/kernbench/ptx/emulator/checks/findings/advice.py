"""Parts of hints that name things of front ends: all of them, as a kernel may come from any.

Who knows the front end of a kernel puts its own words in their place (`doors.terms.words`).
"""

# what writes an array where it is made
MADE = "torch.zeros, cudaMemset or a copy, device.array"
# what a kernel may be passed a pointer to
ON_DEVICE = "a tensor on 'cuda', memory of cudaMalloc, or an array of kernbench's own device"
# what keeps an access inside its array
BOUNDS = "compare the index with the size before the access"
# what lets an index have more than 32 bits
WIDEN = "compute it in 64 bits"
# what threads of a block wait at
BARRIER = "bar.sync, __syncthreads, Triton's tl.debug_barrier"
SHARED_BARRIER = "bar.sync (__syncthreads), lanes of one warp by bar.warp.sync (__syncwarp)"
