"""Matrix instructions: loads and stores of fragments, mma, wgmma, tcgen05."""
