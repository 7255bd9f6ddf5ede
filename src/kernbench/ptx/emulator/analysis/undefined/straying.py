"""Lanes that have branched on an undefined value in a function that only computes its results (see `pure`)."""

import numpy as np

from kernbench.ptx.emulator.analysis.undefined.copying import key_of, lose, undefined
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.observer.origins import is_followed
from kernbench.ptx.emulator.program.facts import Pure
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.emulator.units.batch import Window


def enter(strayed: Register) -> Step:
    """A step at the beginning of a function: no lane has strayed."""
    key = key_of(strayed)

    def general(window: Window, mask: Mask | None) -> None:
        window.batch.checks.definedness.flags.put(window, key, None, mask)

    return action(general)


def stray(decoding: Decoding, predicate: Register, strayed: Register) -> Step:
    """A step before an instruction with a guard: lanes in which it is undefined have strayed from now on."""
    site, key, target = decoding.site, key_of(predicate), key_of(strayed)

    def general(window: Window, mask: Mask | None) -> None:
        bad = undefined(window, predicate)
        if bad is not None and mask is not None:
            bad = bad & mask
        if bad is None or not bad.any():
            return
        checks = window.batch.checks
        if not is_followed(checks.definedness.origins.get(key)):
            checks.undefined.used(window, site, predicate.name, "guard", bad, key)
            return
        lose(window, strayed, bad, mask)
        checks.definedness.pass_on(window, (key,), (target,))

    return action(general)


def lose_results(decoding: Decoding, own: Pure, strayed: Register) -> Step:
    """A step before a return: what lanes that have strayed give back is undefined."""
    site, key = decoding.site, key_of(strayed)

    def general(window: Window, mask: Mask | None) -> None:
        bad, checks = undefined(window, strayed), window.batch.checks
        if bad is not None and mask is not None:
            bad = bad & mask
        if bad is None or not bad.any():
            return
        for register in own.registers:
            lose(window, register, bad, mask)
            checks.definedness.pass_on(window, (key,), (key_of(register),))
        origin, port = checks.definedness.origin_of(strayed, key, site), window.batch.port
        for slot, nbytes in own.results:
            addresses = np.broadcast_to(port.addresses(window, slot), window.size)
            for _, offsets, inside in port.located("local", addresses, window.lane_numbers, np.uint64(0), 1, mask):
                spots = (offsets[:, None] + np.arange(nbytes))[bad & inside]
                checks.undefined.copied(spots.reshape(-1), origin, site, "local")

    return action(general)
