"""Instructions of matrix units: loads and stores of fragments, mma, wgmma, tcgen05."""
