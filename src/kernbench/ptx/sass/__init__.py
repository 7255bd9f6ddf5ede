"""What a kernel's warps issued: machine code of ptxas joined to a recording, or an expansion of PTX without it."""
