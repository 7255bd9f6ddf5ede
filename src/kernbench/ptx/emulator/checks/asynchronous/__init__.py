"""What works beside the threads: mbarriers, bulk copies, wgmma, tcgen05 and tensor memory."""
