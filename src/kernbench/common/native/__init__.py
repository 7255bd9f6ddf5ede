"""Loops over arrays as machine code, from the plain part of Python that they are written in.

numba takes most of its time for what these loops have not: objects, exceptions, containers, overloads. They are
arithmetic on numbers and elements of arrays, with `if`, `for` over a range, `while`, tuples and calls of each other.
For that little, one pass over the syntax tree writes the text of LLVM's language, with numba's types and conversions,
and LLVM makes machine code of it once. What is not of this plain part is left to numba (docs/adr/0076).
"""
