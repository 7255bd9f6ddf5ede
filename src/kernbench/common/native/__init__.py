"""Compiles loops over arrays to machine code, from a subset of Python.

numba spends most of its time on features these loops do not use: objects, exceptions, containers, overloads. The subset
("plain" Python) is arithmetic on numbers and array elements, with `if`, `for` over a range, `while`, tuples, and calls
of other such functions. One pass over the syntax tree emits LLVM IR with numba's types and conversions, and LLVM
compiles it once. Anything else is left to numba (docs/adr/0076).
"""
