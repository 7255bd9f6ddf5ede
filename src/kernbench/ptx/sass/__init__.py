"""The machine instructions that a kernel's warps issue: from ptxas's code and a recording, or expanded from PTX."""
