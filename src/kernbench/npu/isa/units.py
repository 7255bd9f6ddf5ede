"""Lanes, pipes and memories of a cluster, and the pipe that moves data between each pair of memories."""

from kernbench.npu.isa.model import Spaces

LANES = ("aic", "aiv0", "aiv1")
AIC, AIV0, AIV1 = range(3)

S, V, M, MTE1, MTE2, MTE3, FIX, ALL = "S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX", "ALL"
PIPES = (S, V, M, MTE1, MTE2, MTE3, FIX)
PIPE_NUMBER = {name: number for number, name in enumerate(PIPES)}
PIPES_OF = {AIC: (S, M, MTE1, MTE2, MTE3, FIX), AIV0: (S, V, MTE2, MTE3), AIV1: (S, V, MTE2, MTE3)}
# the pipe by which a core's results leave it
OUTPUT = {AIC: FIX, AIV0: MTE3, AIV1: MTE3}
EVENTS = 8
# each pipe of each lane is a thread of its own
PER_LANE = len(PIPES)
THREADS = PER_LANE * len(LANES)

GM, UB, L1, L0A, L0B, L0C = "GM", "UB", "L1", "L0A", "L0B", "L0C"
# memories of the scales of the left and right operand, on chips that have them
L0A_MX, L0B_MX = "L0A_MX", "L0B_MX"
SPACES_OF = {AIC: (L1, L0A, L0B, L0C, L0A_MX, L0B_MX), AIV0: (UB,), AIV1: (UB,)}
ALIGNMENT = 32
# memories of other cores of the cluster that a core can write, on chips with intra-block flags: lane and memory
REACHED: dict[int, dict[str, tuple[int, str]]] = {
    AIC: {"AIV0.UB": (AIV0, UB), "AIV1.UB": (AIV1, UB)},
    AIV0: {"AIC.L1": (AIC, L1)},
    AIV1: {"AIC.L1": (AIC, L1)},
}

# (from, to): the pipe that moves, and the chip's path
MOVES: dict[tuple[str, str], tuple[str, str]] = {
    (GM, UB): (MTE2, "gm_ub"),
    (GM, L1): (MTE2, "gm_l1"),
    (UB, GM): (MTE3, "ub_gm"),
    (L1, GM): (MTE3, "l1_gm"),
    (L0C, GM): (FIX, "l0c_gm"),
    (L0C, L1): (FIX, "l0c_l1"),
    (L1, L0A): (MTE1, "l1_l0a"),
    (L1, L0B): (MTE1, "l1_l0b"),
    (L1, L0A_MX): (MTE1, "l1_l0a"),
    (L1, L0B_MX): (MTE1, "l1_l0b"),
}
# moves into a memory of another core; their paths are not published: assumed equal to the pipe's other paths
SENDS: dict[tuple[str, str], tuple[str, str]] = {(L0C, UB): (FIX, "l0c_l1"), (UB, L1): (MTE3, "ub_gm")}


def memory_of(space: str) -> str:
    """The memory behind a core's name of it: `AIV0.UB` is a UB."""
    return space.rpartition(".")[2]


def capacities(spaces: Spaces) -> dict[str, int]:
    """Bytes of each memory."""
    return {
        UB: spaces.ub, L1: spaces.l1, L0A: spaces.l0a, L0B: spaces.l0b, L0C: spaces.l0c, L0A_MX: spaces.l0a_mx,
        L0B_MX: spaces.l0b_mx,
    }  # fmt: skip
