"""Devices that compute something else than the emulator: what a comparison has to find."""

from kernbench import ptx
from kernbench.ptx.devices.cuda_driver import CudaError
from kernbench.ptx.launching.device_base import kernel_of
from kernbench.result.finding import Finding
from kernbench.result.run import Run, Status


class Planted(ptx.EmulatedDevice):
    """An emulated GPU on which an instruction is another one; `exact` as it is said here."""

    def __init__(self, old="", new="", exact=True, arch="sm_90a"):
        super().__init__(arch)
        self.change, self.exact = (old, new), exact

    def launch(self, kernel, *args, **options):
        kernel = changed(kernel_of(kernel), *self.change)
        options["exact"] = self.exact
        return super().launch(kernel, *args, **options)


def changed(kernel, old, new):
    return ptx.parse(kernel.emit().replace(old, new)).kernels[kernel.name] if old else kernel


def wrong_fma():
    """Takes its third operand to be another one."""
    return Planted("fma.rn.f32 %f3, %f1, %f2, %f3", "fma.rn.f32 %f3, %f1, %f2, %f1")


def without_memory():
    """Has no room for an array."""
    device = Planted()

    def array(value, name=""):
        raise CudaError("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY; free arrays", "CUDA_ERROR_OUT_OF_MEMORY")

    device.array = array
    return device


def trapping():
    """Stops at a fault, as a GPU does."""
    device = Planted()
    found = Finding("kernel-error", "'saxpy' died of a device-side assert or trap (CUDA_ERROR_ASSERT)")
    device.launch = lambda *args, **options: Run({}, [found], (), Status.FAILED)
    return device
