"""The mesh machine: PEs that talk over bounded queues to installed neighbours, and the host that launches on them."""

from kernbench.mesh.host import Host
from kernbench.mesh.tensors import Tensor

__all__ = ["Host", "Tensor"]
