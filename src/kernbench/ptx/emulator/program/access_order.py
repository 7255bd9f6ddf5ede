"""How an access or a fence orders memory: how strong it is, in which scope, and whether it acquires or releases."""

from dataclasses import dataclass

# what a strong access reaches; 0 is a weak one
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
    """The scope of an access or fence (0 for a weak one), and what it does for the order of others."""

    scope: int
    acquires: bool = False
    releases: bool = False
    # whether what it reads or writes may be part of a pattern that orders others
    reads: bool = False
    writes: bool = False
    # reads what it replaces, whether anybody looks at that or not
    updates: bool = False
    # a fence in the one order of all such fences
    sequential: bool = False

    @property
    def strong(self) -> bool:
        """Whether it can take part in ordering others."""
        return self.reads or self.writes


WEAK = Order(0)
