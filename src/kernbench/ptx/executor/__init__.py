"""The executor: compiled code that runs a program one warp at a time, from event to event, with its checks.

A program is rows of numbers (`rows`), each an operation over the 32 lanes of a warp (`ops`), compiled singly when a
program first needs it (`compiling`). All state is arrays (`ops.layout`). What the fast tests of an operation cannot
clear is a suspect: it ends the run, everything is taken back (`running`), and the emulator judges the launch.
"""
