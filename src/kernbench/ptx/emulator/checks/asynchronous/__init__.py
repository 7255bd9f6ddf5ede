"""Checks of asynchronous work: mbarriers, bulk copies, wgmma, tcgen05 and tensor memory."""
