"""A kernel of the truth set at a small size on the emulator: is it right and safe?"""

from typing import Any

import numpy as np

from kernbench import ptx
from kernbench.result.run import Status

from .problems import Array, Input, Output, Work


def made(device: Any, work: Work, seed: int = 0) -> tuple[list[Any], list[Array], Any]:
    """The arguments of a launch on a device, the inputs on the host, and the output."""
    rng = np.random.default_rng(seed)
    given: list[Any] = []
    inputs: list[Array] = []
    out: Any = None
    for argument in work.arguments:
        if isinstance(argument, Input):
            inputs.append(argument.made(rng))
            given.append(device.array(inputs[-1]))
        elif isinstance(argument, Output):
            zeros = np.zeros(argument.shape, argument.dtype)
            out = device.array(zeros) if argument.zeroed else device.empty(argument.shape, argument.dtype)
            given.append(out)
        else:
            given.append(argument)
    return given, inputs, out


def problem(work: Work, arch: str = "sm_90a") -> str:
    """What is wrong with a launch on the emulator; empty where nothing is."""
    device = ptx.EmulatedDevice(arch)
    given, inputs, out = made(device, work)
    kernel = ptx.parse(work.text).kernels[work.entry]
    run = device.launch(kernel, work.grid, work.block, given, shared_bytes=work.shared)
    others = [finding for finding in run.findings if finding.kind not in work.findings]
    if others or run.status is not Status.FINISHED:
        return str(others[0].message if others else run.status)
    if {finding.kind for finding in run.findings} != set(work.findings):
        return f"{work.findings} are expected as findings"
    return difference(work, inputs, out.numpy())


def difference(work: Work, inputs: list[Array], found: Array) -> str:
    """How far a result lies from what is expected; empty where it is near enough."""
    expected = np.asarray(work.expected(*inputs), np.float64).reshape(found.shape)
    apart = float(np.abs(found.astype(np.float64) - expected).max())
    allowed = work.tolerance * max(1.0, float(np.abs(expected).max()))
    return "" if apart <= allowed else f"{apart:g} from what is expected, {allowed:g} allowed"
