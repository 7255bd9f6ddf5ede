"""Every instruction of the table on the GPU and on the emulator, with the same inputs."""

import pytest

from kernbench import ptx
from kernbench.ptx.conformance import CASES, compare, inputs_for, run_case, source
from kernbench.ptx.cuda_device import CudaDevice


@pytest.fixture(scope="module")
def device():
    with CudaDevice() as opened:
        yield opened


@pytest.fixture(scope="module")
def emulated():
    return pytest.importorskip("kernbench.ptx.device").EmulatedDevice(arch="sm_90a")


@pytest.mark.parametrize("case", [case for case in CASES if case.exact], ids=lambda case: case.name)
def test_exact_instructions_agree_bit_for_bit(device, emulated, case):
    kernel = ptx.parse(source(case)).kernels["apply"]
    inputs = inputs_for(case)
    agreement = compare(
        run_case(emulated, kernel, case, inputs, checks=False), run_case(device, kernel, case, inputs), case.output.type
    )
    assert agreement.equal, str(agreement)
