"""Runs programs on the emulator and holds them against what the slow tensor memory says."""

import numpy as np

from kernbench import ptx


def run(program, **options):
    """The run of a program, and what it stored."""
    device = ptx.EmulatedDevice("sm_100a")
    out = device.array(np.zeros(program.size, np.uint32))
    kernel = ptx.parse(program.text).kernels["kernel"]
    given = [device.array(program.image), device.array(program.table), out]
    cluster = {"cluster": 2} if program.group == 2 else {}
    shared = program.image.shape[1]
    done = device.launch(kernel, program.grid, program.threads, given, shared_bytes=shared, **cluster, **options)
    return done, out.numpy()


def differences(program, words):
    """Loads whose words are not those of the slow tensor memory: number, first location, word, expected word."""
    found = []
    for number, loaded in enumerate(program.loaded):
        got = words[loaded.base : loaded.base + loaded.words.size].reshape(loaded.words.shape)
        wrong = np.argwhere((got ^ loaded.words) & loaded.known)
        if len(wrong):
            at = tuple(wrong[0])
            found.append((number, len(wrong), at, hex(got[at]), hex(loaded.words[at] & loaded.known[at])))
    return found


def found(done, fault):
    """Whether a run has a finding of a fault's kind at one of its lines."""
    for finding in (*done.findings, *done.formal):
        locations = [finding.where, *(other.where for other in finding.others)]
        lines = {location.line for location in locations if location is not None}
        if finding.kind in fault.kinds and (not fault.lines or fault.lines & lines):
            return True
    return False
