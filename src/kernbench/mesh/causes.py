"""The causes of the gap between floor and time: for each a sentence with its meaning and common remedies."""

SENTENCES = {
    "imbalance": "The busiest engine had more to do than the mean of all: share the work out more evenly.",
    "exposed communication": "It waited while bytes were on a link: send earlier, or compute meanwhile.",
    "queue stalls": "A message could not leave for want of a free slot: receive earlier, or use deeper queues.",
    "dispatch": "It waited for commands to be issued: larger tiles need fewer commands.",
    "fill and drain": "Others worked before its first command and after its last: begin and end with smaller pieces.",
    "HBM waits": "Between its commands it waited for DMA of the PE: load the next tile while this one is computed.",
    "other engines": "Between its commands it waited for GEMM or MATH of its own PE: work on two tiles in turn.",
    "other PEs": "It waited for engines of another PE, whose result something here needed.",
    "array fill and drain": "The operands of each product take time to get through the array: use larger products.",
    "unused cells": "Products smaller than the array left cells of it idle: choose tiles that fill it.",
    "other math": "MATH was busy with operations other than exponentials, which the floor does not count.",
    "rounding": "A transfer ends on a whole picosecond.",
}
