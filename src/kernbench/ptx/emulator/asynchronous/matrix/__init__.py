"""Matrix units that run beside the threads: wgmma, and tcgen05 with its tensor memory."""
