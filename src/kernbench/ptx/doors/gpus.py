"""Device properties for programs: names and figures of a product of each architecture."""

import re
from dataclasses import dataclass

from kernbench.ptx.emulator.engine.machine import Architecture, architecture

_PRODUCTS = {
    70: "Tesla V100-SXM2-16GB",
    75: "Tesla T4",
    80: "NVIDIA A100-SXM4-80GB",
    86: "NVIDIA A10",
    87: "Orin",
    89: "NVIDIA L40S",
    90: "NVIDIA H100 80GB HBM3",
    100: "NVIDIA B200",
    101: "NVIDIA Thor",
    103: "NVIDIA B300 SXM6 AC",
    110: "NVIDIA Thor",
    120: "NVIDIA GeForce RTX 5090",
    121: "NVIDIA GB10",
}


def whole_architecture(arch: str) -> str:
    """The architecture with all features of the hardware: sm_90a for sm_90."""
    plain = re.fullmatch(r"sm_(\d+)f?", arch)
    return f"sm_{plain[1]}a" if plain and int(plain[1]) >= 90 else arch


@dataclass(frozen=True)
class Gpu:
    """A GPU as programs see it: compute capability, product, and limits; `sms` may be fewer than the product has."""

    capability: int
    name: str
    machine: Architecture
    sms: int

    @property
    def version(self) -> tuple[int, int]:
        """Compute capability as major and minor."""
        return divmod(self.capability, 10)

    @property
    def shared_per_block(self) -> int:
        """Bytes of shared memory that a block may have if it opts in to more than 48 KiB."""
        return self.machine.shared_per_block


def gpu_of(arch: str, sms: int | None = None) -> Gpu:
    """The GPU of an architecture such as "sm_90a"."""
    machine = architecture(arch)
    match = re.search(r"\d+", arch)
    assert match is not None
    capability = int(match[0])
    return Gpu(capability, _PRODUCTS.get(capability, f"NVIDIA {arch}"), machine, sms or machine.sms)
