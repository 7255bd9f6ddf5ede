"""Every instruction of the table on the GPU and on the emulator, with the same inputs."""

import pytest

from kernbench import ptx
from kernbench.ptx.conformance import CASES, compare, inputs_for, run_case, source
from kernbench.ptx.devices.cuda_device import CudaDevice


@pytest.fixture(scope="module")
def device():
    with CudaDevice() as opened:
        yield opened


@pytest.fixture(scope="module")
def emulated():
    return ptx.EmulatedDevice(arch="sm_90a")


def both(device, emulated, case):
    kernel = ptx.parse(source(case)).kernels["apply"]
    inputs = inputs_for(case)
    return inputs, run_case(emulated, kernel, case, inputs, checks=False), run_case(device, kernel, case, inputs)


@pytest.mark.parametrize("case", [case for case in CASES if case.exact], ids=lambda case: case.name)
def test_exact_instructions_agree_bit_for_bit(device, emulated, case):
    _, ours, theirs = both(device, emulated, case)
    agreement = compare(ours, theirs, case.output.type)
    assert agreement.equal, str(agreement)


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.exact and "mma" not in case.text], ids=lambda case: case.name
)
def test_approximations_agree_bit_for_bit(device, emulated, case):
    _, ours, theirs = both(device, emulated, case)
    agreement = compare(ours, theirs, case.output.type)
    assert agreement.equal, str(agreement)
