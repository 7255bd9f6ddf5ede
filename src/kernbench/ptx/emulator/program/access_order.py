"""The memory order of an access or a fence: strong or weak, its scope, and whether it acquires or releases."""

from dataclasses import dataclass

# scopes of strong accesses; 0 is a weak access
CTA_SCOPE, CLUSTER_SCOPE, GPU_SCOPE = 1, 2, 3
SCOPES = {
    "": GPU_SCOPE,
    "cta": CTA_SCOPE,
    "cluster": CLUSTER_SCOPE,
    "gpu": GPU_SCOPE,
    "gl": GPU_SCOPE,
    "sys": GPU_SCOPE,
}


@dataclass(frozen=True, slots=True)
class Order:
    """The scope of an access or fence (0 if weak), and its part in synchronisation."""

    scope: int
    acquires: bool = False
    releases: bool = False
    # whether its read or write can take part in a synchronisation pattern
    reads: bool = False
    writes: bool = False
    # a read-modify-write, whether or not its result is used
    updates: bool = False
    # a fence.sc: all such fences have one total order
    sequential: bool = False

    @property
    def strong(self) -> bool:
        """Whether it can take part in a synchronisation pattern."""
        return self.reads or self.writes


WEAK = Order(0)
