"""Synchronisation of threads: barriers of CTAs and clusters, mbarriers, and warps that reconverge."""
