"""Methods of a context for matrix units: mma, wgmma, tcgen05."""
