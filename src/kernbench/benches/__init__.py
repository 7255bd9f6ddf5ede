"""One file per bench; the kernels they launch lie beside them in files that begin with an underscore."""
