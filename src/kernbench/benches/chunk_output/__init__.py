"""The chunk output of the gated delta rule in PTX: the common layout, and kernels for sm_90a and sm_100a."""
