"""Where threads wait for each other: barriers of CTAs and clusters, mbarriers, warps that gather."""
